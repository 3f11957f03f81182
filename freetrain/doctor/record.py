"""Making a recording: running the commands, writing the harmless answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.errors import CannotWriteError
from slurm.errors import SlurmRefusedError
from slurm.recorder import RECORDED, recording

if TYPE_CHECKING:
    from pathlib import Path

    from slurm.runner import Runner

_TIMEOUT_S = 120.0
_PRIVATE = 0o700


def record(runner: Runner, folder: Path) -> tuple[str, ...]:
    """Ask Slurm and write a recording into *folder*; return the files' names.

    Nothing but made harmless is ever written, not even for a moment.

    Raises:
        CannotWriteError: The folder holds something, or cannot be written.
        SlurmError: Slurm did not answer, or not in a form that could be made
            harmless; nothing was written.
    """
    _check(folder)
    answers = {}
    for one in RECORDED:
        try:
            answers[one.file] = runner.run(one.argv, timeout_s=_TIMEOUT_S)
        except SlurmRefusedError:
            if not one.is_optional:
                raise
    files = recording(answers)
    _write(folder, files)
    return tuple(files)


def _check(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CannotWriteError(
            f"{folder} is not an empty folder. Nothing was asked; name another."
        )


def _write(folder: Path, files: dict[str, str]) -> None:
    try:
        folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, "utf-8", "replace")
    except OSError as error:
        raise CannotWriteError(
            f"cannot write {folder}: {error.strerror}. Part of the recording may be "
            f"there; name another place."
        ) from error
