"""Which files tell a trainer's progress."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.jobfile.job import TrainerJob

# What a world prints: the generation in ten digits, then whatever tells files of one
# generation apart.
_LOG = re.compile(r"([0-9]{10})(?:[.-].*)?", re.ASCII | re.DOTALL)
_PROGRESS = "progress.jsonl"


def told_in(job: TrainerJob, run_dir: Path) -> Path | None:
    """Return the one file that *job* tells its progress in.

    Returns:
        None where it is what the program prints, or nothing at all.
    """
    if job.elastic:
        return run_dir / _PROGRESS
    return job.progress.file if job.progress else None


def log_files(logs: Path, since_generation: int = 0) -> list[tuple[int, Path]]:
    """Return generation and path of what worlds printed, in the order of names.

    Args:
        logs: The folder; one that is missing or cannot be read has none.
        since_generation: Files of earlier generations are left out.
    """
    try:
        names = [(_LOG.fullmatch(path.name), path) for path in logs.iterdir()]
    except OSError:
        return []
    found = [(int(match[1]), path) for match, path in names if match]
    return sorted((g, path) for g, path in found if g >= since_generation)
