"""Exit codes of sysexits.h, and the line that each error becomes."""

from __future__ import annotations

import typer

from freetrain.errors import FreeTrainError
from freetrain.text import one_line
from logs.trace import LogError, UnreadableLogError
from milp.errors import MilpError, SolverUnavailableError
from slurm.errors import (
    SlurmError,
    SlurmMissingError,
    SlurmRefusedError,
    UnreadableOutputError,
)

EX_USAGE = 64
EX_DATAERR = 65
EX_UNAVAILABLE = 69
EX_SOFTWARE = 70
EX_OSERR = 71
EX_IOERR = 74
EX_TEMPFAIL = 75
EX_PROTOCOL = 76
INTERRUPTED = 130
PIPE_CLOSED = 141
"""What a shell shows for a program that SIGPIPE ended."""

EXPECTED = (
    FreeTrainError,
    LogError,
    MilpError,
    SlurmError,
    typer.TyperException,
    OSError,
    MemoryError,
)
"""Everything that becomes one line; anything else is a defect and shows itself."""

_CODES: tuple[tuple[type[Exception], int], ...] = (
    (typer.TyperException, EX_USAGE),
    (LogError, EX_DATAERR),
    (SolverUnavailableError, EX_UNAVAILABLE),
    (SlurmMissingError, EX_UNAVAILABLE),
    (SlurmRefusedError, EX_UNAVAILABLE),
    (UnreadableOutputError, EX_PROTOCOL),
    (SlurmError, EX_TEMPFAIL),
    (MemoryError, EX_OSERR),
    (OSError, EX_IOERR),
)
"""Codes of what is not a FreeTrainError; the first that fits counts."""


def exit_code(error: Exception) -> int:
    """Return the exit code for *error*, one of ``EXPECTED``."""
    if isinstance(error, FreeTrainError):
        return error.exit_code
    return next((code for kind, code in _CODES if isinstance(error, kind)), EX_SOFTWARE)


def error_line(error: Exception) -> str:
    """Return *error* as one line: what happened, what was not done, what to do."""
    if isinstance(error, typer.TyperException):
        # Typer 0.29 checks choices by Pydantic, which names the exception's class.
        said = error.format_message().replace(": Value error, ", ": ", 1).rstrip(".")
        stop = "" if said.endswith("?") else "."
        return one_line(f"{said}{stop} Nothing was done. `freetrain -h` shows how.")
    if isinstance(error, UnreadableLogError):
        return one_line(f"{str(error).rstrip('.')}. Nothing was done. {_remedy(error)}")
    if isinstance(error, OSError):
        named = f"{error.filename}: " if error.filename else ""
        said = f"{named}{error.strerror or error}"
        return one_line(f"{said}. What was asked for was not finished.")
    if isinstance(error, MemoryError):
        return (
            "there is not enough memory for this; nothing was written. Replay fewer "
            "nodes or days, or ask for more memory."
        )
    return one_line(str(error))


def _remedy(error: UnreadableLogError) -> str:
    if error.can_skip:
        return "Mend the line, or pass over bad lines with --skip-bad N."
    return "Check that the file is complete and is the log you mean."
