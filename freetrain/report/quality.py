"""How soon models became how good: figures of quality, with the losers.

Definitions in docs/replay.md. Times count from a trainer's arrival.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import partial
from html import escape
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from freetrain.report.comparison import FEW, UNKNOWN, percent
from freetrain.report.figures import (
    POOL_BINS,
    bin_edges_s,
    colour,
    drawn,
    middles,
    time_unit,
)
from freetrain.report.html import table
from freetrain.text import per_cent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from freetrain.replay.result import Learning, ReplayResult
    from freetrain.report.comparison import Comparison


# ----------------------------------------------------------------------
# Quality over time.

MOMENTS = 2_000
"""At which quality over time is looked at; more change no third digit."""


@dataclass(frozen=True, slots=True, eq=False)
class QualityOverTime:
    """Quality at moments, float64, nan where there is nobody.

    Attributes:
        times_s: The moments.
        under_way: Mean over the trainers that have arrived and not finished.
        worst: The least among those.
        submitted: Mean over all that have arrived; who has finished stays as good
            as it became.
    """

    times_s: NDArray[np.float64]
    under_way: NDArray[np.float64]
    worst: NDArray[np.float64]
    submitted: NDArray[np.float64]


def moments_s(end_s: float, *, count: int = MOMENTS) -> NDArray[np.float64]:
    """Return the middles of *count* equal stretches up to *end_s*."""
    return np.linspace(0.0, end_s, count, endpoint=False) + end_s / (2 * count)


def quality_over_time(
    result: ReplayResult, times_s: NDArray[np.float64]
) -> QualityOverTime:
    """Return the quality of *result*'s trainers at *times_s*, ascending."""
    rows = np.array([_quality(one, times_s) for one in result.learning])
    rows = rows.reshape(len(result.learning), len(times_s))
    arrived = np.array([times_s >= one.arrival_s for one in result.learning])
    finished = np.array([_is_over(one, times_s) for one in result.learning])
    under_way = arrived & ~finished
    return QualityOverTime(
        times_s=times_s,
        under_way=_mean(rows, under_way),
        worst=_worst(rows, under_way),
        submitted=_mean(rows, arrived),
    )


