"""All checks, in the order in which one understands them."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from freetrain.doctor import checks as slurm_checks
from freetrain.doctor.checks import (
    Check,
    Verdict,
    look_at_mpi,
    look_at_python,
    look_at_state,
    look_at_ticks,
    skipped,
)
from freetrain.doctor.test_job import run_one_step
from freetrain.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from freetrain.doctor.checks import Finding, Seen, Subject


# ----------------------------------------------------------------------
# All checks, in the order in which one understands them.


def examine(subject: Subject) -> Iterator[Finding]:
    """Yield what all checks find, each as soon as it is known."""
    yield from Check("FreeTrain", look_at_python).findings()
    yield from Check("state directory", lambda: look_at_state(subject)).findings()
    yield from Check("MPI", lambda: look_at_mpi(subject)).findings()
    yield from Check("ticks", lambda: look_at_ticks(subject)).findings()
    yield from _slurm(subject)


def _slurm(subject: Subject) -> Iterator[Finding]:
    programs = Check("Slurm", lambda: slurm_checks.look_at_programs(subject))
    yield from programs.findings()
    if not slurm_checks.has_slurm(subject):
        yield skipped("cluster", "there is no Slurm here to ask")
        return
    told: list[Seen] = []

    def look() -> Iterator[Finding]:
        told.append(slurm_checks.look(subject))
        yield from slurm_checks.look_at_cluster(subject, told[0])
        yield slurm_checks.look_at_json(subject)
        yield from slurm_checks.look_at_rights(subject, told[0])

    yield from Check("cluster", look).findings()
    seen = told[0] if told else None
    step = Check("one-step run", lambda: run_one_step(subject, seen))
    yield from step.findings()


# ----------------------------------------------------------------------
# Findings as people read them.

_NAME = 21
_VERDICT = 8
_WIDTH = 100


def finding_text(found: Finding) -> str:
    """Return a line, or a few: verdict, name, what was seen, and what to do."""
    head = f"{found.verdict:<{_VERDICT}}{found.name:<{_NAME}} "
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
    """Return how many of each verdict there were, the worst first."""
    order = (Verdict.BAD, Verdict.WARN, Verdict.SKIPPED, Verdict.OK)
    verdicts = [found.verdict for found in findings]
    counts = ((verdict, verdicts.count(verdict)) for verdict in order)
    return ", ".join(f"{count} {verdict}" for verdict, count in counts if count) + "\n"
