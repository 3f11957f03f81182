"""Growth efficiency: how much a trainer's loss falls for what the trainer uses.

The idea is FlowCon's (ICPP 2019); docs/quality-flowcon.md says where this differs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from freetrain.priority.flowcon_state import Track

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST_SHARE = 0.05
"""Nobody counts as using less: what is divided by next to nothing explodes."""

SHORTEST = 0.5
"""Part of an interval below which a stretch of time says nothing: it is added to the
next one. Arrivals cause looks at any moment."""

_HEAD = 3
"""Values at the most whose median says where a trainer began: losses fall at once."""

_SIGMAS = 2.0
"""Errors of a median within which a change of level is none."""

# Of a normal sample: its deviation from its median absolute deviation, and its
# median's error over its mean's.
_MEDIAN_ERROR = 1.4826 * 1.2533


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is seen of one trainer at a look.

    Attributes:
        name: The trainer.
        values: Pairs of time and loss since the trainer began, or since the end of
            the last measured stretch at least, ascending in time; lower is better;
            may be nan or infinite.
        used_s: Seconds of the whole resource that it has used so far: ten seconds on
            half of it are 5. Counted from anywhere.
        is_diverging: Whether somebody else knows that it does.
    """

    name: str
    values: tuple[tuple[float, float], ...]
    used_s: float
    is_diverging: bool = False


def begun(seen: Seen, now_s: float) -> Track:
    """Return the track of a trainer that is seen for the first time."""
    past = [value for _, value in seen.values if math.isfinite(value)]
    track = Track(name=seen.name, measured_s=now_s, used_s=max(0.0, seen.used_s))
    if not past:
        return track
    level = median(past[-_few(past) :])
    return replace(track, first=median(past[: _few(past)]), best=level, last=level)


def measured(track: Track, seen: Seen, now_s: float, interval_s: float) -> Track | None:
    """Return *track* with the growth since it was last measured.

    Growth is the part of the whole drop shown so far that was gained, by interval and
    by share used::

        G = gained / (first - best) / (time / interval_s) / share used

    Gained is what the level fell below the best so far; a level above the last one
    counts against it; getting back what was lost counts for nothing. So one spike
    neither flattens what comes after it nor earns anything when it is over. A change
    that is within the noise of the values is none.

    Args:
        track: What was remembered.
        seen: What is seen now.
        now_s: The time now.
        interval_s: The unit of time.

    Returns:
        None where nothing can be said yet: no value since, or too little time.
        Growth is between -1 and 1 over ``LEAST_SHARE`` and over ``SHORTEST``.
    """
    stretch_s = now_s - track.measured_s
    values = [value for t_s, value in seen.values if track.measured_s < t_s <= now_s]
    if stretch_s < SHORTEST * interval_s or not (values or seen.is_diverging):
        return None
    finite = [value for value in values if math.isfinite(value)]
    share = min(1.0, max(LEAST_SHARE, spent_s(track, seen) / stretch_s))
    worth = 1 / (stretch_s / interval_s) / share
    used_s = max(0.0, seen.used_s)
    after = replace(track, measured_s=now_s, used_s=used_s, spent_s=0.0)
    if seen.is_diverging or not finite or not math.isfinite(values[-1]):
        return replace(after, growth=-worth)
    first, level = _first(track, finite), median(finite)
    before = first if track.best is None else track.best
    after = replace(after, first=first, best=min(before, level), last=level)
    part = _part(track, after, level, error(finite))
    return replace(after, growth=None if part is None else part * worth)


def error(values: Sequence[float]) -> float:
    """Return how far the median of *values*, in order, may be off by chance.

    From the differences of neighbours, which a steady fall leaves alike.
    """
    steps = [after - before for before, after in pairwise(values)]
    if not steps:
        return 0.0
    usual = median(steps)
    deviation = median(abs(step - usual) for step in steps) / math.sqrt(2)
    return _SIGMAS * _MEDIAN_ERROR * deviation / math.sqrt(len(values))


def _few(values: Sequence[float]) -> int:
    return max(1, min(_HEAD, len(values) // _HEAD))


def _first(track: Track, finite: Sequence[float]) -> float:
    return median(finite[: _few(finite)]) if track.first is None else track.first


def _part(before: Track, after: Track, level: float, noise: float) -> float | None:
    """Return what part of the drop was gained, -1 to 1; None where none was shown."""
    first, best = after.first or 0.0, after.best or 0.0
    old_best = first if before.best is None else before.best
    last = first if before.last is None else before.last
    gained = old_best - level if level < old_best else min(0.0, last - level)
    if abs(gained) <= noise:
        return None if before.last is None and gained == 0 else 0.0
    drop = first - best
    return max(-1.0, min(1.0, gained / drop)) if drop > 0 else -1.0


def spent_s(track: Track, seen: Seen) -> float:
    """Return what a trainer has used since it was last measured."""
    # A trainer that was started anew counts from 0 again.
    spent = seen.used_s - track.used_s
    return spent if spent >= 0 else max(0.0, seen.used_s)