def mean_of(values: NDArray[np.float64]) -> float | None:
    """Return the mean of *values* where there are any."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _quality(one: Learning, times_s: NDArray[np.float64]) -> NDArray[np.float64]:
    steps = np.array([0.0, *one.quality])
    passed = np.searchsorted(np.array(one.times_s), times_s, side="right")
    return np.asarray(steps[passed])


def _is_over(one: Learning, times_s: NDArray[np.float64]) -> NDArray[np.bool_]:
    end_s = np.inf if one.finished_s is None else one.finished_s
    return np.asarray(times_s >= end_s)


def _mean(rows: NDArray[np.float64], counted: NDArray[np.bool_]) -> NDArray[np.float64]:
    number = counted.sum(axis=0)
    total = np.where(counted, rows, 0.0).sum(axis=0)
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)


def _worst(
    rows: NDArray[np.float64], counted: NDArray[np.bool_]
) -> NDArray[np.float64]:
    least = np.where(counted, rows, np.inf).min(axis=0, initial=np.inf)
    return np.where(np.isfinite(least), least, np.nan)


# ----------------------------------------------------------------------
# How soon models became how good: figures of quality, with the losers.

if TYPE_CHECKING:
    When = Callable[[Learning], float | None]

LEVELS = (0.9, 0.95)


@dataclass(frozen=True, slots=True)
class Wait:
    """How long trainers waited for something, from their arrival.

    Attributes:
        trainers: How many got there; only these are counted in.
        mean_s: Their mean.
        worst_s: The longest.
    """

    trainers: int
    mean_s: float
    worst_s: float


@dataclass(frozen=True, slots=True)
class Quality:
    """The figures of one replay; docs/replay.md defines each.

    Attributes:
        under_way: Mean over time of the mean over trainers under way.
        worst: Mean over time of the least among those.
        submitted: Mean over time of the mean over all that have arrived.
        makespan_s: First arrival to last finish; None unless all finished.
        time_to: Waits by what is waited for; None where nobody got there.
    """

    under_way: float | None
    worst: float | None
    submitted: float | None
    makespan_s: float | None
    time_to: dict[str, Wait | None]


def quality_of(result: ReplayResult) -> Quality:
    """Return the figures of quality of *result*."""
    seen = quality_over_time(result, moments_s(result.end_s))
    return Quality(
        under_way=mean_of(seen.under_way),
        worst=mean_of(seen.worst),
        submitted=mean_of(seen.submitted),
        makespan_s=makespan_s(result),
        time_to={
            name: _wait_quality(waits_s(result, when))
            for name, when in milestones().items()
        },
    )


def milestones() -> dict[str, When]:
    """Return what is waited for, by name, and when a trainer had it."""
    levels: dict[str, When] = {
        f"{level:.0%}": partial(reached_s, level=level) for level in LEVELS
    }
    return levels | {
        "deliver": lambda one: one.deliver_s,
        "final": lambda one: one.final_s,
        "finish": lambda one: one.finished_s,
    }


def reached_s(one: Learning, *, level: float) -> float | None:
    """Return when *one* first was as good as *level*, from 0 to 1; None for never."""
    pairs = zip(one.times_s, one.quality, strict=True)
    return next((t_s for t_s, quality in pairs if quality >= level), None)


def waits_s(result: ReplayResult, when: When) -> dict[str, float]:
    """Return how long each trainer that got there waited, by name, in seconds.

    Of a trainer that starts over, its first way counts.
    """
    waits: dict[str, float] = {}
    for one in result.learning:
        t_s = when(one)
        if t_s is not None:
            waits.setdefault(one.trainer, t_s - one.arrival_s)
    return waits


def makespan_s(result: ReplayResult) -> float | None:
    """Return the first arrival to the last finish; None unless all finished."""
    ends_s = [one.finished_s for one in result.learning]
    if None in ends_s:
        return None
    last_s = max(end_s for end_s in ends_s if end_s is not None)
    return last_s - min(one.arrival_s for one in result.learning)


def _wait_quality(waits: dict[str, float]) -> Wait | None:
    if not waits:
        return None
    each = list(waits.values())
    return Wait(trainers=len(each), mean_s=sum(each) / len(each), worst_s=max(each))


# ----------------------------------------------------------------------
# One policy against another, trainer by trainer: who gains, and who loses.

JUST_AS_SLOW = 0.01
"""Who waits less than this share longer has not lost."""


@dataclass(frozen=True, slots=True)
class Waits:
    """How long the same trainers waited for the same thing, against a baseline.

    Times are shares of the baseline's time: 0.6 is 40 % sooner, 1.5 half as long
    again.

    Attributes:
        trainers: How many got there under both.
        missed: How many got there under the baseline only.
        mean: The mean wait, over the baseline's mean wait.
        mean_share: The mean of the trainers' own shares.
        best: The least share of any trainer.
        worst: The largest: who lost most.
        slower: Share of the trainers that waited more than 1 % longer, those that
            only the baseline got there included.
    """

    trainers: int
    missed: int
    mean: float
    mean_share: float
    best: float
    worst: float
    slower: float


def waits_against(
    waits: Mapping[str, float], baseline: Mapping[str, float]
) -> Waits | None:
    """Return *waits* against *baseline*, seconds by trainer; None without a pair."""
    both = [name for name in baseline if name in waits and baseline[name] > 0]
    if not both:
        return None
    ours = np.array([waits[name] for name in both])
    theirs = np.array([baseline[name] for name in both])
    shares = ours / theirs
    missed = sum(name not in waits for name in baseline)
    lost = int((shares > 1 + JUST_AS_SLOW).sum()) + missed
    return Waits(
        trainers=len(both),
        missed=missed,
        mean=float(ours.mean() / theirs.mean()),
        mean_share=float(shares.mean()),
        best=float(shares.min()),
        worst=float(shares.max()),
        slower=lost / (len(both) + missed),
    )


@dataclass(frozen=True, slots=True)
class Against:
    """One replay against another of the same trainers: shares of the baseline's.

    Attributes:
        under_way: Of the quality of trainers under way.
        loss_under_way: Of what these lack to their best, 1 - quality.
        worst: Of the quality of the worst of them.
        submitted: Of the quality of all that have arrived.
        makespan: Of the makespan.
        time_to: Waits by what is waited for; None where nobody got there in both.
    """

    under_way: float | None
    loss_under_way: float | None
    worst: float | None
    submitted: float | None
    makespan: float | None
    time_to: dict[str, Waits | None]


def against(result: ReplayResult, baseline: ReplayResult) -> Against:
    """Return *result* against *baseline*, both of trainers with quality curves.

    Quality over time is looked at over the same time in both: until the later of
    the two ends.
    """
    times_s = moments_s(max(result.end_s, baseline.end_s))
    ours, theirs = (quality_over_time(one, times_s) for one in (result, baseline))
    mine, other = mean_of(ours.under_way), mean_of(theirs.under_way)
    return Against(
        under_way=_over(mine, other),
        loss_under_way=_over(_rest(mine), _rest(other)),
        worst=_over(mean_of(ours.worst), mean_of(theirs.worst)),
        submitted=_over(mean_of(ours.submitted), mean_of(theirs.submitted)),
        makespan=_over(makespan_s(result), makespan_s(baseline)),
        time_to={
            name: waits_against(waits_s(result, when), waits_s(baseline, when))
            for name, when in milestones().items()
        },
    )


def quality_records(comparison: Comparison, result: ReplayResult) -> dict[str, object]:
    """Return what JSON says of *result*'s quality; {} without quality curves."""
    if not result.learning:
        return {}
    record: dict[str, object] = {"quality": asdict(quality_of(result))}
    baseline = comparison.baseline
    if baseline is not None:
        shares = asdict(against(result, baseline))
        record["against"] = {"name": comparison.name(baseline)} | shares
    return record


