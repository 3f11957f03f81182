"""Which means this node has: the best that is writable, tried rather than guessed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.errors import BadConfigurationError
from freetrain.pack.affinity import ENOUGH_CPUS, Affinity, pin_process
from freetrain.pack.cgroup import Groups
from freetrain.pack.duty_cycle import DutyCycle
from freetrain.pack.pack import MeansName
from freetrain.pack.processes import tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.pack.cgroup_place import Place
    from freetrain.pack.folders import Folders
    from freetrain.pack.means import Means
    from freetrain.pack.processes import Packer


def choose(
    wanted: MeansName,
    *,
    places: Sequence[Place],
    folders: Folders,
    packer: Packer,
    cpus: Sequence[int],
) -> Means:
    """Return the means *wanted*, or the first that works where any will do.

    Args:
        wanted: Its name.
        places: The control groups that could be used, best first.
        folders: How they are told.
        packer: This process.
        cpus: The CPUs of all members.

    Raises:
        BadConfigurationError: A means was wanted that this node does not have.
    """
    if wanted is MeansName.DUTY_CYCLE:
        return DutyCycle(len(cpus), tell)
    if wanted is MeansName.AFFINITY:
        return Affinity(cpus, pin_process)
    why = "no such control group"
    for place in places:
        if wanted in (MeansName.AUTO, place.version):
            try:
                return Groups(place, folders, packer)
            except OSError as error:
                why = f"{place.path}: {error.strerror or error}"
    if wanted is MeansName.AUTO:
        enough = len(cpus) >= ENOUGH_CPUS
        rest = MeansName.AFFINITY if enough else MeansName.DUTY_CYCLE
        return choose(rest, places=(), folders=folders, packer=packer, cpus=cpus)
    raise BadConfigurationError(
        f"means = {str(wanted)!r} cannot be had here: {why}. Nothing was started. Use "
        f'means = "{MeansName.AUTO}", which takes what there is.'
    )
