"""Regular ticks of a site, kept by crontab, systemd or scrontab.

``back_ends_of`` returns what ``freetrain cron`` uses: every back end, for the command
of a site's tick (``TickCall``). A back end is one class, found by its ``Kind`` in
``BACK_ENDS``: it says what it writes where, and how it replaces and removes it.

FreeTrainError
├── CronUnavailableError 69  the program is not there, or is not allowed to us
├── CronChangedError     75  the table changed meanwhile; ask again
├── CronUnreadableError  65  our own marks in the table are torn; mend it by hand
└── CronUnfitError       78  a path or an interval that this kind cannot hold
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.errors import (
    BadConfigurationError,
    BadDataError,
    CannotWriteError,
    FreeTrainError,
    TryLaterError,
)
from freetrain.state.files import StateDir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from subprocess import CompletedProcess

    from freetrain.config.site import Site


class CronUnavailableError(FreeTrainError):
    """The program that keeps the table is missing, refuses us, or does not answer."""

    exit_code = 69


class CronChangedError(TryLaterError):
    """The table changed while we were about to write it."""


class CronUnreadableError(BadDataError):
    """The table has our marks in an order that we never wrote."""


class CronUnfitError(BadConfigurationError):
    """A path, or an interval, that cannot be written into such a table."""


TIMEOUT_S = 30.0


class Programs:
    """Finds and runs the programs of this machine."""

    def __init__(
        self, environ: Mapping[str, str], *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Take the environment of programs; its PATH says where they are."""
        self._environ = dict(environ)
        self._timeout_s = timeout_s

    def find(self, name: str) -> Path | None:
        """Return where the program *name* is, None where it is not."""
        found = shutil.which(name, path=self._environ.get("PATH", ""))
        return Path(found).absolute() if found else None

    def run(
        self, argv: Sequence[str], *, given: bytes = b""
    ) -> CompletedProcess[bytes]:
        """Run *argv* without a shell, with *given* as its input, to its end.

        Raises:
            CronUnavailableError: It cannot be started or does not end.
        """
        program = str(self.find(argv[0]) or argv[0])
        try:
            return subprocess.run(  # noqa: S603 -- a list, never a shell
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


MARK_CHARACTERS = 10
_TICK = "-m freetrain tick"
_SECRET = "SLURM_JWT"  # noqa: S105 -- the name of a variable, and kept out


@dataclass(frozen=True, slots=True, kw_only=True)
class TickCall:
    """The command that starts a tick, with all paths and variables spelled out.

    Attributes:
        python: Absolute path of the Python that has FreeTrain.
        state: The state directory.
        config: The configuration's file; None for the defaults.
        variables: The whole environment, PATH and HOME among it.
    """

    python: Path
    state: Path
    config: Path | None
    variables: tuple[tuple[str, str], ...]
    uid: int

    @property
    def mark(self) -> str:
        """Ten letters that distinguish the entries of this state directory."""
        digest = hashlib.sha256(bytes(self.state)).hexdigest()
        return digest[:MARK_CHARACTERS]

    @property
    def log(self) -> Path:
        """Where its output is appended."""
        return StateDir(self.state).cron_log

    def jitter_s(self, every_s: int) -> int:
        """Return this user's own second within *every_s*, always the same.

        Cron starts the commands of all users in the same second; so many requests at
        once would be hard on slurmctld.
        """
        digest = hashlib.sha256(f"{self.uid}:".encode() + bytes(self.state)).digest()
        return int.from_bytes(digest[:4]) % every_s

    def argv(self, *, stays_s: int, delay_s: int = 0) -> tuple[str, ...]:
        """Return the words of the command, which sleeps *delay_s* first.

        It gets nothing of its caller's environment: a crontab may set SHELL, PATH or
        HOME before our line to anything at all. For *stays_s* it may follow itself up.

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
            _check_word(word)
        return words


def _check_word(word: str) -> None:
    """Refuse characters that end a line, or that crons and shells read differently."""
    if not word.isprintable() or "\\" in word or "!" in word:
        raise CronUnfitError(
            f"{word[:200]!a} cannot stand in a table of regular commands: it holds a "
            f"backslash, an exclamation mark, or a character that cannot be printed. "
            f"Nothing was installed; choose other paths, or run `freetrain tick` by "
            f"other means."
        )


class Kind(StrEnum):
    """The name of a back end."""

    CRONTAB = "crontab"
    SYSTEMD = "systemd"
    SCRONTAB = "scrontab"


class Found(StrEnum):
    """How the installed entry compares with the one that ``install`` would write."""

    NOTHING = "nothing"
    SAME = "the same"
    OTHER = "another"  # with another interval, or by an older release


class BackEnd(ABC):
    """Writes the entry that makes ticks run, and removes it; needs one ``program``."""

    program: str

    def __init__(self, call: TickCall, programs: Programs, units: Path) -> None:
        """Take the tick's command, programs, and the folder of systemd's user units."""
        self.call = call
        self._programs = programs
        self._units = units

    @property
    def is_here(self) -> bool:
        """Whether its program is on this machine."""
        return self._programs.find(self.program) is not None

    @abstractmethod
    def preview(self, *, every_s: int) -> str:
        """Return the text that ``install`` would write; change nothing.

        Raises:
            CronUnfitError: The interval or a path does not fit.
        """

    @abstractmethod
    def install(self, *, every_s: int) -> bool:
        """Write the entry, in place of an earlier one; return whether it is new.

        Raises:
            FreeTrainError: It could not be written; the message says how far it is.
        """

    @abstractmethod
    def remove(self) -> bool:
        """Remove the entry; return whether there was one.

        Raises:
            FreeTrainError: It could not be removed.
        """

    @abstractmethod
    def installed(self) -> tuple[str, ...]:
        """Return the lines that are installed; none without an entry.

        Raises:
            FreeTrainError: They cannot be read.
        """

    @abstractmethod
    def is_same(self, *, every_s: int) -> bool:
        """Return whether the installed entry is the one ``install`` would write."""

    @abstractmethod
    def problem(self) -> str:
        """Return why the installed entry starts no ticks; empty where it does.

        This asks the program that keeps it. Whether ticks really come only the age of
        the last one tells: a crontab is kept where no cron runs, too.

        Raises:
            FreeTrainError: The program does not answer.
        """

    def compare(self, *, every_s: int) -> Found:
        """Compare the installed entry with the one that ``install`` would write.

        Raises:
            FreeTrainError: The table cannot be read, or the interval does not fit.
        """
        if not self.installed():
            return Found.NOTHING
        return Found.SAME if self.is_same(every_s=every_s) else Found.OTHER


_BEFORE_NEXT_S = 5


def _stays_s(every_s: int) -> int:
    """Return for how long a tick follows itself up: until shortly before the next."""
    return every_s - _BEFORE_NEXT_S


_NO_TABLE = re.compile(r"no crontab for|can't open .*No such file", re.IGNORECASE)
_SHOWN_CHARACTERS = 300


class _Table(BackEnd):
    """One of the user's tables, kept by a program such as ``crontab``."""

    @abstractmethod
    def block(self, *, every_s: int) -> TableBlock:
        """Return the block for this table.

        Raises:
            CronUnfitError: The interval, a path or the length does not fit.
        """

    def preview(self, *, every_s: int) -> str:
        """Return the text of the block."""
        return bytes(self.block(every_s=every_s)).decode("utf-8", "surrogateescape")

    def install(self, *, every_s: int) -> bool:
        """Put the block into the table."""
        block = self.block(every_s=every_s)
        return self._change(lambda table: put(table, block))

    def remove(self) -> bool:
        """Take the block out of the table."""
        block = TableBlock(self.call.mark)
        return self._change(lambda table: without(table, block))

    def installed(self) -> tuple[str, ...]:
        """Return the lines of our block."""
        return lines_between(self.read(), self.call.mark)

    def is_same(self, *, every_s: int) -> bool:
        """Compare the lines of our block."""
        return self.installed() == self.block(every_s=every_s).lines

    def problem(self) -> str:
        """Look for a line of our block that starts a tick of this installation."""
        lines = [line for line in self.installed() if not line.startswith("#")]
        ticks = [line for line in lines if _TICK in line]
        if not ticks:
            return f"its lines in your {self.program} start no tick"
        python = str(self.call.python).replace("%", r"\%")
        if not any(python in line for line in ticks):
            return f"it starts another installation than {self.call.python}"
        return ""

    def read(self) -> bytes:
        """Return the table as it is, empty where there is none.

        Raises:
            CronUnavailableError: It cannot be read: no program, not allowed.
        """
        answer = self._run("-l")
        if answer.returncode == 0:
            return answer.stdout
        # scrontab says so on its standard output, cron on its standard error
        if _NO_TABLE.search((answer.stderr + answer.stdout).decode("utf-8", "replace")):
            return b""
        raise self._refused(answer)

    def _change(self, edit: Callable[[bytes], bytes]) -> bool:
        """Replace the table by what *edit* returns; return whether it changed.

        Raises:
            CronUnavailableError: The table cannot be read or replaced.
            CronChangedError: It was changed by another program in between.
        """
        before = self.read()
        after = edit(before)
        if after == before:
            return False
        if self.read() != before:
            raise CronChangedError(
                f"your {self.program} changed while it was being edited. Nothing was "
                f"written; ask again."
            )
        self._write(after)
        if self.read() != after:
            raise CronChangedError(
                f"your {self.program} is not what was just written: another program "
                f"wrote it too, or the program changed it. Look at it with "
                f"`{self.program} -l`, and ask again."
            )
        return True

    def _write(self, table: bytes) -> None:
        answer = self._run("-", given=table) if table else self._run("-r")
        if answer.returncode != 0:
            raise self._refused(answer)

    def _run(self, *words: str, given: bytes = b"") -> CompletedProcess[bytes]:
        if self._programs.find(self.program) is None:
            raise CronUnavailableError(
                f"there is no program `{self.program}` on the PATH; nothing was "
                f"changed. Choose another --kind, or ask for cron on this host."
            )
        return self._programs.run((self.program, *words), given=given)

    def _refused(self, answer: CompletedProcess[bytes]) -> CronUnavailableError:
        said = (answer.stderr or answer.stdout).decode("utf-8", "replace")
        words = " ".join(said.split())
        shown = words[:_SHOWN_CHARACTERS] or "it said nothing"
        return CronUnavailableError(
            f"`{self.program}` refused: {shown}. "
            f"Nothing was changed. Where cron is closed to you (cron.allow), ask for "
            f"it or choose another --kind."
        )


@dataclass(frozen=True, slots=True)
class TableBlock:
    """The lines of one state directory in a table, between two comments.

    Attributes:
        mark: ``TickCall.mark``; the blocks of other state directories have others.
        lines: The lines between the comments, without line ends.
    """

    mark: str
    lines: tuple[str, ...] = ()

    @property
    def first(self) -> bytes:
        """The comment before."""
        return (
            f"# >>> freetrain {self.mark}: from `freetrain cron install` >>>".encode()
        )

    @property
    def last(self) -> bytes:
        """The comment after."""
        return f"# <<< freetrain {self.mark} <<<".encode()

    def __bytes__(self) -> bytes:
        """Return the block as bytes, with line ends."""
        inside = (line.encode("utf-8", "surrogateescape") for line in self.lines)
        return b"".join(line + b"\n" for line in (self.first, *inside, self.last))


def put(table: bytes, block: TableBlock) -> bytes:
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


def without(table: bytes, block: TableBlock) -> bytes:
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
    for start, end in _spans(table, TableBlock(mark)):
        inside = table[start:end].decode("utf-8", "surrogateescape").splitlines()
        return tuple(inside[1:-1])
    return ()


def _spans(table: bytes, block: TableBlock) -> list[tuple[int, int]]:
    """Return where the block begins and ends; several spans only if it was copied."""
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


MINUTE_S = 60
HOUR_S = 3_600
SHORTEST_S = 10
LONGEST_S = HOUR_S


def start_times(every_s: int, *, jitter_s: int) -> tuple[tuple[str, int], ...]:
    """Return each line's five fields and its delay, to start every *every_s* seconds.

    Below a minute there are several lines, which sleep to their own second.

    Args:
        every_s: 10, 12, 15, 20 or 30, or minutes that divide the hour, in seconds.
        jitter_s: Seconds after the start of the interval, less than *every_s*.

    Raises:
        CronUnfitError: An interval that a crontab keeps only roughly.
    """
    if every_s < MINUTE_S:
        _check_interval(every_s >= SHORTEST_S and MINUTE_S % every_s == 0, every_s)
        starts = range(jitter_s, MINUTE_S, every_s)
        return tuple(("* * * * *", delay_s) for delay_s in starts)
    _check_interval(every_s % MINUTE_S == 0 and HOUR_S % every_s == 0, every_s)
    minute, delay_s = divmod(jitter_s, MINUTE_S)
    return ((f"{_minutes(minute, every_s // MINUTE_S)} * * * *", delay_s),)


def _minutes(first: int, step: int) -> str:
    if step == 1:
        return "*"
    if step == MINUTE_S:
        return str(first)
    return f"{first}-59/{step}"


def _check_interval(is_good: object, every_s: int) -> None:
    if not is_good:
        raise CronUnfitError(
            f"a crontab cannot start something every {every_s} s. Nothing was "
            f"installed; use 10s, 15s, 20s, 30s, or minutes that divide the hour "
            f"(1min, 2min, 5min, …)."
        )


LONGEST_COMMAND_BYTES = 990
"""Vixie's cron, which Debian and others ship, takes commands of up to 998 bytes."""


class Crontab(_Table):
    """The user's crontab."""

    program = "crontab"

    def block(self, *, every_s: int) -> TableBlock:
        """Return a line for each start in a minute, or one line."""
        call, lines = self.call, []
        for fields, delay_s in start_times(every_s, jitter_s=call.jitter_s(every_s)):
            # cron turns a bare % into a line break, whatever stands around it
            words = call.argv(stays_s=_stays_s(every_s), delay_s=delay_s)
            command = shlex.join(words).replace("%", r"\%")
            length = len(command.encode("utf-8", "surrogateescape"))
            if length > LONGEST_COMMAND_BYTES:
                raise CronUnfitError(
                    f"the command is {length} bytes long, and cron takes "
                    f"{LONGEST_COMMAND_BYTES}. Nothing was installed; use --kind "
                    f"systemd, or shorter paths."
                )
            lines.append(f"{fields} {command}")
        return TableBlock(call.mark, tuple(lines))


class Scrontab(_Table):
    """Slurm's crontab: its ticks are small jobs on compute nodes."""

    program = "scrontab"
    limit_min = 10
    stays_s = 20
    """A tick that is a job holds a part of a node, which others may wait for."""

    def block(self, *, every_s: int) -> TableBlock:
        """Return the options of a small job, and its line."""
        call = self.call
        if every_s < MINUTE_S:
            raise CronUnfitError(
                f"a scrontab cannot start something every {every_s} s. Nothing was "
                f"installed; use a minute or more."
            )
        times = start_times(every_s, jitter_s=call.jitter_s(every_s))
        ((fields, delay_s),) = times
        stays_s = min(_stays_s(every_s), self.stays_s)
        command = shlex.join(call.argv(stays_s=stays_s, delay_s=delay_s))
        if "$" in command:  # scrontab puts its own variables in, quoted or not
            raise CronUnfitError(
                f"{call.state} or another path holds a $, which scrontab expands. "
                f"Nothing was installed; choose other paths."
            )
        options = (
            "#SCRON --job-name=freetrain-tick --nodes=1 --ntasks=1",
            f"#SCRON --time={self.limit_min} --output=/dev/null",
        )
        return TableBlock(call.mark, (*options, f"{fields} {command}"))


_SHOWN = {
    "LoadState": {"loaded"},
    "UnitFileState": {"enabled"},
    "ActiveState": {"active"},
    "SubState": {"waiting", "running"},  # not "elapsed", which comes never again
    "NeedDaemonReload": {"no"},
}
"""What systemd must say of a timer at work, by property."""


class Systemd(BackEnd):
    """A user's systemd: a service and a timer, two small files in one folder."""

    program = "systemctl"

    @property
    def _timer(self) -> str:
        return f"freetrain-{self.call.mark}.timer"

    @property
    def _service(self) -> str:
        return f"freetrain-{self.call.mark}.service"

    def unit_files(self, *, every_s: int) -> Mapping[str, str]:
        """Return the text of the units by file name.

        Raises:
            CronUnfitError: The interval is too short or long, or a path does not fit.
        """
        if not SHORTEST_S <= every_s <= LONGEST_S:
            raise CronUnfitError(
                f"a tick every {every_s} s is not offered. Nothing was installed; use "
                f"{SHORTEST_S}s to 60min."
            )
        call = self.call
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
            self._service: "\n".join(service) + "\n",
            self._timer: "\n".join(timer) + "\n",
        }

    def preview(self, *, every_s: int) -> str:
        """Return both files, each under its path."""
        files = self.unit_files(every_s=every_s)
        parts = (f"# {self._units / name}\n{text}" for name, text in files.items())
        return "\n".join(parts)

    def install(self, *, every_s: int) -> bool:
        """Write the files that differ and start the timer.

        Where that fails, the files are put back as they were, or taken away.

        Raises:
            CannotWriteError: The folder cannot be written.
            CronUnavailableError: systemd did not follow.
        """
        files = self.unit_files(every_s=every_s)
        before = {name: self._read(name) for name in files}
        changed = self._changed(files)
        try:
            self._units.mkdir(parents=True, exist_ok=True)
            for name in changed:
                _replace(self._units / name, files[name])
            self._systemctl("daemon-reload")
            was_at_work = not changed and not self._timer_problem()
            self._systemctl("enable", "--now", self._timer)
        except OSError as error:
            self._put_back(before)
            raise _unwritable(self._units, error) from error
        except CronUnavailableError as error:
            self._put_back(before)
            raise CronUnavailableError(
                f"{error} The files in {self._units} are as they were before. Install "
                f"where your systemd is reachable, or choose another --kind."
            ) from error
        return not was_at_work

    def _put_back(self, before: Mapping[str, str]) -> None:
        """Leave the units as they were, as far as that is possible."""
        if not any(before.values()):
            with suppress(CronUnavailableError):
                self._systemctl("disable", "--now", self._timer)
        with suppress(OSError):
            for name, text in before.items():
                if text:
                    _replace(self._units / name, text)
                else:
                    (self._units / name).unlink(missing_ok=True)
        with suppress(CronUnavailableError):
            self._systemctl("daemon-reload")

    def remove(self) -> bool:
        """Stop the timer and remove the files.

        Raises:
            CannotWriteError: A file cannot be removed.
            CronUnavailableError: The files are gone, but systemd did not answer.
        """
        paths = [self._units / name for name in (self._timer, self._service)]
        there = [path for path in paths if path.exists()]
        if not there:
            return False
        try:
            self._systemctl("disable", "--now", self._timer)
            self._remove(there)
            self._systemctl("daemon-reload")
        except CronUnavailableError as error:
            self._remove(there)
            raise CronUnavailableError(
                f"{error} The files in {self._units} are removed. A timer that still "
                f"runs ends with your session; or, where systemd is reachable, run "
                f"`systemctl --user stop {self._timer}`."
            ) from error
        return True

    def _remove(self, paths: Iterable[Path]) -> None:
        try:
            for path in paths:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(self._units, error) from error

    def installed(self) -> tuple[str, ...]:
        """Return the lines of the timer."""
        return tuple(self._read(self._timer).splitlines())

    def is_same(self, *, every_s: int) -> bool:
        """Compare both files."""
        return not self._changed(self.unit_files(every_s=every_s))

    def problem(self) -> str:
        """Ask systemd for the timer, and whether it outlives the session."""
        return self._timer_problem() or self._end_of_session()

    def _timer_problem(self) -> str:
        said = self._systemctl("show", self._timer, f"--property={','.join(_SHOWN)}")
        pairs = (line.partition("=") for line in said.splitlines())
        state = {name: value for name, _, value in pairs}
        if not self._read(self._service):
            return f"{self._service} is missing"
        for name, wanted in _SHOWN.items():
            if state.get(name) not in wanted:
                found = state.get(name) or "not said"
                return f"systemd says of {self._timer}: {name} is {found}"
        if str(self.call.python) not in self._read(self._service):
            return f"it starts another installation than {self.call.python}"
        return ""

    def _end_of_session(self) -> str:
        """Return that ticks end with the user's session; empty where they do not."""
        if self._programs.find("loginctl") is None:
            return ""
        asked = ("loginctl", "show-user", str(self.call.uid), "--property=Linger")
        answer = self._programs.run(asked)
        if answer.stdout.strip() != b"Linger=no":
            return ""
        return "it ends when you log out, unless you run `loginctl enable-linger`"

    def _changed(self, files: Mapping[str, str]) -> list[str]:
        return [name for name, text in files.items() if self._read(name) != text]

    def _read(self, name: str) -> str:
        try:
            return (self._units / name).read_text("utf-8", "surrogateescape")
        except FileNotFoundError:
            return ""

    def _systemctl(self, *words: str) -> str:
        """Return what ``systemctl --user`` prints.

        Raises:
            CronUnavailableError: It failed, or there is none.
        """
        argv = ("systemctl", "--user", *words)
        answer = self._programs.run(argv)
        if answer.returncode != 0:
            said = answer.stderr.decode("utf-8", "replace")
            shown = " ".join(said.split())[:_SHOWN_CHARACTERS]
            raise CronUnavailableError(
                f"`{' '.join(argv)}` refused: {shown or 'it said nothing'}."
            )
        return answer.stdout.decode("utf-8", "replace")


