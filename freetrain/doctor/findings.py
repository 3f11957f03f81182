"""The findings of ``freetrain doctor``: records, their text, and the exit code.

A check gets a ``Subject``, the installation that it looks at, and yields a ``Finding``.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from freetrain.config.site import Site
    from freetrain.cron import Programs
    from slurm.backend import SlurmBackend
    from slurm.runner import Runner

UNAVAILABLE = 69
MISCONFIGURED = 78


class CheckVerdict(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"
    BAD = "bad"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        name: What was checked.
        seen: What was seen; for SKIPPED why nothing was.
        advice: What to do; empty for nothing.
        exit_code: The exit code of the whole command if this is bad.
    """

    name: str
    verdict: CheckVerdict
    seen: str
    advice: str = ""
    exit_code: int = MISCONFIGURED


def ok(name: str, seen: str) -> Finding:
    """Return the finding that all is well."""
    return Finding(name, CheckVerdict.OK, seen)


def warn(name: str, seen: str, advice: str) -> Finding:
    """Return the finding that it works, but not as well as it could."""
    return Finding(name, CheckVerdict.WARN, seen, advice)


def bad(
    name: str, seen: str, advice: str, *, exit_code: int = MISCONFIGURED
) -> Finding:
    """Return the finding that it does not work."""
    return Finding(name, CheckVerdict.BAD, seen, advice, exit_code)


def skipped(name: str, why: str) -> Finding:
    """Return the finding that nothing was checked."""
    return Finding(name, CheckVerdict.SKIPPED, why)


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 0 where nothing is bad, else the code of the first bad finding."""
    bads = (found for found in findings if found.verdict is CheckVerdict.BAD)
    first = next(bads, None)
    return first.exit_code if first else 0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Subject:
    """A user's FreeTrain on a cluster.

    Attributes:
        environ: The user's variables.
        python: The Python that has FreeTrain, absolute.
        programs: Finds and runs programs other than Slurm's.
        runner: Runs Slurm's programs, in a scrubbed environment.
        backend: Slurm, as the tick asks it.
        now_s: Unix time of this host.
        clock: Seconds from any moment on.
        new_uuid: Makes up a name that no other job has.
        may_run: Whether the one-step run is wanted.
    """

    site: Site
    environ: Mapping[str, str]
    uid: int
    python: Path
    programs: Programs
    runner: Runner
    backend: SlurmBackend
    now_s: Callable[[], float]
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    new_uuid: Callable[[], str]
    may_run: bool = True


_NAME_WIDTH = 21
_VERDICT_WIDTH = 8
_WIDTH = 100


def finding_text(found: Finding) -> str:
    """Return a line, or a few: verdict, name, what was seen, and what to do."""
    head = f"{found.verdict:<{_VERDICT_WIDTH}}{found.name:<{_NAME_WIDTH}} "
    indent = " " * len(head)
    seen = textwrap.fill(
        one_line(found.seen),
        _WIDTH,
        initial_indent=head,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    if not found.advice:
        return f"{seen}\n"
    advice = textwrap.fill(
        one_line(found.advice),
        _WIDTH,
        initial_indent=f"{indent}→ ",
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return f"{seen}\n{advice}\n"


def summary_text(findings: Sequence[Finding]) -> str:
    """Return the number of findings of each verdict, the worst first."""
    order = (CheckVerdict.BAD, CheckVerdict.WARN, CheckVerdict.SKIPPED, CheckVerdict.OK)
    verdicts = [found.verdict for found in findings]
    counts = ((verdict, verdicts.count(verdict)) for verdict in order)
    return ", ".join(f"{count} {verdict}" for verdict, count in counts if count) + "\n"
