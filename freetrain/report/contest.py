"""Priorities held against one of them, over seeds and loads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from freetrain.report.losers import Against, Waits, against
from freetrain.report.quality import Quality, quality_of
from freetrain.report.rows import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from freetrain.report.comparison import Comparison

    Found = Callable[["Score"], float | None]


@dataclass(frozen=True, slots=True)
class Score:
    """What one priority made of one draw of trainers.

    Attributes:
        priority: Its name.
        load: Work that arrives, over what the nodes can do.
        seed: Of the draw.
        quality: Its own figures.
        against: The same against the baseline's.
        settings: Those of the priority that were given, by name.
    """

    priority: str
    load: float
    seed: int
    quality: Quality
    against: Against
    settings: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table.

    Attributes:
        title: What it is, for people.
        found: Its value in one score.
        is_high_good: Whether the best seed is the one of the highest value.
        is_change: Whether it is a share of the baseline's, shown as a change.
    """

    title: str
    found: Found
    is_high_good: bool = False
    is_change: bool = True


def scores_of(comparison: Comparison, *, load: float, seed: int) -> tuple[Score, ...]:
    """Return the score of every result of *comparison* but its baseline.

    Raises:
        ValueError: It has no baseline.
    """
    baseline = comparison.baseline
    if baseline is None:
        raise ValueError("a contest needs a baseline")
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


def lines() -> tuple[Line, ...]:
    """Return the lines of the table, in order."""
    return (
        Line("quality under way", lambda s: s.against.under_way, is_high_good=True),
        Line("quality lacking", lambda s: s.against.loss_under_way),
        Line("quality, worst", lambda s: s.against.worst, is_high_good=True),
        Line("quality, submitted", lambda s: s.against.submitted, is_high_good=True),
        Line("time to 90 %", _wait("90%", "mean")),
        Line("time to 95 %", _wait("95%", "mean")),
        Line("time to first tier", _wait("deliver", "mean")),
        Line("  luckiest trainer", _wait("deliver", "best")),
        Line("  share later", _wait("deliver", "slower"), is_change=False),
        Line("time to finish", _wait("finish", "mean")),
        Line("  luckiest trainer", _wait("finish", "best")),
        Line("  share later", _wait("finish", "slower"), is_change=False),
        Line("  worst trainer", _wait("finish", "worst")),
        Line("makespan", lambda s: s.against.makespan),
    )


def _wait(what: str, figure: str) -> Found:
    def found(score: Score) -> float | None:
        waits: Waits | None = score.against.time_to[what]
        return None if waits is None else float(getattr(waits, figure))

    return found


def cell(line: Line, scores: Sequence[Score]) -> str:
    """Return the mean of *line* over *scores*, then its best and worst, in percent."""
    values = [value for score in scores if (value := line.found(score)) is not None]
    if not values:
        return UNKNOWN
    best, worst = sorted((min(values), max(values)), reverse=line.is_high_good)
    mean = sum(values) / len(values)
    if not line.is_change:
        return f"{100 * mean:.1f}  {100 * best:.0f}..{100 * worst:.0f}"
    mean, best, worst = (100 * (share - 1) for share in (mean, best, worst))
    return f"{mean:+.1f}  {best:+.0f}..{worst:+.0f}"