def _unit_word(word: str) -> str:
    """Quote *word* for ExecStart, where % and $ mean something even in quotes.

    Source: systemd.service(5), "COMMAND LINES"; systemd.unit(5), "SPECIFIERS".
    """
    inside = word.replace("%", "%%").replace("$", "$$").replace('"', r"\"")
    return f'"{inside}"'


def _replace(path: Path, text: str) -> None:
    """Put *text* at *path*, whole or not at all."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, "utf-8", "surrogateescape")
    new.replace(path)


def _unwritable(folder: Path, error: OSError) -> CannotWriteError:
    return CannotWriteError(
        f"cannot write {folder}: {error.strerror}. Ticks are as they were before; make "
        f"it writable for you, or choose another --kind."
    )


BACK_ENDS: dict[Kind, type[BackEnd]] = {
    Kind.CRONTAB: Crontab,
    Kind.SYSTEMD: Systemd,
    Kind.SCRONTAB: Scrontab,
}
"""Every back end, in order of preference."""


def fitting(back_ends: Mapping[Kind, BackEnd]) -> Kind:
    """Return the first kind whose program is here.

    Raises:
        CronUnavailableError: None is.
    """
    for kind, back_end in back_ends.items():
        if back_end.is_here:
            return kind
    wanted = ", ".join(back_end.program for back_end in BACK_ENDS.values())
    raise CronUnavailableError(
        f"none of {wanted} is on the PATH; nothing was installed. Ask for cron on this "
        f"login node, or run `freetrain tick` from a loop that sleeps a minute."
    )


_SLURM_PROGRAMS = ("sbatch", "squeue", "scancel", "scontrol", "sdiag", "sinfo", "srun")
_SYSTEM_FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin")
_KEPT_VARIABLES = (
    "LD_LIBRARY_PATH",
    "SLURM_CONF",
    "SLURM_CONF_SERVER",
    "FREETRAIN_PYSLURM",
)
"""Variables that Slurm and Python may need, and the choice of Slurm's back end."""


