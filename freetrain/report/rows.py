"""Figures as people read them: the comparison's table and its headline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.report.record import completion_record, lost_share
from freetrain.toml.wording import per_cent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.replay.result import ReplayResult
    from freetrain.report.comparison import Comparison

HEADINGS = (
    "policy",
    "samples",
    "efficiency",
    "coverage",
    "finished",
    "lost",
    "preempt",
    "worst slowdown",
)
SCALES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
WORDS = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))
UNKNOWN = "-"
MINUTE_S = 60.0
FEW = 100
"""From here on fractions are not shown."""
MANY = 1e6
"""From here on only the first digits are, so that a table keeps its width."""


def table_row(result: ReplayResult, name: str) -> tuple[str, ...]:
    """Return *result*, called *name*, as cells under ``HEADINGS``."""
    worst = completion_record(result)["worst_slowdown"]
    return (
        name,
        scaled(result.samples),
        percent(result.efficiency),
        percent(result.coverage),
        f"{result.finished:,}",
        percent(lost_share(result)),
        f"{result.preemptions:,}",
        _times(worst) if isinstance(worst, float) else UNKNOWN,
    )


def _times(factor: float) -> str:
    if factor >= MANY:
        return f"{factor:.1e} x"
    return f"{factor:,.0f} x" if factor >= FEW else f"{factor:.1f} x"


def headline(
    comparison: Comparison, result: ReplayResult
) -> tuple[tuple[str, str], ...]:
    """Return the figures that matter most: what is shown, and what it means."""
    samples, _, scale = scaled(result.samples, scales=WORDS).partition(" ")
    idle = result.pool_node_s / result.end_s if result.end_s > 0 else 0.0
    return (
        (samples, f"{scale} samples trained".strip()),
        (percent(result.efficiency), "of what as many dedicated nodes train"),
        (percent(result.coverage), "of idle node-time put to use"),
        (f"{result.finished:,}", _finished_words(comparison, result)),
        (percent(lost_share(result)), "lost to rescales, preemptions and starts"),
        (f"{idle:,.0f}", f"nodes idle on average, of {comparison.nodes:,}"),
    )


def _finished_words(comparison: Comparison, result: ReplayResult) -> str:
    if result.finished > comparison.trainer_count:
        return f"times one of {comparison.trainer_count:,} trainers finished"
    return f"trainers finished, of {comparison.trainer_count:,} submitted"


def scaled(value: float, *, scales: Sequence[tuple[float, str]] = SCALES) -> str:
    """Return *value* with three or more digits and its scale, as in ``89.58 G``."""
    if abs(value) >= MANY * scales[0][0]:
        return f"{value:.2e}"
    for size, scale in scales:
        if abs(value) >= size:
            return f"{value / size:,.2f} {scale}"
    return f"{value:,.0f}"


def percent(share: float | None) -> str:
    """Return a share as a percentage, or a dash where there is none."""
    return UNKNOWN if share is None else per_cent(share, ".1f")
