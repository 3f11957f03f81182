"""How soon models became good: quality over time, and waits for milestones.

The figures of one replay, of one against a baseline, and of a sweep over seeds and
loads. docs/notes/replay.md defines them. Waits count from a trainer's arrival.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from freetrain.report.summary import FEW, percent
from freetrain.text import UNKNOWN, per_cent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from freetrain.replay.run import Learning, ReplayResult
    from freetrain.report.summary import Comparison

    Milestone = Callable[[Learning], float | None]
    ScoreValue = Callable[["Score"], float | None]


class Learned(Protocol):
    """The result of a replay, as far as models that learn are concerned."""

    @property
    def end_s(self) -> float:
        """When it ended."""
        ...

    @property
    def learning(self) -> tuple[Learning, ...]:
        """What became of its trainers."""
        ...


# ----------------------------------------------------------------------
# Quality over time

SAMPLE_TIMES = 2_000
"""Quality over time is sampled this often; more samples change no third digit."""

LEVELS = (0.9, 0.95)

JUST_AS_SLOW = 0.01
"""A trainer that waits longer by less than this share has not lost."""


def sample_times_s(end_s: float) -> NDArray[np.float64]:
    """Return the middles of ``SAMPLE_TIMES`` equal spans up to *end_s*."""
    starts_s = np.linspace(0.0, end_s, SAMPLE_TIMES, endpoint=False)
    return starts_s + end_s / (2 * SAMPLE_TIMES)


def quality_over_time(
    result: Learned, times_s: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the quality of *result*'s trainers at *times_s*, ascending.

    Returns:
        The mean over the trainers that have arrived and not finished; the least
        among those; the mean over all that have arrived, where a finished trainer
        keeps its last quality. All nan where no trainer counts.
    """
    rows = np.array([_quality(trainer, times_s) for trainer in result.learning])
    rows = rows.reshape(len(result.learning), len(times_s))
    arrived = np.array([times_s >= trainer.arrival_s for trainer in result.learning])
    finished = np.array([_is_over(trainer, times_s) for trainer in result.learning])
    under_way = arrived & ~finished
    return _mean(rows, under_way), _worst(rows, under_way), _mean(rows, arrived)


def mean_of(values: NDArray[np.float64]) -> float | None:
    """Return the mean of *values* where there are any."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _quality(trainer: Learning, times_s: NDArray[np.float64]) -> NDArray[np.float64]:
    steps = np.array([0.0, *trainer.quality])
    passed = np.searchsorted(np.array(trainer.times_s), times_s, side="right")
    return np.asarray(steps[passed])


def _is_over(trainer: Learning, times_s: NDArray[np.float64]) -> NDArray[np.bool_]:
    end_s = np.inf if trainer.finished_s is None else trainer.finished_s
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
# The figures of one replay


@dataclass(frozen=True, slots=True)
class WaitFigures:
    """How long the trainers that reached a milestone waited for it from arrival."""

    trainers: int
    mean_s: float
    worst_s: float


@dataclass(frozen=True, slots=True)
class QualityFigures:
    """The figures of one replay; docs/notes/replay.md defines each.

    Attributes:
        under_way: Mean over time of the mean over trainers under way.
        worst: Mean over time of the least among those.
        submitted: Mean over time of the mean over all that have arrived.
        makespan_s: First arrival to last finish; None unless all finished.
        time_to: Waits by milestone; None where no trainer got there.
    """

    under_way: float | None
    worst: float | None
    submitted: float | None
    makespan_s: float | None
    time_to: dict[str, WaitFigures | None]


def quality_of(result: Learned) -> QualityFigures:
    """Return the figures of quality of *result*."""
    times_s = sample_times_s(result.end_s)
    under_way, worst, submitted = map(mean_of, quality_over_time(result, times_s))
    return QualityFigures(
        under_way=under_way,
        worst=worst,
        submitted=submitted,
        makespan_s=makespan_s(result),
        time_to={
            name: _wait_figures(waits_s(result, when))
            for name, when in milestones().items()
        },
    )


def milestones() -> dict[str, Milestone]:
    """Return milestones by name: functions of the time a trainer reached them."""
    levels: dict[str, Milestone] = {
        f"{level:.0%}": partial(reached_s, level=level) for level in LEVELS
    }
    return levels | {
        "lacking": lacking_until_s,
        "deliver": lambda trainer: trainer.deliver_s,
        "final": lambda trainer: trainer.final_s,
        "finish": lambda trainer: trainer.finished_s,
    }


def reached_s(trainer: Learning, *, level: float) -> float | None:
    """Return when *trainer* first reached *level*, from 0 to 1; None for never."""
    pairs = zip(trainer.times_s, trainer.quality, strict=True)
    return next((t_s for t_s, quality in pairs if quality >= level), None)


def lacking_until_s(trainer: Learning) -> float | None:
    """Return the arrival of *trainer* and the area below what its quality lacks.

    The area, in seconds, is the mean over all qualities, from 0 to 1, of the wait for
    each. None for a trainer that never learns, or has not finished.
    """
    if trainer.finished_s is None or not any(trainer.quality):
        return None
    gained = np.diff(np.array([0.0, *trainer.quality]))
    return float(gained @ np.array(trainer.times_s))


def waits_s(result: Learned, when: Milestone) -> dict[str, float]:
    """Return how long each trainer that got there waited, by name, in seconds.

    Of a trainer that starts over, its first run counts.
    """
    waits: dict[str, float] = {}
    for trainer in result.learning:
        t_s = when(trainer)
        if t_s is not None:
            waits.setdefault(trainer.trainer, t_s - trainer.arrival_s)
    return waits


def makespan_s(result: Learned) -> float | None:
    """Return the first arrival to the last finish; None unless all finished."""
    ends_s = [trainer.finished_s for trainer in result.learning]
    if None in ends_s:
        return None
    last_s = max(end_s for end_s in ends_s if end_s is not None)
    return last_s - min(trainer.arrival_s for trainer in result.learning)


def _wait_figures(waits: dict[str, float]) -> WaitFigures | None:
    if not waits:
        return None
    each = list(waits.values())
    return WaitFigures(
        trainers=len(each), mean_s=sum(each) / len(each), worst_s=max(each)
    )


# ----------------------------------------------------------------------
# One replay against a baseline, trainer by trainer: gains and losses


@dataclass(frozen=True, slots=True)
class WaitsCompared:
    """How long the same trainers waited for a milestone, against a baseline.

    Times are shares of the baseline's time: 0.6 is 40 % sooner, 1.5 half as long
    again.

    Attributes:
        trainers: How many got there under both.
        missed: How many got there under the baseline only.
        mean: The mean wait, over the baseline's mean wait.
        mean_share: The mean of the trainers' own shares.
        best: The least share of any trainer.
        worst: The largest share of any trainer.
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
) -> WaitsCompared | None:
    """Return *waits* against *baseline*, seconds by trainer; None without a pair."""
    both = [name for name in baseline if name in waits and baseline[name] > 0]
    if not both:
        return None
    ours = np.array([waits[name] for name in both])
    theirs = np.array([baseline[name] for name in both])
    shares = ours / theirs
    missed = sum(name not in waits for name in baseline)
    lost = int((shares > 1 + JUST_AS_SLOW).sum()) + missed
    return WaitsCompared(
        trainers=len(both),
        missed=missed,
        mean=float(ours.mean() / theirs.mean()),
        mean_share=float(shares.mean()),
        best=float(shares.min()),
        worst=float(shares.max()),
        slower=lost / (len(both) + missed),
    )