def _rest(quality: float | None) -> float | None:
    return None if quality is None else 1.0 - quality


def _over(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours is not None and theirs else None


# ----------------------------------------------------------------------
# Priorities held against one of them, over seeds and loads.

if TYPE_CHECKING:
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
        Line("time to 90 %", _wait_contest("90%", "mean")),
        Line("time to 95 %", _wait_contest("95%", "mean")),
        Line("time to first tier", _wait_contest("deliver", "mean")),
        Line("  luckiest trainer", _wait_contest("deliver", "best")),
        Line("  share later", _wait_contest("deliver", "slower"), is_change=False),
        Line("time to finish", _wait_contest("finish", "mean")),
        Line("  luckiest trainer", _wait_contest("finish", "best")),
        Line("  share later", _wait_contest("finish", "slower"), is_change=False),
        Line("  worst trainer", _wait_contest("finish", "worst")),
        Line("makespan", lambda s: s.against.makespan),
    )


def _wait_contest(what: str, figure: str) -> Found:
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


# ----------------------------------------------------------------------
# Quality over time, drawn.


def quality_figure(comparison: Comparison) -> go.Figure:
    """Draw the mean and the worst quality of the trainers under way over time."""
    edges_s = bin_edges_s(comparison.shown_s, most_bins=POOL_BINS)
    times_s = (edges_s[:-1] + edges_s[1:]) / 2
    lines: list[go.Scatter] = []
    for result in comparison.results:
        if not result.learning:
            continue
        seen = quality_over_time(result, times_s)
        for values, dash in ((seen.under_way, "solid"), (seen.worst, "dot")):
            name = comparison.name(result)
            line = _share_line(edges_s, values, name=name, is_worst=dash == "dot")
            line.update(line={"color": colour(comparison, result), "dash": dash})
            lines.append(line)
    figure = drawn(lines, height=400, hovermode="x unified")
    figure.update_xaxes(title=time_unit(edges_s)[1])
    return figure.update_yaxes(title="% of the best", range=[0, 101])


def _share_line(
    edges_s: NDArray[np.float64],
    values: NDArray[np.float64],
    *,
    name: str,
    is_worst: bool,
) -> go.Scatter:
    # A gap where nobody is under way: JSON has no nan, and Plotly draws None as one.
    shares = [None if np.isnan(v) else round(100 * v, 2) for v in values.tolist()]
    return go.Scatter(
        x=middles(edges_s),
        y=shares,
        name=f"{name}, worst" if is_worst else name,
        legendgroup=name,
        showlegend=not is_worst,
        mode="lines",
        hovertemplate="%{y:.1f} %",
    )


