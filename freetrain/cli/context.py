"""What all verbs share: their context, options, output, words and errors.

A verb gets a ``CliContext``: clock, streams, folder, variables. Text, JSON, tables and
progress go to its streams. A file is written whole or not at all, and writing the same
twice is no mistake. An error ends as one line and an exit code of sysexits.h.

No ``from __future__ import annotations`` here and in the verbs: Typer reads the
annotations of options while the program runs.
"""

import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import typer

from freetrain.api.context import UserContext
from freetrain.api.logs import Log, MethodName, PassesName, read_log
from freetrain.errors import CannotWriteError, FreeTrainError, TryLaterError
from freetrain.text import counted, one_line, parse_duration
from logs.trace import LogError, UnreadableLogError
from milp.answer import MilpError, SolverUnavailableError
from slurm.errors import (
    SlurmError,
    SlurmMissingError,
    SlurmRefusedError,
    UnreadableOutputError,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


LEAST_COLUMNS = 80
"""The width that tables are made for."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CliContext(UserContext):
    """A command's clock, streams, folder and user.

    Attributes:
        stdin: For answers to questions.
        stdout: For results.
        stderr: For errors and progress.
        is_terminal: Whether ``stderr`` is a terminal: progress is shown.
    """

    stdin: TextIO
    stdout: TextIO
    stderr: TextIO
    is_terminal: bool

    @property
    def can_ask(self) -> bool:
        """Whether somebody reads questions on ``stderr`` and can answer them."""
        return self.is_terminal and self.stdin.isatty()

    @property
    def is_out_terminal(self) -> bool:
        """Whether ``stdout`` is a terminal: it is kept free of control codes."""
        return self.stdout.isatty()

    def out(self) -> "Console":
        """Return a console for results, of 80 columns or more.

        A narrower terminal wraps their lines; tables made to fit would lose figures
        and names.
        """
        console = self.watched()
        console.width = max(console.width, LEAST_COLUMNS)
        return console

    def watched(self) -> "Console":
        """Return a console as wide as the terminal, for screens that are redrawn."""
        return _console(self.stdout, is_terminal=None)

    def err(self) -> "Console":
        """Return a console for errors and progress."""
        return _console(self.stderr, is_terminal=self.is_terminal)

    @contextmanager
    def progress(self, what: str) -> Iterator[Callable[[float], None] | None]:
        """Give a function that takes the fraction of *what* done; None in a log."""
        if not self.is_terminal:
            yield None
            return
        from rich.progress import Progress  # noqa: PLC0415 - only where it is seen

        with Progress(console=self.err(), transient=True) as shown:
            task = shown.add_task(what, total=1.0)
            yield lambda fraction: shown.update(task, completed=fraction)


def process_context() -> CliContext:
    """Return the context of this process; a closed stream swallows all output."""
    stderr = sys.stderr or _nowhere()
    return CliContext.of_process(
        stdin=sys.stdin or _nowhere("r"),
        stdout=sys.stdout or _nowhere(),
        stderr=stderr,
        is_terminal=stderr.isatty(),
    )


def _nowhere(mode: Literal["r", "w"] = "w") -> TextIO:
    return Path(os.devnull).open(mode, encoding="utf-8")


def _console(stream: TextIO, *, is_terminal: bool | None) -> "Console":
    from rich.console import Console  # noqa: PLC0415 - `--version` must be cheap

    # Colour only where a terminal shows it.
    return Console(
        file=stream,
        force_terminal=is_terminal,
        highlight=False,
        markup=False,
        emoji=False,
    )


# Options

SkipBad = Annotated[
    int,
    typer.Option(
        metavar="N", min=0, help="Pass over up to N bad lines, and say how many."
    ),
]
CoresPerNode = Annotated[
    int | None,
    typer.Option(
        "--cores-per-node",
        metavar="N",
        min=1,
        help="Processors of a node, for a log that counts those.",
        show_default="as its header says",
    ),
]
GpusPerNode = Annotated[
    int | None,
    typer.Option(
        "--gpus-per-node",
        metavar="N",
        min=1,
        max=1024,
        help="GPUs of a node, for a log of jobs that share nodes: their GPUs count.",
        show_default="as a log of GPUs says",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", metavar="", help="JSON for programs.")]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        readable=False,  # opening it fails with exit code 66
        help="The site's freetrain.toml; without it the first one found.",
    ),
]
Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Trainers.")]
Force = Annotated[
    bool, typer.Option("--force", metavar="", help="Replace what --out names.")
]
OutFile = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Write there instead of to stdout."),
]
OutFolder = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Write summary, steps and report.html."),
]
ScheduleMethod = Annotated[
    MethodName,
    typer.Option(
        "--schedule",
        metavar="NAME",
        help="Who starts jobs: recorded (as the log says), easy or slurm (simulated).",
    ),
]
SchedulerPasses = Annotated[
    PassesName,
    typer.Option(
        "--passes",
        metavar="NAME",
        help="Simulated schedulers look once a moment, or at each event of it.",
    ),
]


def given_log(
    context: CliContext,
    log: Path,
    cores_per_node: int | None,
    gpus_per_node: int | None,
    skip_bad: int,
) -> Log:
    """Read the log that the options name, as ``read_log`` does."""
    return read_log(
        context.cwd / log,
        named=str(log),
        skip_bad=skip_bad,
        cores_per_node=cores_per_node,
        gpus_per_node=gpus_per_node,
    )


def duration_s(text: str) -> float:
    """Parse a duration such as ``20s``."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def above_zero(value: float | None) -> float | None:
    """Refuse all but finite numbers above 0."""
    if value is not None and not 0 < value < math.inf:
        raise typer.BadParameter(f"{value:g} is not a number above 0")
    return value


def above_zero_up_to(most: float) -> Callable[[float], float]:
    """Return a check that refuses numbers not above 0 or above *most*."""

    def check(value: float) -> float:
        if not 0 < value <= most:
            raise typer.BadParameter(
                f"{value:g} is not a number above 0 and up to {most:g}"
            )
        return value

    return check


def zero_or_more(value: float | None) -> float | None:
    """Refuse all but finite numbers of 0 or more."""
    if value is not None and not 0 <= value < math.inf:
        raise typer.BadParameter(f"{value:g} is not a number of 0 or more")
    return value


# Output


def write_out(context: CliContext, text: str) -> None:
    """Write *text* to standard output, now.

    Raises:
        typer.Exit: The reader of a pipe has gone; quietly.
        CannotWriteError: Its encoding lacks a character; none was written.
        OSError: It cannot be written.
    """
    try:
        _write_whole(context.stdout, text)
    except BrokenPipeError as error:
        raise typer.Exit(PIPE_CLOSED) from error
    except UnicodeEncodeError as error:
        raise CannotWriteError(
            f"standard output is {error.encoding} and cannot hold "
            f"{error.object[error.start]!a}; nothing was written. Use a UTF-8 "
            f"locale, or --out."
        ) from error


def _write_whole(stream: TextIO, text: str) -> None:
    """Write *text* to *stream*, all of it.

    Under PYTHONUNBUFFERED Python calls write(2) once: what that does not take, as a
    disk fills up or a reader goes away, is lost without an error.
    """
    unbuffered = getattr(stream, "buffer", None)
    if not isinstance(unbuffered, io.RawIOBase):
        stream.write(text)
        stream.flush()
        return
    left = memoryview(text.encode(stream.encoding, stream.errors or "strict"))
    while left:
        left = left[unbuffered.write(left) or 0 :]


def json_text(
    record: object, *, indent: int | None = None, allow_nan: bool = True
) -> str:
    """Return *record*, of dataclasses, enums and containers, as JSON and a line break.

    msgspec takes it apart; Python writes it, because its numbers and escapes are what
    programs have read so far, and msgspec's differ (``1e-7`` for ``1e-07``).

    Raises:
        ValueError: A number is not finite, and *allow_nan* not given.
    """
    import msgspec  # noqa: PLC0415 - few commands write JSON

    plain = msgspec.to_builtins(record, str_keys=True, enc_hook=_plain)
    return json.dumps(plain, indent=indent, allow_nan=allow_nan) + "\n"


def _plain(value: object) -> object:
    """Return a number of NumPy as one of Python."""
    if isinstance(value, float):
        return float(value)
    raise NotImplementedError


def show_anew(
    context: CliContext, show: "Callable[[], RenderableType]", *, every_s: float
) -> None:
    """Show the screen of *show* anew every *every_s* seconds, until interrupted."""
    from rich.live import Live  # noqa: PLC0415 - only where it is seen

    # Our own clock refreshes, so that nothing is drawn while files are read.
    with Live(console=context.watched(), auto_refresh=False, screen=False) as live:
        try:
            while True:
                live.update(_shown(show), refresh=True)
                context.sleep(every_s)
        except KeyboardInterrupt:
            return


def _shown(show: "Callable[[], RenderableType]") -> "RenderableType":
    """Return the screen of *show*, or why there is none just now."""
    try:
        return show()
    except TryLaterError as error:
        return error_line(error)


def rendered(context: CliContext, *parts: "RenderableType") -> str:
    """Return *parts*, one below the other; lines of texts are not broken."""
    console = context.out()
    with console.capture() as captured:
        for part in parts:
            console.print(part, soft_wrap=isinstance(part, str))
    return captured.get()


def print_out(context: CliContext, screen: "RenderableType") -> None:
    """Write *screen* to standard output, whole."""
    console = context.out()
    with console.capture() as captured:
        console.print(screen, crop=False)
    write_out(context, captured.get())


# Words

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_FEW = 10
"""Below this count of a unit the next smaller unit is shown too."""


def age_text(seconds: float) -> str:
    """Return *seconds* roughly, such as ``45 s``, ``2 min 5 s`` or ``13 h``."""
    left = max(0, int(seconds))
    for number, (size, unit) in enumerate(_UNITS):
        if left >= size:
            count, rest = divmod(left, size)
            smaller = _UNITS[number + 1 :][:1] if count < _FEW else ()
            extra = [f"{rest // s} {u}" for s, u in smaller if rest >= s]
            return " ".join([f"{count} {unit}", *extra])
    return "0 s"


def short_age(seconds: float) -> str:
    """Return *seconds* in one unit, such as ``45 s`` or ``2 min``."""
    count, unit, *_ = age_text(seconds).split(" ")
    return f"{count} {unit}"


def ago(time_s: float, now_s: float) -> str:
    """Return how long before *now_s* *time_s* was."""
    return f"{age_text(now_s - time_s)} ago"


def clock_text(time_s: float) -> str:
    """Return *time_s* as a date and time of the day in UTC, to the second.

    Times outside of the calendar are shown as a number.
    """
    try:
        return f"{datetime.fromtimestamp(time_s, tz=UTC):%Y-%m-%d %H:%M:%S}Z"
    except (OverflowError, ValueError, OSError):
        return f"{time_s:g}"


def nodes_text(nodes: int) -> str:
    """Return ``1 node``, ``3 nodes`` or ``no node``."""
    return counted(nodes, "node") if nodes else "no node"


def nodes_named(names: Iterable[str]) -> str:
    """Return ``n[1-3]``, or a plain list where a name has no such form."""
    from slurm.records import collapse  # noqa: PLC0415 - `--version` must be cheap

    names = tuple(names)
    try:
        return one_line(collapse(names))
    except ValueError:
        return one_line(", ".join(names))


# Errors


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
"""A shell's exit code for a program that SIGPIPE ended."""

EXPECTED = (
    FreeTrainError,
    LogError,
    MilpError,
    SlurmError,
    typer.TyperException,
    OSError,
    MemoryError,
)
"""Errors that become one line; any other is a defect and shows a traceback."""

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
"""Codes of errors that are no FreeTrainError; the first that fits counts."""


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
    return one_line(" ".join([str(error), *getattr(error, "__notes__", ())]))


def _remedy(error: UnreadableLogError) -> str:
    if error.can_skip:
        return "Mend the line, or pass over bad lines with --skip-bad N."
    return "Check that the file is complete and is the log you mean."
