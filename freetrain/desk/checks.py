"""What can be checked here of a program that will run elsewhere."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from freetrain.errors import BadConfigurationError
from freetrain.jobfile.job import Launcher
from freetrain.store.file_system import is_local
from freetrain.toml.wording import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from freetrain.jobfile.job import TrainerJob

_UNCHECKED = "Nothing was submitted. {}, or submit --unchecked if compute nodes see it."


def check_program(job: TrainerJob, environment: Mapping[str, str]) -> None:
    """Refuse a job whose directory or program is not here; a pack has no program.

    Args:
        job: The trainer.
        environment: The variables that it will get, its own included.

    Raises:
        BadConfigurationError: One of them is not.
    """
    if not job.directory.is_dir():
        raise _refusal(f"there is no directory {job.directory}", "Correct directory")
    program = job.command[0] if job.command else ""
    if program and find_program(program, job.directory, environment) is None:
        where = f"in {job.directory}" if "/" in program else "on your PATH"
        raise _refusal(
            f"the program {shown(program)} is not {where}, or cannot be executed",
            "Activate the environment that has it, or name it in full",
        )


def find_program(
    program: str, directory: Path, environment: Mapping[str, str]
) -> str | None:
    """Return where *program* is, as the kernel would find it from *directory*."""
    if "/" in program:
        path = directory / program
        return str(path) if path.is_file() and os.access(path, os.X_OK) else None
    return shutil.which(program, path=environment.get("PATH", os.defpath))


def remarks(
    job: TrainerJob,
    environment: Mapping[str, str],
    shared: Iterable[Path],
    *,
    beside: Path,
    mounts: str,
) -> tuple[str, ...]:
    """Return what may be a mistake, and need not be one.

    Args:
        job: The trainer.
        environment: The variables that it will get.
        shared: Folders that compute nodes must see.
        beside: Where FreeTrain's own Python is; launchers are looked for there too.
        mounts: What ``/proc/self/mountinfo`` says.
    """
    found = []
    launcher = launcher_program(job)
    path = f"{environment.get('PATH', os.defpath)}:{beside}"
    if launcher and find_program(launcher, job.directory, {"PATH": path}) is None:
        found.append(
            f"the launcher {shown(launcher)} is not on your PATH here; compute nodes "
            f"need it"
        )
    local = [str(one) for one in _outermost(shared) if _is_local(one, mounts)]
    if local:
        found.append(
            f"compute nodes must see {', '.join(local)}, on a disk of this machine as "
            f"far as can be told"
        )
    uncounted = _uncounted(job)
    if uncounted:
        found.append(
            f"[work] {uncounted} ends nothing: [progress] does not tell how many are "
            f"done"
        )
    return tuple(found)


def past_deadline(job: TrainerJob, *, now_s: float) -> tuple[str, ...]:
    """Return that the job is to be finished before *now_s*, if it is."""
    at = None if job.deadline is None else job.deadline.at
    if at is None or at.timestamp() > now_s:
        return ()
    return (f"the deadline {at.isoformat()} is past; no priority tries to meet it",)


def _uncounted(job: TrainerJob) -> str:
    """Return what *job* is to end after and does not tell; empty where it does."""
    if job.elastic:
        return ""
    told = job.progress.told if job.progress else frozenset()
    if job.work.samples is not None and "samples" not in told:
        return "samples"
    return "epochs" if job.work.epochs is not None and "epoch" not in told else ""


def _outermost(folders: Iterable[Path]) -> list[Path]:
    """Return those of *folders* that lie in none of the others, each once."""
    every = list(dict.fromkeys(folders))
    return [
        one
        for one in every
        if not any(one != other and one.is_relative_to(other) for other in every)
    ]


def launcher_program(job: TrainerJob) -> str:
    """Return the program that starts the job's worlds; empty for one of ours."""
    if job.launch.launcher is Launcher.PACK:
        return ""
    if job.launch.launcher is Launcher.CUSTOM:
        return job.launch.command[0]
    return job.launch.executable or str(job.launch.launcher)


def _is_local(path: Path, mounts: str) -> bool:
    return is_local(path.resolve(), mounts=mounts)


def _refusal(problem: str, advice: str) -> BadConfigurationError:
    return BadConfigurationError(f"{problem}. {_UNCHECKED.format(advice)}")
