"""Control groups that packers left which were killed, for whoever tidies a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.pack.cgroup import groups_where, remove_group
from freetrain.pack.processes import packer_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from freetrain.pack.cgroup_place import Place
    from freetrain.pack.folders import Folders


def remove_empty_groups(places: Iterable[Place], folders: Folders) -> None:
    """Remove groups of packers that are dead; one with a process in it stays.

    Whoever holds the node knows by other marks which processes to end, and calls
    this afterwards: Slurm cannot remove a job's group while there are others in it.
    """
    for place in places:
        for group in groups_where(place, folders, _is_of_the_dead):
            remove_group(folders, group, kills=False)


def _is_of_the_dead(label: str) -> bool:
    packer = packer_of(label)
    return packer is not None and not packer.is_alive
