"""CPU shares by control groups: the kernel's own, and work-conserving."""

from __future__ import annotations

from contextlib import suppress
from signal import SIGKILL
from typing import TYPE_CHECKING

from freetrain.pack.folders import pids_in
from freetrain.pack.means import NOTHING_DUE_S
from freetrain.pack.pack import MeansName
from freetrain.pack.processes import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from freetrain.pack.cgroup_place import Place
    from freetrain.pack.folders import Folders
    from freetrain.pack.processes import Packer

PREFIX = "freetrain-pack-"
_OWN_LEAF = "freetrain-packer"
_PROCS = "cgroup.procs"
_CONTROL = "cgroup.subtree_control"
_WEIGHT_FILE = {MeansName.CGROUP_V1: "cpu.shares", MeansName.CGROUP_V2: "cpu.weight"}
_MOST_WEIGHT = 10_000  # of v2; v1 begins at 2 and takes more
_LEAST_WEIGHT = 2

# The process enters its group before it becomes the member, so that nothing that the
# member starts can be outside of it.
_ENTER = 'echo $$ > "$0" && exec "$@"'


class Groups:
    """A group for the pack, and in it one for each member; v1 or v2."""

    def __init__(self, place: Place, folders: Folders, packer: Packer) -> None:
        """Make the pack's group.

        Raises:
            OSError: This process may not, or the kernel will not share CPUs here.
        """
        self.name = place.version
        self._own = place.path
        self._folders = folders
        self._pid = packer.pid
        self._home = place.path  # where processes go that are let go
        self._path = place.path / f"{PREFIX}{packer.label}"
        self._weight = _WEIGHT_FILE[place.version]
        folders.make(self._path)
        try:
            if place.version is MeansName.CGROUP_V2:
                self._let_children_share()
            # What can be made need not be what can be set.
            self.admit("probe")
            self.set_shares({"probe": 1.0})
            self.release("probe")
        except OSError:
            self.close()
            raise

    def admit(self, member: str) -> tuple[str, ...]:
        """Make a group for *member*."""
        with suppress(FileExistsError):
            self._folders.make(self._path / member)
        return ("/bin/sh", "-c", _ENTER, str(self._path / member / _PROCS))

    def follow(self, member: str, pids: Iterable[int]) -> None:
        """Do nothing: the kernel follows."""

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Set the weights."""
        for member, share in shares.items():
            weight = max(_LEAST_WEIGHT, min(_MOST_WEIGHT, round(share * _MOST_WEIGHT)))
            self._folders.write(self._path / member / self._weight, str(weight))

    def turn(self, now_s: float) -> float:
        """Do nothing: the kernel does."""
        del now_s
        return NOTHING_DUE_S

    def pids(self, member: str) -> tuple[int, ...]:
        """Return the processes in the group of *member*."""
        return pids_in(self._folders, self._path / member)

    def release(self, member: str) -> None:
        """Remove the group of *member*, or let its processes go where we are."""
        for pid in self.pids(member):
            with suppress(OSError):
                self._folders.write(self._home / _PROCS, str(pid))
        with suppress(OSError):
            self._folders.remove(self._path / member)

    def close(self) -> None:
        """Remove all groups."""
        with suppress(OSError):
            for member in self._folders.names(self._path):
                self.release(member)
        with suppress(OSError):
            self._folders.remove(self._path)
        if self._home != self._own:
            self._move_back()

    def _let_children_share(self) -> None:
        """Hand the CPU controller down two levels, as v2 wants it.

        A group that hands it down may hold no processes itself, so that this process,
        where it is alone in its group, goes into a leaf.
        """
        try:
            self._folders.write(self._own / _CONTROL, "+cpu")
        except OSError:
            if pids_in(self._folders, self._own) != (self._pid,):
                raise
            leaf = self._own / _OWN_LEAF
            with suppress(FileExistsError):  # of a packer that was killed
                self._folders.make(leaf)
            self._home = leaf
            self._folders.write(leaf / _PROCS, str(self._pid))
            self._folders.write(self._own / _CONTROL, "+cpu")
        self._folders.write(self._path / _CONTROL, "+cpu")

    def _move_back(self) -> None:
        with suppress(OSError):
            self._folders.write(self._own / _CONTROL, "-cpu")
        for pid in pids_in(self._folders, self._home):
            with suppress(OSError):
                self._folders.write(self._own / _PROCS, str(pid))
        with suppress(OSError):
            self._folders.remove(self._home)


def remove_group(folders: Folders, group: Path, *, kills: bool) -> None:
    """Remove *group* and the groups in it, as far as that is possible.

    Args:
        folders: How the kernel is told.
        group: A packer's group.
        kills: Whether what is in those groups is killed; else they stay with it.
    """
    with suppress(OSError):
        for name in folders.names(group):
            if kills:
                tell(pids_in(folders, group / name), SIGKILL)
            folders.remove(group / name)
        folders.remove(group)


def groups_where(
    place: Place, folders: Folders, is_meant: Callable[[str], bool]
) -> tuple[Path, ...]:
    """Return the groups of packers whose labels are meant."""
    try:
        names = folders.names(place.path)
    except OSError:
        return ()
    return tuple(
        place.path / name
        for name in names
        if name.startswith(PREFIX) and is_meant(name.removeprefix(PREFIX))
    )
