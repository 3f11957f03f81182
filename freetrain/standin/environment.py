"""The environment that batch scripts and steps find."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from freetrain.standin.processes import MARK

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from freetrain.standin.records import Job


def mark_of(folder: Path, job: Job) -> str:
    """Return what marks the processes of *job*."""
    return f"{folder}:{job.job_id}"


def bare(user: str, home: str) -> dict[str, str]:
    """Return what a user finds after logging in."""
    path = f"/usr/local/bin{os.pathsep}/usr/bin{os.pathsep}/bin"
    return {"HOME": home, "USER": user, "LOGNAME": user, "PATH": path}


def of_job(folder: Path, job: Job) -> dict[str, str]:
    """Return the variables that tell a batch script of its job."""
    start_s = job.start_s or 0.0
    told = {
        "SLURM_JOB_ID": job.job_id,
        "SLURM_JOBID": job.job_id,
        "SLURM_JOB_NAME": job.name,
        "SLURM_JOB_USER": job.user,
        "SLURM_JOB_PARTITION": job.partition,
        "SLURM_JOB_NODELIST": ",".join(job.nodes),
        "SLURM_JOB_NUM_NODES": 1,
        "SLURM_JOB_START_TIME": int(start_s),
        "SLURM_JOB_END_TIME": int(start_s + job.limit_s),
        "SLURM_NNODES": 1,
        "SLURM_NODEID": 0,
        "SLURM_PROCID": 0,
        "SLURM_LOCALID": 0,
        "SLURM_SUBMIT_DIR": job.directory,
        "SLURMD_NODENAME": job.nodes[0] if job.nodes else "",
        MARK: mark_of(folder, job),
    }
    if job.array_id:
        told |= {"SLURM_ARRAY_JOB_ID": job.array_id, "SLURM_ARRAY_TASK_ID": job.task}
    return {name: str(value) for name, value in told.items()}


def of_step(folder: Path, job: Job, number: int) -> dict[str, str]:
    """Return the variables that tell a step of itself."""
    told = {
        "SLURM_STEP_ID": number,
        "SLURM_STEPID": number,
        "SLURM_STEP_NODELIST": ",".join(job.nodes),
        "SLURM_STEP_NUM_NODES": 1,
        "SLURM_STEP_NUM_TASKS": 1,
        "SLURM_NTASKS": 1,
    }
    return of_job(folder, job) | {name: str(value) for name, value in told.items()}


def without_slurm(environ: Mapping[str, str]) -> dict[str, str]:
    """Return *environ* without what an outer job told."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(("SLURM_", "SLURMD_"))
    }
