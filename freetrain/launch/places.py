"""Where a trainer's programs keep and print things, after job.toml had its say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.elastic.run_dir import RunDir
from freetrain.exchange.layout import generation_name

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.exchange.layout import TrainerDir
    from freetrain.jobfile.job import TrainerJob


def run_dir_of(job: TrainerJob, folder: TrainerDir) -> RunDir:
    """Return the run directory of a trainer.

    For a program that is not elastic ``checkpoint.path`` is what it writes, and no
    run directory.
    """
    path = job.checkpoint.path
    return RunDir(path) if job.elastic and path is not None else folder.run


def logs_of(job: TrainerJob, folder: TrainerDir) -> Path:
    """Return the folder of what a trainer's worlds print."""
    return job.logs or folder.logs


def log_of(job: TrainerJob, folder: TrainerDir, generation: int) -> Path:
    """Return the file of what the world of *generation* prints."""
    return logs_of(job, folder) / f"{generation_name(generation)}.log"
