"""The command that a table starts, as words and as one line of a shell."""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.cron.errors import CronUnfitError

if TYPE_CHECKING:
    from pathlib import Path

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
            _check(word)
        return words


def _check(word: str) -> None:
    """Refuse what would end a line, or what crons and shells read differently."""
    if not word.isprintable() or "\\" in word or "!" in word:
        raise CronUnfitError(
            f"{word[:200]!a} cannot stand in a table of regular commands: it holds a "
            f"backslash, an exclamation mark, or a character that cannot be printed. "
            f"Nothing was installed; choose other paths, or run `freetrain tick` by "
            f"other means."
        )
