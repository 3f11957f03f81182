"""The variables of a member: those of a trainer that was launched alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.launch.environment import DEVICES, contract_of, is_kept, said_by
from freetrain.launch.request import LEASE_MARK, WORLD_MARK
from freetrain.pack.processes import MARK
from slurm.environment import KEPT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.pack.member import Berth
    from freetrain.pack.processes import Packer

# The marks by which the agent finds what its lease left behind, members included, and
# what the pack has from its own lease: the devices, and the way to Slurm.
_INHERITED = {LEASE_MARK, WORLD_MARK, *DEVICES, *KEPT}


def member_environment(
    berth: Berth, given: Mapping[str, str], packer: Packer
) -> dict[str, str]:
    """Return all variables of a member.

    Args:
        berth: What is started.
        given: The pack's own variables.
        packer: Who starts it.
    """
    job = berth.job
    variables = {
        name: text
        for name, text in given.items()
        if name in _INHERITED or is_kept(name)
    }
    told = contract_of(job, berth.run, berth.generation, processes=1)
    return variables | said_by(job) | told | {MARK: f"{packer.label}/{job.name}"}
