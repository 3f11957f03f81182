"""Priorities compared over several draws of trainers: seeds and loads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from freetrain.report.quality import against, quality_of
from freetrain.text import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from freetrain.report.comparison import Comparison
    from freetrain.report.quality import (
        QualityCompared,
        QualityFigures,
        WaitsCompared,
    )

    ScoreValue = Callable[["Score"], float | None]


@dataclass(frozen=True, slots=True)
class Score:
    """The figures of one priority on one draw of trainers.

    Attributes:
        load: Work that arrives, over what the nodes can do.
        against: The figures as shares of the baseline's.
        settings: Settings of the priority that were given, by name.
    """

    priority: str
    load: float
    seed: int
    quality: QualityFigures
    against: QualityCompared
    settings: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SweepRow:
    """A row of the table: one figure of every priority.

    Attributes:
        value: Reads the figure from a score.
        is_high_good: Whether the best seed is the one of the highest value.
        is_change: Whether it is a share of the baseline's, shown as a change.
    """

    title: str
    value: ScoreValue
    is_high_good: bool = False
    is_change: bool = True


def scores_of(comparison: Comparison, *, load: float, seed: int) -> tuple[Score, ...]:
    """Return the score of every result of *comparison* but its baseline.

    Raises:
        ValueError: It has no baseline.
    """
    baseline = comparison.baseline
    if baseline is None:
        raise ValueError("a sweep needs a baseline")
    return tuple(
        Score(
            priority=comparison.name(result),
            load=load,
            seed=seed,
            quality=quality_of(result),
            against=against(result, baseline),
            settings=dict(result.priority_settings),
        )
        for result in comparison.results
        if result is not baseline
    )


def sweep_rows() -> tuple[SweepRow, ...]:
    """Return the rows of the table, in order."""
    return (
        SweepRow("quality under way", lambda s: s.against.under_way, is_high_good=True),
        SweepRow("quality lacking", lambda s: s.against.loss_under_way),
        SweepRow("quality, worst", lambda s: s.against.worst, is_high_good=True),
        SweepRow(
            "quality, submitted", lambda s: s.against.submitted, is_high_good=True
        ),
        SweepRow("time to 90 %", _wait("90%", "mean")),
        SweepRow("time to 95 %", _wait("95%", "mean")),
        SweepRow("time to first tier", _wait("deliver", "mean")),
        SweepRow("  luckiest trainer", _wait("deliver", "best")),
        SweepRow("  share later", _wait("deliver", "slower"), is_change=False),
        SweepRow("time to finish", _wait("finish", "mean")),
        SweepRow("  luckiest trainer", _wait("finish", "best")),
        SweepRow("  share later", _wait("finish", "slower"), is_change=False),
        SweepRow("  worst trainer", _wait("finish", "worst")),
        SweepRow("makespan", lambda s: s.against.makespan),
    )


def _wait(milestone: str, figure: str) -> ScoreValue:
    def value(score: Score) -> float | None:
        waits: WaitsCompared | None = score.against.time_to[milestone]
        return None if waits is None else float(getattr(waits, figure))

    return value


def cell(row: SweepRow, scores: Sequence[Score]) -> str:
    """Return the mean of *row* over *scores*, then its best and worst, in percent."""
    values = [value for score in scores if (value := row.value(score)) is not None]
    if not values:
        return UNKNOWN
    best, worst = sorted((min(values), max(values)), reverse=row.is_high_good)
    mean = sum(values) / len(values)
    if not row.is_change:
        return f"{100 * mean:.1f}  {100 * best:.0f}..{100 * worst:.0f}"
    mean, best, worst = (100 * (share - 1) for share in (mean, best, worst))
    return f"{mean:+.1f}  {best:+.0f}..{worst:+.0f}"
