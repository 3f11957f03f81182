"""What can be checked at submission of a program that will run elsewhere.

Mistakes are refused (``check_program``, ``kept_environment``); what may be a mistake,
and need not be one, becomes a remark.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from freetrain.errors import BadConfigurationError
from freetrain.launch.base import launcher_of
from freetrain.pack.pack import read_pack
from freetrain.state.database import is_local
from freetrain.state.files import MPI_TUNING
from freetrain.text import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from freetrain.config.job import TrainerJob


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


def _refusal(problem: str, advice: str) -> BadConfigurationError:
    return BadConfigurationError(f"{problem}. {_UNCHECKED.format(advice)}")


# ----------------------------------------------------------------------
# Remarks


def remarks(
    job: TrainerJob,
    environment: Mapping[str, str],
    shared: Iterable[Path],
    *,
    beside: Path,
    mounts: str,
) -> tuple[str, ...]:
    """Return what may be a mistake in *job*, a line each.

    Args:
        job: The trainer.
        environment: The variables that it will get.
        shared: Folders that compute nodes must see.
        beside: Where FreeTrain's own Python is; launchers are looked for there too.
        mounts: What ``/proc/self/mountinfo`` says.
    """
    found = []
    launcher = launcher_of(job).program(job.launch)
    path = f"{environment.get('PATH', os.defpath)}:{beside}"
    if launcher and find_program(launcher, job.directory, {"PATH": path}) is None:
        found.append(
            f"the launcher {shown(launcher)} is not on your PATH here; compute nodes "
            f"need it"
        )
    local = [
        str(folder)
        for folder in _outermost(shared)
        if is_local(folder.resolve(), mounts=mounts)
    ]
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
    """Return the key of [work] that *job* does not report; empty for none."""
    if job.elastic:
        return ""
    reported = job.progress.reported if job.progress else frozenset()
    if job.work.samples is not None and "samples" not in reported:
        return "samples"
    return "epochs" if job.work.epochs is not None and "epoch" not in reported else ""


def _outermost(folders: Iterable[Path]) -> list[Path]:
    """Return those of *folders* that lie in none of the others, each once."""
    every = list(dict.fromkeys(folders))
    return [
        folder
        for folder in every
        if not any(folder != other and folder.is_relative_to(other) for other in every)
    ]


def member_remarks(job: TrainerJob, members: Iterable[TrainerJob]) -> tuple[str, ...]:
    """Return what is no mistake in a member's job file, and may be one in a pack."""
    limit_s = job.stop.kill_after_s
    slow = [member.name for member in members if member.stop.kill_after_s > limit_s]
    if not slow:
        return ()
    remark = (
        f"{', '.join(slow)} may take longer to stop than the pack's [stop] kill_after, "
        f"{limit_s:g} s, and would be killed then"
    )
    return (remark,)


# ----------------------------------------------------------------------
# Members of a pack


def members_of(job: TrainerJob, *, home: Path | None) -> tuple[TrainerJob, ...]:
    """Return the members that the pack of *job* has now; none where it is no pack.

    Files of its inbox that are no job files are ignored, as the pack ignores them.

    Raises:
        FreeTrainError: The pack file, or a job file that it names, cannot be used.
    """
    if job.launch.pack is None:
        return ()
    pack = read_pack(job.launch.pack, home=home)
    # Imported here: it brings NumPy along, which submissions without packs spare.
    from freetrain.pack.run import Files  # noqa: PLC0415

    return Files(pack, home=home, say=_ignore).arrivals()


def _ignore(complaint: str) -> None:
    del complaint


# ----------------------------------------------------------------------
# The user's variables that are kept with a trainer, as sbatch keeps them

MOST_BYTES = 1 << 19
"""All of them together; Linux takes 2 MiB, arguments included."""

_MOST_VALUE_BYTES = 100_000  # Linux takes no single one above 131,072
_LEFT_OUT_PREFIXES = (
    "FREETRAIN_",  # the launch sets these
    "SLURM_",  # a world must not believe in the job it was submitted from
    "PMI_",
    "PMIX_",
    "OMPI_",
    "PRTE_",
)
_LEFT_OUT = frozenset({"PWD", "OLDPWD", "SHLVL", "_"})  # the shell's, about itself


def kept_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of *environ* with which a trainer is launched.

    Raises:
        BadConfigurationError: It is larger than is ever kept.
    """
    kept = {name: value for name, value in environ.items() if _is_kept(name)}
    for name, value in kept.items():
        if _bytes(value) > _MOST_VALUE_BYTES:
            raise _too_large(f"the variable {name} has {_bytes(value)} bytes")
    total = sum(_bytes(name) + _bytes(value) + 2 for name, value in kept.items())
    if total > MOST_BYTES:
        raise _too_large(f"your environment has {total} bytes")
    return kept


def _is_kept(name: str) -> bool:
    if name.startswith(MPI_TUNING):  # the launch knows which it sets itself
        return True
    return name not in _LEFT_OUT and not name.startswith(_LEFT_OUT_PREFIXES)


def _bytes(text: str) -> int:
    return len(os.fsencode(text))


def _too_large(problem: str) -> BadConfigurationError:
    return BadConfigurationError(
        f"{problem}, more than can be kept for a trainer ({_MOST_VALUE_BYTES} each, "
        f"{MOST_BYTES} together). Nothing was submitted. Unset what the program does "
        f"not need, or submit with `env -i`."
    )
