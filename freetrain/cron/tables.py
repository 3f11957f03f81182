"""What can go wrong with regular ticks, by what the user can do about it.

FreeTrainError
├── CronUnavailableError 69  the program is not there, or is not allowed to us
├── CronChangedError     75  somebody else was editing; ask again
├── CronUnreadableError  65  our own marks in the table are torn; mend it by hand
└── CronUnfitError       78  a path or an interval that this kind cannot hold
"""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from freetrain.errors import (
    BadConfigurationError,
    BadDataError,
    FreeTrainError,
    TryLaterError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


# ----------------------------------------------------------------------
# What can go wrong with regular ticks, by what the user can do about it.


class CronUnavailableError(FreeTrainError):
    """The program that keeps the table is missing, refuses us, or does not answer."""

    exit_code = 69


class CronChangedError(TryLaterError):
    """The table changed while we were about to write it."""


class CronUnreadableError(BadDataError):
    """The table has our marks in an order that we never wrote."""


class CronUnfitError(BadConfigurationError):
    """A path, or an interval, that cannot be written into such a table."""


# ----------------------------------------------------------------------
# Our block in somebody's table: found by its marks, everything else left alone.

_WORDS = "freetrain cron install"


@dataclass(frozen=True, slots=True)
class Block:
    """The lines of one state directory, between two comments.

    Attributes:
        mark: What tells it from the blocks of other state directories.
        lines: What stands between, without line ends.
    """

    mark: str
    lines: tuple[str, ...] = ()

    @property
    def first(self) -> bytes:
        """The comment before."""
        return f"# >>> freetrain {self.mark}: from `{_WORDS}` >>>".encode()

    @property
    def last(self) -> bytes:
        """The comment after."""
        return f"# <<< freetrain {self.mark} <<<".encode()

    def __bytes__(self) -> bytes:
        """Write it whole, with line ends."""
        inside = (line.encode("utf-8", "surrogateescape") for line in self.lines)
        return b"".join(line + b"\n" for line in (self.first, *inside, self.last))


def put(table: bytes, block: Block) -> bytes:
    """Return *table* with *block* in place of an earlier one, or at its end.

    Raises:
        CronUnreadableError: Its marks are torn.
    """
    found = _spans(table, block)
    if not found:
        joint = b"" if not table or table.endswith(b"\n") else b"\n"
        return table + joint + bytes(block)
    start, end = found[0]
    rest = without(table[end:], block)
    return table[:start] + bytes(block) + rest


def without(table: bytes, block: Block) -> bytes:
    """Return *table* without any block of the same mark.

    Raises:
        CronUnreadableError: Its marks are torn.
    """
    kept, at = [], 0
    for start, end in _spans(table, block):
        kept.append(table[at:start])
        at = end
    return b"".join((*kept, table[at:]))


def lines_between(table: bytes, mark: str) -> tuple[str, ...]:
    """Return the lines of the block *mark*, none where there is no such block.

    Raises:
        CronUnreadableError: Its marks are torn.
    """
    for start, end in _spans(table, Block(mark)):
        inside = table[start:end].decode("utf-8", "surrogateescape").splitlines()
        return tuple(inside[1:-1])
    return ()


def _spans(table: bytes, block: Block) -> list[tuple[int, int]]:
    """Return from where to where the block stands; twice only if somebody copied."""
    marks = re.compile(
        rb"^(?:(%s)|%s)(?:\n|\Z)" % (re.escape(block.first), re.escape(block.last)),
        re.MULTILINE,
    )
    spans, start = [], None
    for found in marks.finditer(table):
        if (found[1] is not None) != (start is None):
            break
        if start is None:
            start = found.start()
        else:
            spans.append((start, found.end()))
            start = None
    else:
        if start is None:
            return spans
    raise CronUnreadableError(
        f"the lines of FreeTrain in your table begin or end without their other mark "
        f"({block.last.decode()}). Nothing was changed; remove them by hand (for "
        f"example with `crontab -e`), then ask again."
    )


# ----------------------------------------------------------------------
# The command that a table starts, as words and as one line of a shell.

LOG = "cron.log"
"""What the tick says to cron, in the state directory."""

MARK_CHARACTERS = 10

_SECRET = "SLURM_JWT"  # noqa: S105 -- the name of a variable, and kept out


@dataclass(frozen=True, slots=True, kw_only=True)
class TickCall:
    """A tick as something else than the user starts it: nothing is left to find.

    Attributes:
        python: Absolute path of the Python that runs us.
        state: The state directory.
        config: The configuration's file; None for the defaults.
        variables: The whole environment, PATH and HOME among it.
        uid: The user's number.
    """

    python: Path
    state: Path
    config: Path | None
    variables: tuple[tuple[str, str], ...]
    uid: int

    @property
    def mark(self) -> str:
        """What tells this state directory's entries from another's, ten letters."""
        digest = hashlib.sha256(bytes(self.state)).hexdigest()
        return digest[:MARK_CHARACTERS]

    @property
    def log(self) -> Path:
        """Where its output is appended."""
        return self.state / LOG

    def jitter_s(self, every_s: int) -> int:
        """Return this user's own second within *every_s*, always the same.

        Cron starts everybody's commands in the same second; slurmctld should not
        get everybody's questions in the same one.
        """
        digest = hashlib.sha256(f"{self.uid}:".encode() + bytes(self.state)).digest()
        return int.from_bytes(digest[:4]) % every_s

    def argv(self, *, stays_s: int, delay_s: int = 0) -> tuple[str, ...]:
        """Return the words that run it, without anything of the caller's environment.

        A crontab may set SHELL, PATH or HOME before our line to anything at all.

        Args:
            stays_s: For how long it may follow itself up.
            delay_s: How long to sleep first.

        Raises:
            CronUnfitError: A path holds what no table can.
        """
        follow_up = ("--follow-up", f"{stays_s}s")
        tick = [str(self.python), "-P", "-m", "freetrain", "tick", *follow_up]
        if self.config is not None:
            tick += ["--config", str(self.config)]
        wait = f"sleep {delay_s}; " if delay_s else ""
        inner = f"{wait}exec {shlex.join(tick)} >>{shlex.quote(str(self.log))} 2>&1"
        pairs = [f"{name}={value}" for name, value in self.variables if name != _SECRET]
        words = ("/usr/bin/env", "-i", *pairs, "/bin/sh", "-c", inner)
        for word in words:
            _check_call(word)
        return words


def _check_call(word: str) -> None:
    """Refuse what would end a line, or what crons and shells read differently."""
    if not word.isprintable() or "\\" in word or "!" in word:
        raise CronUnfitError(
            f"{word[:200]!a} cannot stand in a table of regular commands: it holds a "
            f"backslash, an exclamation mark, or a character that cannot be printed. "
            f"Nothing was installed; choose other paths, or run `freetrain tick` by "
            f"other means."
        )


# ----------------------------------------------------------------------
# The kinds of tables, and the one that fits a machine.


class Kind(StrEnum):
    """Who starts the ticks."""

    CRONTAB = "crontab"
    SYSTEMD = "systemd"
    SCRONTAB = "scrontab"


PROGRAM = {
    Kind.CRONTAB: "crontab",
    Kind.SYSTEMD: "systemctl",
    Kind.SCRONTAB: "scrontab",
}
"""What each needs; in order of preference."""


class Found(StrEnum):
    """What is installed, beside what would be."""

    NOTHING = "nothing"
    SAME = "the same"
    OTHER = "another"  # with another interval, or by an older release


def fitting(programs: Programs) -> Kind:
    """Return the first kind whose program is here.

    Raises:
        CronUnavailableError: None is.
    """
    for kind, program in PROGRAM.items():
        if programs.find(program):
            return kind
    wanted = ", ".join(PROGRAM.values())
    raise CronUnavailableError(
        f"none of {wanted} is on the PATH; nothing was installed. Ask for cron on this "
        f"login node, or run `freetrain tick` from a loop that sleeps a minute."
    )


# ----------------------------------------------------------------------
# How often: intervals that a crontab can hold, as its five fields and a delay.

MINUTE_S = 60
HOUR_S = 3_600
SHORTEST_S = 10
LONGEST_S = HOUR_S


@dataclass(frozen=True, slots=True)
class Entry:
    """One line's time.

    Attributes:
        fields: The five fields.
        delay_s: How long the command then sleeps.
    """

    fields: str
    delay_s: int


def entries(every_s: int, *, jitter_s: int) -> tuple[Entry, ...]:
    """Return the lines that start something every *every_s*, *jitter_s* late.

    Below a minute there are several lines, which sleep to their own second.

    Args:
        every_s: 10, 12, 15, 20 or 30, or minutes that divide the hour, in seconds.
        jitter_s: 0 or more, less than *every_s*.

    Raises:
        CronUnfitError: An interval that a crontab keeps only roughly.
    """
    if every_s < MINUTE_S:
        _check_times(every_s >= SHORTEST_S and MINUTE_S % every_s == 0, every_s)
        starts = range(jitter_s, MINUTE_S, every_s)
        return tuple(Entry("* * * * *", delay_s) for delay_s in starts)
    _check_times(every_s % MINUTE_S == 0 and HOUR_S % every_s == 0, every_s)
    minute, delay_s = divmod(jitter_s, MINUTE_S)
    return (Entry(f"{_minutes(minute, every_s // MINUTE_S)} * * * *", delay_s),)


def _minutes(first: int, step: int) -> str:
    if step == 1:
        return "*"
    if step == MINUTE_S:
        return str(first)
    return f"{first}-59/{step}"


def _check_times(is_good: object, every_s: int) -> None:
    if not is_good:
        raise CronUnfitError(
            f"a crontab cannot start something every {every_s} s. Nothing was "
            f"installed; use 10s, 15s, 20s, 30s, or minutes that divide the hour "
            f"(1min, 2min, 5min, …)."
        )


# ----------------------------------------------------------------------
# What stands in each kind of table, made without touching one.

LONGEST_COMMAND_BYTES = 990
"""Vixie's cron, which Debian and others ship, takes commands of up to 998 bytes."""

_BEFORE_NEXT_S = 5
"""A tick does not follow itself up when the next is so near."""

_SCRON_LIMIT_MIN = 10
_SCRON_STAYS_S = 20
"""A tick that is a job holds a part of a node, which others may wait for."""


def crontab_block(call: TickCall, *, every_s: int) -> Block:
    """Return the block for a crontab.

    Raises:
        CronUnfitError: The interval, a path or the length does not fit.
    """
    lines = []
    for entry in entries(every_s, jitter_s=call.jitter_s(every_s)):
        # cron turns a bare % into a line break, whatever stands around it
        words = call.argv(stays_s=_stays_s(every_s), delay_s=entry.delay_s)
        command = shlex.join(words).replace("%", r"\%")
        _check_length(command)
        lines.append(f"{entry.fields} {command}")
    return Block(call.mark, tuple(lines))


def scrontab_block(call: TickCall, *, every_s: int) -> Block:
    """Return the block for a scrontab; its ticks are small jobs on compute nodes.

    Raises:
        CronUnfitError: The interval is below a minute, or a path does not fit.
    """
    if every_s < MINUTE_S:
        raise CronUnfitError(
            f"a scrontab cannot start something every {every_s} s. Nothing was "
            f"installed; use a minute or more."
        )
    (entry,) = entries(every_s, jitter_s=call.jitter_s(every_s))
    stays_s = min(_stays_s(every_s), _SCRON_STAYS_S)
    command = shlex.join(call.argv(stays_s=stays_s, delay_s=entry.delay_s))
    if "$" in command:  # scrontab puts its own variables in, quoted or not
        raise CronUnfitError(
            f"{call.state} or another path holds a $, which scrontab expands. Nothing "
            f"was installed; choose other paths."
        )
    options = (
        "--job-name=freetrain-tick --nodes=1 --ntasks=1",
        f"--time={_SCRON_LIMIT_MIN} --output=/dev/null",
    )
    lines = (*(f"#SCRON {words}" for words in options), f"{entry.fields} {command}")
    return Block(call.mark, lines)


def unit_name(call: TickCall) -> str:
    """Return the name of the systemd units, without their suffix."""
    return f"freetrain-{call.mark}"


def unit_files(call: TickCall, *, every_s: int) -> Mapping[str, str]:
    """Return the systemd user units by file name.

    Raises:
        CronUnfitError: The interval is too short or long, or a path does not fit.
    """
    if not SHORTEST_S <= every_s <= LONGEST_S:
        raise CronUnfitError(
            f"a tick every {every_s} s is not offered. Nothing was installed; use "
            f"{SHORTEST_S}s to 60min."
        )
    name = unit_name(call)
    words = " ".join(map(_unit_word, call.argv(stays_s=_stays_s(every_s))))
    service = (
        "[Unit]",
        "Description=FreeTrain: one tick of the broker",
        "[Service]",
        "Type=oneshot",
        f"ExecStart={words}",
    )
    timer = (
        "[Unit]",
        "Description=FreeTrain: ticks of the broker",
        "[Timer]",
        f"OnActiveSec={call.jitter_s(every_s)}s",
        f"OnUnitActiveSec={every_s}s",
        "AccuracySec=1s",
        "[Install]",
        "WantedBy=timers.target",
    )
    return {
        f"{name}.service": "\n".join(service) + "\n",
        f"{name}.timer": "\n".join(timer) + "\n",
    }


def _stays_s(every_s: int) -> int:
    return every_s - _BEFORE_NEXT_S


def _unit_word(word: str) -> str:
    """Quote *word* for ExecStart, where % and $ mean something even in quotes.

    Source: systemd.service(5), "COMMAND LINES"; systemd.unit(5), "SPECIFIERS".
    """
    inside = word.replace("%", "%%").replace("$", "$$").replace('"', r"\"")
    return f'"{inside}"'


def _check_length(command: str) -> None:
    length = len(command.encode("utf-8", "surrogateescape"))
    if length > LONGEST_COMMAND_BYTES:
        raise CronUnfitError(
            f"the command is {length} bytes long, and cron takes "
            f"{LONGEST_COMMAND_BYTES}. Nothing was installed; use --kind systemd, or "
            f"shorter paths."
        )


# ----------------------------------------------------------------------
# Running the programs that keep tables: an argument list, some input, a time-out.

TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Said:
    """What a program answered.

    Attributes:
        status: Its exit status; 0 is success.
        out: Its standard output.
        complaint: Its standard error.
    """

    status: int
    out: bytes
    complaint: str


class Programs(Protocol):
    """Finds and runs programs."""

    def find(self, name: str) -> Path | None:
        """Return where the program *name* is, None where it is not."""
        ...

    def run(self, argv: Sequence[str], *, given: bytes = b"") -> Said:
        """Run *argv* without a shell, with *given* as its input, to its end.

        Raises:
            CronUnavailableError: It cannot be started or does not end.
        """
        ...


class RealPrograms:
    """Those of this machine."""

    def __init__(
        self, environ: Mapping[str, str], *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Take the environment that programs are found by and get."""
        self._environ = dict(environ)
        self._timeout_s = timeout_s

    def find(self, name: str) -> Path | None:
        """Return where the program *name* is, None where it is not."""
        found = shutil.which(name, path=self._environ.get("PATH", ""))
        return Path(found).absolute() if found else None

    def run(self, argv: Sequence[str], *, given: bytes = b"") -> Said:
        """Run *argv* without a shell, with *given* as its input, to its end."""
        program = str(self.find(argv[0]) or argv[0])
        try:
            done = subprocess.run(  # noqa: S603 -- a list, never a shell
                [program, *argv[1:]],
                input=given,
                capture_output=True,
                check=False,
                env=self._environ | {"LC_ALL": "C"},
                timeout=self._timeout_s,
            )
        except subprocess.TimeoutExpired as error:
            raise CronUnavailableError(
                f"`{argv[0]}` did not end within {self._timeout_s:g} s and was killed; "
                f"whether it had an effect is unknown. Look with `freetrain cron show`."
            ) from error
        except OSError as error:
            raise CronUnavailableError(
                f"`{argv[0]}` cannot be started: {error.strerror}. Nothing was "
                f"changed; see whether you may execute it."
            ) from error
        complaint = done.stderr.decode("utf-8", "replace")
        return Said(done.returncode, done.stdout, complaint)