@dataclass(frozen=True, slots=True)
class QualityCompared:
    """One replay against another of the same trainers: shares of the baseline's.

    Attributes:
        under_way: Of the quality of trainers under way.
        worst: Of the quality of the worst of them.
        submitted: Of the quality of all that have arrived.
        makespan: Of the makespan.
        time_to: Waits by milestone; None where no trainer got there in both.
    """

    under_way: float | None
    worst: float | None
    submitted: float | None
    makespan: float | None
    time_to: dict[str, WaitsCompared | None]


def against(result: Learned, baseline: Learned) -> QualityCompared:
    """Return *result* against *baseline*, both of trainers with quality curves.

    Quality over time covers the same time in both: until the later of the two ends.
    """
    times_s = sample_times_s(max(result.end_s, baseline.end_s))
    under_way, worst, submitted = map(mean_of, quality_over_time(result, times_s))
    than_way, than_worst, than_submitted = map(
        mean_of, quality_over_time(baseline, times_s)
    )
    return QualityCompared(
        under_way=_over(under_way, than_way),
        worst=_over(worst, than_worst),
        submitted=_over(submitted, than_submitted),
        makespan=_over(makespan_s(result), makespan_s(baseline)),
        time_to={
            name: waits_against(waits_s(result, when), waits_s(baseline, when))
            for name, when in milestones().items()
        },
    )


def quality_records(comparison: Comparison, result: ReplayResult) -> dict[str, object]:
    """Return *result*'s quality for JSON; {} without quality curves."""
    if not result.learning:
        return {}
    record: dict[str, object] = {"quality": asdict(quality_of(result))}
    baseline = comparison.baseline
    if baseline is not None:
        shares = asdict(against(result, baseline))
        record["against"] = {"name": comparison.name(baseline)} | shares
    return record


def _over(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours is not None and theirs else None


# ----------------------------------------------------------------------
# The same as table cells

QUALITY_HEADINGS = (
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
    """Return *result*, called *name*, as cells under ``QUALITY_HEADINGS``.

    Times are means from arrival, in minutes or hours; ``last`` is the longest from
    arrival to finish, ``all in`` the makespan.
    """
    found = quality_of(result)
    waits = [
        found.time_to[milestone] for milestone in ("90%", "95%", "deliver", "finish")
    ]
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


def _of(found: WaitFigures | WaitsCompared | None, figure: str) -> float | None:
    return None if found is None else float(getattr(found, figure))


def _time(seconds: float | None) -> str:
    """Return a time in few characters, since ten stand in a row."""
    if seconds is None:
        return UNKNOWN
    minutes = seconds / 60
    return f"{minutes:.1f}m" if minutes < FEW else f"{minutes / 60:.1f}h"


# ----------------------------------------------------------------------
# A sweep: priorities over several draws of trainers, by seed and load


@dataclass(frozen=True, slots=True)
class Score:
    """The figures of one priority on one draw of trainers.

    Attributes:
        priority: Its name, or that of a rule by which members of packs move.
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
        SweepRow("quality lacking", _wait("lacking", "mean")),
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
