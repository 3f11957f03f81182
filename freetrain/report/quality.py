"""How soon models became how good: figures of quality, with the losers.

Definitions in docs/replay.md. Times count from a trainer's arrival.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from freetrain.report.quality_series import mean_of, moments_s, quality_over_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from freetrain.replay.result import Learning, ReplayResult

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
            name: _wait(waits_s(result, when)) for name, when in milestones().items()
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


def _wait(waits: dict[str, float]) -> Wait | None:
    if not waits:
        return None
    each = list(waits.values())
    return Wait(trainers=len(each), mean_s=sum(each) / len(each), worst_s=max(each))
