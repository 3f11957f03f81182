"""Running the programs that keep tables: an argument list, some input, a time-out."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from freetrain.cron.errors import CronUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
