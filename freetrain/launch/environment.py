"""The variables that a launcher gets, and with it the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.elastic import launch as contract
from freetrain.exchange.environment import MPI_TUNING
from freetrain.launch.request import LEASE_MARK, WORLD_MARK
from slurm.environment import KEPT

if TYPE_CHECKING:
    from freetrain.elastic.run_dir import RunDir
    from freetrain.jobfile.job import TrainerJob
    from freetrain.launch.request import WorldRequest

# What an outer job, step, launcher or world left behind: an inner one would believe it.
_SCRUBBED = ("SLURM_", "SLURMD_", "SRUN_", "PMI", "OMPI_", "PRTE_", "FREETRAIN_")

# Sites tune MPI by OMPI_MCA_* in their modules; these it is not for them to say.
_NO_TUNING = ("ess", "orte", "plm", "prte", "ras", "pmix", "routed", "rmaps_ppr")

DEVICES = (
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
)
"""Slurm says per job which devices are its; the submitter's say nothing about them."""


def launcher_environment(request: WorldRequest) -> dict[str, str]:
    """Return all variables of the launcher of *request*.

    The submitter's without what outer jobs and launchers left in them, the
    allocation's devices and the way to Slurm from the agent's, then what the job
    file says, then the contract of docs/training-program.md.
    """
    job = request.job
    ours = request.head.environment
    variables = {k: v for k, v in request.environment.items() if is_kept(k)}
    variables |= {k: v for k, v in ours.items() if k in KEPT or k in DEVICES}
    return (
        variables
        | said_by(job)
        | _contract(request)
        | request.marks(request.members[0])
    )


def said_by(job: TrainerJob) -> dict[str, str]:
    """Return the variables that a job file asks for."""
    threads = job.launch.threads
    own = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
    return dict(job.environment) | own


def contract_of(
    job: TrainerJob, run: RunDir, generation: int, *, processes: int
) -> dict[str, str]:
    """Return what docs/training-program.md promises to a program.

    Args:
        job: The trainer.
        run: Its run directory.
        generation: The number of the fragment.
        processes: How many processes it has.
    """
    return {
        contract.RUN_DIR: str(run.path),
        contract.GENERATION: str(generation),
        contract.WORLD_SIZE: str(processes),
        contract.STOP_SIGNALS: stop_signals(job),
        contract.COMMIT_EVERY_S: f"{job.checkpoint.every_s:.3f}",
    }


def carried(request: WorldRequest) -> dict[str, str]:
    """Return the variables of the launcher that are right on every node."""
    own = {LEASE_MARK, WORLD_MARK, *DEVICES, *KEPT}
    found = launcher_environment(request)
    return {name: value for name, value in found.items() if name not in own}


def stop_signals(job: TrainerJob) -> str:
    """Return the names of the signals that ask *job* to stop, as the contract has."""
    return ",".join(dict.fromkeys(("TERM", str(job.stop.signal))))


def _contract(request: WorldRequest) -> dict[str, str]:
    job = request.job
    said = contract_of(
        job,
        request.run_dir,
        request.assigned.generation,
        processes=request.processes,
    )
    if request.after is not None and job.elastic:
        said[contract.AFTER] = str(request.after)
    return said


def is_kept(name: str) -> bool:
    """Tell whether a world gets the variable *name* as who starts it has it."""
    for prefix in MPI_TUNING:
        if name.startswith(prefix):
            return not name.removeprefix(prefix).startswith(_NO_TUNING)
    return not name.startswith(_SCRUBBED) and name not in DEVICES