# ----------------------------------------------------------------------
# Figures of quality as people read them.

HEADINGS = (
    "quality",
    "mean",
    "worst",
    "of all",
    "to 90%",
    "to 95%",
    "tier 1",
    "finish",
    "last",
    "all in",
)
AGAINST_HEADINGS = (
    "against",
    "quality",
    "to 90%",
    "tier 1",
    "luckiest",
    "finish",
    "all in",
    "slower",
    "worst",
)


def quality_row(result: ReplayResult, name: str) -> tuple[str, ...]:
    """Return *result*, called *name*, as cells under ``HEADINGS``.

    Times are means from arrival, in minutes or hours; ``last`` is the longest from
    arrival to finish, ``all in`` the makespan.
    """
    found = quality_of(result)
    waits = [found.time_to[what] for what in ("90%", "95%", "deliver", "finish")]
    return (
        name,
        percent(found.under_way),
        percent(found.worst),
        percent(found.submitted),
        *(_time(_of(wait, "mean_s")) for wait in waits),
        _time(_of(waits[-1], "worst_s")),
        _time(found.makespan_s),
    )


def against_row(
    result: ReplayResult, baseline: ReplayResult, name: str
) -> tuple[str, ...]:
    """Return *result* against *baseline* as cells under ``AGAINST_HEADINGS``.

    Changes of means, but ``luckiest`` (the trainer whose first tier came soonest) and
    the losers: the share of trainers that finished later, and the worst of them.
    """
    found = against(result, baseline)
    good, tier, finish = (found.time_to[w] for w in ("90%", "deliver", "finish"))
    return (
        name,
        change(found.under_way),
        change(_of(good, "mean")),
        change(_of(tier, "mean")),
        change(_of(tier, "best")),
        change(_of(finish, "mean")),
        change(found.makespan),
        percent(_of(finish, "slower")),
        change(_of(finish, "worst")),
    )


def change(share: float | None) -> str:
    """Return a share of the baseline as a change: 0.6 as ``-40.0 %``."""
    return UNKNOWN if share is None else per_cent(share - 1, "+.1f")


def _of(found: Wait | Waits | None, what: str) -> float | None:
    return None if found is None else float(getattr(found, what))


def _time(seconds: float | None) -> str:
    """Return a time in few characters: ten of them stand in a row."""
    if seconds is None:
        return UNKNOWN
    minutes = seconds / 60
    return f"{minutes:.1f}m" if minutes < FEW else f"{minutes / 60:.1f}h"


# ----------------------------------------------------------------------
# The report's part on quality: drawn over time, and in tables with the losers.


def quality_tables(comparison: Comparison) -> str:
    """Return the tables of quality as HTML; nothing where no trainer has a curve."""
    shown = [result for result in comparison.results if result.learning]
    if not shown:
        return ""
    rows = [quality_row(result, comparison.name(result)) for result in shown]
    return (
        "<h2>How soon models became good</h2>\n"
        '<p class="soft">Quality is 0 where a trainer began and 1 at the best it has '
        "by its end; it counts once an evaluation says so. Means over time of those "
        "under way, of the worst of them, and of all that were submitted. Times are "
        "means from arrival, in minutes and hours: to 90 and 95 % of the best, to the "
        "first tier of the target, to the finish; then the longest to finish, and "
        "the makespan.</p>\n" + table(HEADINGS, rows) + _against(comparison)
    )


def _against(comparison: Comparison) -> str:
    baseline = comparison.baseline
    if baseline is None:
        return ""
    rows = [
        against_row(result, baseline, comparison.name(result))
        for result in comparison.results
        if result.learning and result is not baseline
    ]
    return (
        f"<h2>Against {escape(comparison.name(baseline))}: who gains, who loses</h2>\n"
        '<p class="soft">The same trainers, one by one. Changes of means, but the '
        "luckiest: the trainer whose first tier came soonest. Slower is the share of "
        "the trainers that finished more than 1 % later; worst is the one that lost "
        "most.</p>\n" + table(AGAINST_HEADINGS, rows)
    )
