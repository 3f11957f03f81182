"""The variables of a member: those of a trainer that was launched alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.elastic import launch as contract
from freetrain.launch.environment import stop_signals
from freetrain.launch.request import LEASE_MARK, WORLD_MARK
from freetrain.pack.processes import MARK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.pack.member import Berth
    from freetrain.pack.processes import Packer

# What the pack's own world and job left: a member would take itself for a rank of it.
_SCRUBBED = ("SLURM_", "SLURMD_", "SRUN_", "PMI", "OMPI_", "PRTE_", "FREETRAIN_")

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
        if name in _KEPT or not name.startswith(_SCRUBBED)
    }
    variables |= dict(job.environment)
    if job.launch.threads is not None:
        variables["OMP_NUM_THREADS"] = str(job.launch.threads)
    return variables | {
        contract.RUN_DIR: str(berth.run.path),
        contract.GENERATION: str(berth.generation),
        contract.WORLD_SIZE: "1",
        contract.STOP_SIGNALS: stop_signals(job),
        contract.COMMIT_EVERY_S: f"{job.checkpoint.every_s:.3f}",
        MARK: f"{packer.label}/{job.name}",
    }
