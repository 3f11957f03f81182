"""What one fragment of a trainer's work says of its speed and of its rescale."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, pairwise
from statistics import median

from freetrain.scaling.median import spread, weighted_median

_FEW_STEPS = 2
"""A single step says nothing: it may have loaded the data or compiled the model."""

_DEVIATIONS = 3.0
_LEAST_SPREAD = 0.02
"""Intervals within three deviations of the steady speed, and within 6 % in any case,
belong to it."""

_MOST_WEIGHT = 2.0
"""No interval counts for more than this many ordinary ones, so that one long stall
does not outweigh the steps before and after it."""


class Rescale(StrEnum):
    """What brought a trainer to its node count."""

    GROW = "grow"
    SHRINK = "shrink"
    START = "start"


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment within a fragment, and what had been trained by then.

    Attributes:
        t_s: When, on the fragment's clock.
        samples: Training samples since the fragment's first step.
    """

    t_s: float
    samples: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """One stretch of work on a fixed set of nodes, as far as it has got.

    Attributes:
        nodes: How many, above 0.
        began_s: When the nodes were assigned; no two fragments of a trainer share it.
        first_step_s: When its first step was done; None before.
        last_step_s: When its last step so far was done.
        samples: Training samples after the first step, up to the last.
        steps: Steps after the first, up to the last.
        marks: Moments between the two steps, ascending; may be none.
        nodes_before: Nodes of the fragment before; 0 where it starts from none.
        step_before_s: When the fragment before did its last step; None for unknown.
        follows_failure: Whether the fragment before ended by a failure.
    """

    nodes: int
    began_s: float
    first_step_s: float | None
    last_step_s: float
    samples: float
    steps: int
    marks: tuple[Mark, ...] = ()
    nodes_before: int = 0
    step_before_s: float | None = None
    follows_failure: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """A speed that was seen.

    Attributes:
        began_s: When its fragment began, which also tells fragments apart.
        samples_per_s: Steady speed, above 0.
        trained_s: Seconds of steady training behind it, above 0.
    """

    began_s: float
    samples_per_s: float
    trained_s: float


@dataclass(frozen=True, slots=True)
class Paid:
    """What a rescale cost.

    Attributes:
        began_s: When its fragment began.
        seconds: Without training.
    """

    began_s: float
    seconds: float


def seen_in(fragment: Fragment) -> Seen | None:
    """Return the steady speed of *fragment*; None where it says nothing.

    The first intervals count as warm-up for as long as they are slower than the
    second half of the fragment by more than its spread. The others are averaged
    after each is brought within that spread. Without marks there is one interval.
    """
    if fragment.first_step_s is None or fragment.steps < _FEW_STEPS:
        return None
    lengths_s, speeds = _intervals(fragment, fragment.first_step_s)
    if not speeds:
        return None
    most_s = _MOST_WEIGHT * median(lengths_s)
    weights_s = [min(length_s, most_s) for length_s in lengths_s]
    steady, spread_per_s = _steady(speeds, weights_s)
    within = _DEVIATIONS * max(spread_per_s, _LEAST_SPREAD * steady)
    first = next(k for k, speed in enumerate(speeds) if speed >= steady - within)
    trained_s = sum(weights_s[first:])
    samples_per_s = (
        sum(
            min(max(speed, steady - within), steady + within) * weight_s
            for speed, weight_s in zip(speeds[first:], weights_s[first:], strict=True)
        )
        / trained_s
    )
    if not (0 < samples_per_s < math.inf and 0 < trained_s < math.inf):
        return None
    return Seen(fragment.began_s, samples_per_s, trained_s)


def paid_for(fragment: Fragment) -> tuple[Rescale, Paid] | None:
    """Return what coming to *fragment*'s nodes cost; None where it cannot be told.

    Restarts after a failure, and on as many nodes as before, are no rescales. The
    first step itself counts as cost.
    """
    if fragment.first_step_s is None or fragment.follows_failure:
        return None
    if fragment.nodes_before == 0:
        kind, from_s = Rescale.START, fragment.began_s
    elif fragment.nodes != fragment.nodes_before and fragment.step_before_s is not None:
        grows = fragment.nodes > fragment.nodes_before
        kind = Rescale.GROW if grows else Rescale.SHRINK
        from_s = fragment.step_before_s
    else:
        return None
    seconds = fragment.first_step_s - from_s
    if not 0 <= seconds < math.inf:
        return None
    return kind, Paid(fragment.began_s, seconds)


def _intervals(
    fragment: Fragment, first_step_s: float
) -> tuple[list[float], list[float]]:
    """Return lengths in seconds and speeds in samples/s of the sound intervals.

    Time that stands still or goes back, and work that is undone, is left out.
    """
    points = [
        (first_step_s, 0.0),
        *((mark.t_s, mark.samples) for mark in fragment.marks),
        (fragment.last_step_s, fragment.samples),
    ]
    sound = [
        (later_s - t_s, (more - samples) / (later_s - t_s))
        for (t_s, samples), (later_s, more) in pairwise(points)
        if 0 < later_s - t_s < math.inf and 0 <= more - samples < math.inf
    ]
    finite = [one for one in sound if one[1] < math.inf]
    return [length_s for length_s, _ in finite], [speed for _, speed in finite]


def _steady(speeds: list[float], weights_s: list[float]) -> tuple[float, float]:
    """Return median and spread of the second half, which warm-up rarely reaches."""
    half_s = sum(weights_s) / 2
    late = bisect_right(list(accumulate(weights_s)), half_s)
    steady = weighted_median(speeds[late:], weights_s[late:])
    return steady, spread(speeds[late:], weights_s[late:], steady)
