"""The command of a tick, the programs that keep tables, and what goes wrong there.

FreeTrainError
├── CronUnavailableError 69  the program is not there, or is not allowed to us
├── CronChangedError     75  the table changed meanwhile; ask again
├── CronUnreadableError  65  our own marks in the table are torn; mend it by hand
└── CronUnfitError       78  a path or an interval that this kind cannot hold
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.errors import (
    BadConfigurationError,
    BadDataError,
    FreeTrainError,
    TryLaterError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class CronUnavailableError(FreeTrainError):
    """The program that keeps the table is missing, refuses us, or does not answer."""

    exit_code = 69


class CronChangedError(TryLaterError):
    """The table changed while we were about to write it."""


class CronUnreadableError(BadDataError):
    """The table has our marks in an order that we never wrote."""


class CronUnfitError(BadConfigurationError):
    """A path, or an interval, that cannot be written into such a table."""


LOG = "cron.log"
"""What the tick says to cron, in the state directory."""


MARK_CHARACTERS = 10
_SECRET = "SLURM_JWT"  # noqa: S105 -- the name of a variable, and kept out


@dataclass(frozen=True, slots=True, kw_only=True)
class TickCall:
    """The command that starts a tick, with all paths and variables spelled out.

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
        """Ten letters that tell this state directory's entries from another's."""
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
            _check_word(word)
        return words


def _check_word(word: str) -> None:
    """Refuse what would end a line, or what crons and shells read differently."""
    if not word.isprintable() or "\\" in word or "!" in word:
        raise CronUnfitError(
            f"{word[:200]!a} cannot stand in a table of regular commands: it holds a "
            f"backslash, an exclamation mark, or a character that cannot be printed. "
            f"Nothing was installed; choose other paths, or run `freetrain tick` by "
            f"other means."
        )


TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program answered.

    Attributes:
        status: Its exit status; 0 is success.
        out: Its standard output.
        complaint: Its standard error.
    """

    status: int
    out: bytes
    complaint: str


class Programs:
    """Finds and runs the programs of this machine."""

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

    def run(self, argv: Sequence[str], *, given: bytes = b"") -> Answer:
        """Run *argv* without a shell, with *given* as its input, to its end.

        Raises:
            CronUnavailableError: It cannot be started or does not end.
        """
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
        return Answer(done.returncode, done.stdout, complaint)
