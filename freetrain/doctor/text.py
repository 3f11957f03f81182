"""Findings as people read them."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from freetrain.doctor.finding import Verdict
from freetrain.toml.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.doctor.finding import Finding

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
