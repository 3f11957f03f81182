"""How soon models became good: figures of quality over time and of waits.

Definitions are in docs/notes/replay.md. Waits count from a trainer's arrival.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from freetrain.report.summary import FEW, percent
from freetrain.text import UNKNOWN, per_cent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from freetrain.replay.result import Learning, ReplayResult
    from freetrain.report.comparison import Comparison

    Milestone = Callable[[Learning], float | None]

SAMPLE_TIMES = 2_000
"""Quality over time is sampled this often; more samples change no third digit."""
LEVELS = (0.9, 0.95)
JUST_AS_SLOW = 0.01
"""A trainer that waits longer by less than this share has not lost."""


# Quality over time.


@dataclass(frozen=True, slots=True, eq=False)
class QualityOverTime:
    """Quality at given times, nan where no trainer counts.

    Attributes:
        under_way: Mean over the trainers that have arrived and not finished.
        worst: The least among those.
        submitted: Mean over all that have arrived; a finished trainer keeps its
            last quality.
    """

    under_way: NDArray[np.float64]
    worst: NDArray[np.float64]
    submitted: NDArray[np.float64]


def sample_times_s(end_s: float, *, count: int = SAMPLE_TIMES) -> NDArray[np.float64]:
    """Return the middles of *count* equal stretches up to *end_s*."""
    return np.linspace(0.0, end_s, count, endpoint=False) + end_s / (2 * count)


def quality_over_time(
    result: ReplayResult, times_s: NDArray[np.float64]
) -> QualityOverTime:
    """Return the quality of *result*'s trainers at *times_s*, ascending."""
    rows = np.array([_quality(trainer, times_s) for trainer in result.learning])
    rows = rows.reshape(len(result.learning), len(times_s))
    arrived = np.array([times_s >= trainer.arrival_s for trainer in result.learning])
    finished = np.array([_is_over(trainer, times_s) for trainer in result.learning])
    under_way = arrived & ~finished
    return QualityOverTime(
        under_way=_mean(rows, under_way),
        worst=_worst(rows, under_way),
        submitted=_mean(rows, arrived),
    )


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


# The figures of one replay.


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


def quality_of(result: ReplayResult) -> QualityFigures:
    """Return the figures of quality of *result*."""
    over_time = quality_over_time(result, sample_times_s(result.end_s))
    return QualityFigures(
        under_way=mean_of(over_time.under_way),
        worst=mean_of(over_time.worst),
        submitted=mean_of(over_time.submitted),
        makespan_s=makespan_s(result),
        time_to={
            name: _wait_figures(waits_s(result, when))
            for name, when in milestones().items()
        },
    )


def milestones() -> dict[str, Milestone]:
    """Return, by name, what tells when a trainer reached a milestone."""
    levels: dict[str, Milestone] = {
        f"{level:.0%}": partial(reached_s, level=level) for level in LEVELS
    }
    return levels | {
        "deliver": lambda trainer: trainer.deliver_s,
        "final": lambda trainer: trainer.final_s,
        "finish": lambda trainer: trainer.finished_s,
    }


def reached_s(trainer: Learning, *, level: float) -> float | None:
    """Return when *trainer* first reached *level*, from 0 to 1; None for never."""
    pairs = zip(trainer.times_s, trainer.quality, strict=True)
    return next((t_s for t_s, quality in pairs if quality >= level), None)


def waits_s(result: ReplayResult, when: Milestone) -> dict[str, float]:
    """Return how long each trainer that got there waited, by name, in seconds.

    Of a trainer that starts over, its first run counts.
    """
    waits: dict[str, float] = {}
    for trainer in result.learning:
        t_s = when(trainer)
        if t_s is not None:
            waits.setdefault(trainer.trainer, t_s - trainer.arrival_s)
    return waits


def makespan_s(result: ReplayResult) -> float | None:
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


# One replay against another, trainer by trainer: who gains, and who loses.


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
        loss_under_way: Of what these lack to their best, 1 - quality.
        worst: Of the quality of the worst of them.
        submitted: Of the quality of all that have arrived.
        makespan: Of the makespan.
        time_to: Waits by milestone; None where no trainer got there in both.
    """

    under_way: float | None
    loss_under_way: float | None
    worst: float | None
    submitted: float | None
    makespan: float | None
    time_to: dict[str, WaitsCompared | None]


def against(result: ReplayResult, baseline: ReplayResult) -> QualityCompared:
    """Return *result* against *baseline*, both of trainers with quality curves.

    Quality over time covers the same time in both: until the later of the two ends.
    """
    times_s = sample_times_s(max(result.end_s, baseline.end_s))
    ours, theirs = (quality_over_time(r, times_s) for r in (result, baseline))
    mine, other = mean_of(ours.under_way), mean_of(theirs.under_way)
    return QualityCompared(
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


# As people read them.

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
    """Return a time in few characters: ten of them stand in a row."""
    if seconds is None:
        return UNKNOWN
    minutes = seconds / 60
    return f"{minutes:.1f}m" if minutes < FEW else f"{minutes / 60:.1f}h"