def back_ends_of(
    site: Site,
    *,
    python: Path,
    environ: Mapping[str, str],
    uid: int,
    programs: Programs,
) -> dict[Kind, BackEnd]:
    """Return every back end for the ticks of *site*, in order of preference.

    *python* is the one that has FreeTrain; *environ* gives HOME and the variables that
    Slurm needs; *programs* finds Slurm's programs.

    Raises:
        CronUnfitError: HOME is not set.
    """
    home = environ.get("HOME", "")
    if not home.startswith("/"):
        raise CronUnfitError(
            "HOME is not set to an absolute path, and ticks need it. Nothing was "
            "changed; set HOME."
        )
    path = os.pathsep.join(_folders(programs))
    kept = ((name, environ[name]) for name in _KEPT_VARIABLES if environ.get(name))
    call = TickCall(
        python=python,
        state=site.state_directory,
        config=site.path,
        variables=(("HOME", home), ("PATH", path), ("LC_ALL", "C.UTF-8"), *kept),
        uid=uid,
    )
    configured = environ.get("XDG_CONFIG_HOME", "")
    base = Path(configured if configured.startswith("/") else f"{home}/.config")
    units = base / "systemd" / "user"
    return {kind: made(call, programs, units) for kind, made in BACK_ENDS.items()}


def _folders(programs: Programs) -> tuple[str, ...]:
    """Return where Slurm's programs are, then the system's folders, each once.

    The caller's whole PATH may be thousands of bytes; cron takes 998 in all.
    """
    found = (programs.find(name) for name in _SLURM_PROGRAMS)
    folders = [str(path.parent) for path in found if path is not None]
    return tuple(dict.fromkeys((*folders, *_SYSTEM_FOLDERS)))
