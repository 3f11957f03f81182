"""srun: a step of a running job, from within it or from anywhere.

A step becomes the very process that srun was, so whoever started srun is its parent
and reads its output, and an end of the job ends it too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.standin.complaint import ComplaintError
from freetrain.standin.environment import of_step, without_slurm
from freetrain.standin.words import split

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from freetrain.standin.records import Cluster, Job, Process

_FLAGS = frozenset(
    {"overlap", "exact", "quiet", "unbuffered", "label", "immediate", "exclusive"}
)
_SHORT = {"N": "nodes", "n": "ntasks", "w": "nodelist", "c": "cpus-per-task"}
_SHORT |= {"J": "job-name", "t": "time", "D": "chdir", "K": "kill-on-bad-exit"}
_FAILED = "srun: error: Unable to create step for job "


def step(
    cluster: Cluster,
    folder: Path,
    argv: Sequence[str],
    *,
    process: Process,
    environ: Mapping[str, str],
) -> tuple[list[str], dict[str, str], str]:
    """Make *process* a step; return what it is to run, in what, and where.

    Raises:
        ComplaintError: There is no such job that runs, or not on that node.
    """
    words = [word for word in argv if word not in {"-Q", "-u", "-l"}]
    options, command = split("srun", words, short=_SHORT, flags=_FLAGS)
    wanted = options.get("jobid", environ.get("SLURM_JOB_ID", ""))
    job = _running(cluster, wanted)
    node = options.get("nodelist", job.nodes[0])
    if node not in job.nodes:
        raise ComplaintError(
            f"{_FAILED}{wanted}: Requested node configuration is not available"
        )
    if not command or options.get("ntasks", "1") != "1":
        raise ComplaintError("srun: error: this stand-in has steps of one task only")
    job.steps.append(process)
    kept = {} if options.get("export") == "NONE" else without_slurm(environ)
    told = of_step(folder, job, len(job.steps) - 1)
    return command, kept | told, options.get("chdir", "")


def _running(cluster: Cluster, wanted: str) -> Job:
    for job in cluster.jobs:
        if job.is_running and str(job.job_id) == wanted and job.supervisor is not None:
            return job
    raise ComplaintError(
        f"{_FAILED}{wanted[:40]}: Job/step already completing or completed"
    )
