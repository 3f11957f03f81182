"""The variables of a member: those of a trainer that was launched alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.launch.environment import SCRUBBED, contract_of, said_by
from freetrain.launch.request import LEASE_MARK, WORLD_MARK
from freetrain.pack.processes import MARK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.pack.member import Berth
    from freetrain.pack.processes import Packer

# By these the agent finds what its lease left behind, members of a pack included.
_KEPT = frozenset({LEASE_MARK, WORLD_MARK})


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
        if name in _KEPT or not name.startswith(SCRUBBED)
    }
    told = contract_of(job, berth.run, berth.generation, processes=1)
    return variables | said_by(job) | told | {MARK: f"{packer.label}/{job.name}"}
