"""What a check found: a verdict, what was seen, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.errors import FreeTrainError
from slurm.errors import SlurmError, SlurmUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

UNAVAILABLE = 69
MISCONFIGURED = 78


class Verdict(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: What was looked at.
        verdict: How it is.
        seen: What was seen; for SKIPPED why nothing was.
        advice: What to do, empty for nothing.
        exit_code: What the whole command exits with if this is bad.
    """

    name: str
    verdict: Verdict
    seen: str
    advice: str = ""
    exit_code: int = MISCONFIGURED


def ok(name: str, seen: str) -> Finding:
    """Return that all is well."""
    return Finding(name, Verdict.OK, seen)


def warn(name: str, seen: str, advice: str) -> Finding:
    """Return that it works, but not as well as it could."""
    return Finding(name, Verdict.WARN, seen, advice)


def bad(
    name: str, seen: str, advice: str, *, exit_code: int = MISCONFIGURED
) -> Finding:
    """Return that it does not work."""
    return Finding(name, Verdict.BAD, seen, advice, exit_code)


def skipped(name: str, why: str) -> Finding:
    """Return that nothing was looked at."""
    return Finding(name, Verdict.SKIPPED, why)


@dataclass(frozen=True, slots=True)
class Check:
    """Something to look at.

    Attributes:
        name: For what it finds if it cannot look.
        look: Looks; yields what it found.
    """

    name: str
    look: Callable[[], Iterable[Finding]]

    def findings(self) -> Iterator[Finding]:
        """Yield what it finds; a failure is a finding too, and ends this check only."""
        try:
            yield from self.look()
        except SlurmUnavailableError as error:
            yield bad(self.name, str(error), "", exit_code=UNAVAILABLE)
        except FreeTrainError as error:
            yield bad(self.name, str(error), "", exit_code=error.exit_code)
        except (SlurmError, OSError, ValueError) as error:
            yield bad(self.name, str(error), "")


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 0 where nothing is bad, else the code of the first bad finding."""
    bads = (found for found in findings if found.verdict is Verdict.BAD)
    first = next(bads, None)
    return first.exit_code if first else 0
