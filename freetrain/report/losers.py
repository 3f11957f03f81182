"""One policy against another, trainer by trainer: who gains, and who loses."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from freetrain.report.quality import (
    makespan_s,
    milestones,
    quality_of,
    waits_s,
)
from freetrain.report.quality_series import mean_of, moments_s, quality_over_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.replay.result import ReplayResult
    from freetrain.report.comparison import Comparison

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
