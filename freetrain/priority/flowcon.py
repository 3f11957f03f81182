"""FlowCon among nodes: those that still grow get more, by growth efficiency."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from freetrain.errors import UsageError
from freetrain.losscurve.forecast import Better
from freetrain.priority.base import Basis, CurveCache, Rating, RatingResult
from freetrain.text import per_cent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from freetrain.priority.base import Contender, Memory, RatingInputs
    from milp.problem import Curve


# ----------------------------------------------------------------------
# What FlowCon remembers from one look to the next; JSON goes in and out.

DEFAULT_ALPHA = 0.03
"""The authors' threshold."""


class List(StrEnum):
    """The list that a trainer is in."""

    NEW = "new"
    WATCHING = "watching"
    COMPLETING = "completing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How FlowCon looks.

    Attributes:
        interval_s: Time between two looks while anybody grows; the unit of time in
            which growth is told.
        alpha: Growth efficiency below which a trainer gets a strike.
        most_doublings: How often the interval doubles at the most.
        least_gain: Shares that would change by less than this part stay.
    """

    interval_s: float
    alpha: float = DEFAULT_ALPHA
    most_doublings: int = 6
    least_gain: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """What is remembered of one trainer. Levels are medians; lower is better.

    Attributes:
        name: The trainer.
        measured_s: The end of the last stretch of time whose level is known.
        used_s: What it had used by then: seconds of the whole resource.
        spent_s: What it has used since then.
        first: The level that it began with; None before its first value.
        best: The lowest level so far; likewise.
        last: The level of the last stretch; likewise.
        growth: Growth efficiency over the last stretch; None where nobody knows.
        place: The list that it is in.
        share: Its part of the resource, 0 to 1.
    """

    name: str
    measured_s: float
    used_s: float = 0.0
    spent_s: float = 0.0
    first: float | None = None
    best: float | None = None
    last: float | None = None
    growth: float | None = None
    place: List = List.NEW
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class State:
    """What is remembered of all.

    Attributes:
        tracks: The trainers at the last look, in their order.
        due_s: When the next look is due, if nobody comes or goes before.
        doublings: How often the interval has doubled.
    """

    tracks: tuple[Track, ...] = ()
    due_s: float = 0.0
    doublings: int = 0

    @property
    def shares(self) -> dict[str, float]:
        """The part of the resource that each trainer is to have; 1 in all."""
        return {track.name: track.share for track in self.tracks}


def to_json(state: State) -> dict[str, object]:
    """Return *state* as JSON has it."""
    told = asdict(state)
    return told | {"tracks": list(told["tracks"])}


def from_json(told: Mapping[str, object]) -> State:
    """Return what ``to_json`` was given; a beginning where *told* is nothing of it."""
    try:
        tracks = told["tracks"]
        if not isinstance(tracks, list):
            return State()
        read = tuple(
            Track(**{**track, "place": List(track["place"])}) for track in tracks
        )
        return State(read, float(str(told["due_s"])), int(str(told["doublings"])))
    except (KeyError, TypeError, ValueError):
        return State()


# ----------------------------------------------------------------------
# Growth efficiency: how much a trainer's loss falls for what the trainer uses.

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
    part = _part_flowcon_growth(track, after, level, error(finite))
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


def _part_flowcon_growth(
    before: Track, after: Track, level: float, noise: float
) -> float | None:
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


# ----------------------------------------------------------------------
# From growth and lists to shares of the resource.

PATIENCE = 2
"""Intervals on an equal share for which a trainer that has told nothing yet counts as
one that grows."""


def shares(tracks: Sequence[Track], how: Settings) -> list[float]:
    """Return the part of the resource for each of *tracks*; 1 in all.

    Parts are weights, not limits: what one does not use is the others'. With n
    trainers, G the growth of one and the sum over all that grow::

        new         max(G / sum, 1 / (beta n))
        watching    what it had, 1 / (beta n) at least
        completing  max(G / sum, 1 / (beta n)),   beta = 1 + 1/n
        silent      1 / n

    divided by their sum. Where all are completing, all have the same.
    """
    if not tracks:
        return []
    count = len(tracks)
    if all(track.place is List.COMPLETING for track in tracks):
        return [1 / count] * count
    growths = [_growth(track, count, how) for track in tracks]
    # Growth below the threshold is none: alone, it must not look like the whole.
    whole = max(how.alpha, sum(growth or 0.0 for growth in growths))
    parts = [
        _part_flowcon_shares(track, growth, whole=whole, count=count)
        for track, growth in zip(tracks, growths, strict=True)
    ]
    return [part / sum(parts) for part in parts]


def _part_flowcon_shares(
    track: Track, growth: float | None, *, whole: float, count: int
) -> float:
    if growth is None:
        return 1 / count
    earned = track.share if track.place is List.WATCHING else growth / whole
    return max(earned, 1 / (count + 1))


def _growth(track: Track, count: int, how: Settings) -> float | None:
    """Return the growth that counts: never below 0; None for who is silent.

    A newcomer's is guessed: a first drop is all that a trainer has shown, so part 1
    in one interval, on an equal share.
    """
    if track.growth is not None:
        return max(0.0, track.growth)
    is_young = track.spent_s < PATIENCE * how.interval_s / count
    return float(count) if is_young else None


# ----------------------------------------------------------------------
# FlowCon's algorithm: one look at all trainers of one resource; pure.


def is_due(state: State, names: Iterable[str], now_s: float) -> bool:
    """Tell whether to look now: it is time, or somebody came or went."""
    return now_s >= state.due_s or {t.name for t in state.tracks} != set(names)


def look(state: State, seen: Sequence[Seen], now_s: float, how: Settings) -> State:
    """Return the state after a look at *seen*; call it when ``is_due`` says so.

    Args:
        state: What the last look returned; ``State()`` for the first.
        seen: The trainers there are, each once.
        now_s: The time, on a clock that never goes back.
        how: The settings; the same at every look.
    """
    known = {track.name: track for track in state.tracks}
    tracks = [_track(known.get(one.name), one, now_s, how) for one in seen]
    resting = bool(tracks) and all(one.place is List.COMPLETING for one in tracks)
    same = known.keys() == {one.name for one in seen}
    doublings = min(state.doublings + 1, how.most_doublings) if resting and same else 0
    due_s = now_s + how.interval_s * 2**doublings
    parts = shares(tracks, how)
    if same and _is_nearly([track.share for track in tracks], parts, how.least_gain):
        parts = [track.share for track in tracks]
    shared = (
        replace(track, share=part) for track, part in zip(tracks, parts, strict=True)
    )
    return State(tuple(shared), due_s, doublings)


def _track(track: Track | None, seen: Seen, now_s: float, how: Settings) -> Track:
    if track is None:
        return begun(seen, now_s)
    after = measured(track, seen, now_s, how.interval_s)
    if after is None:
        return replace(track, spent_s=spent_s(track, seen))
    if after.growth is None:
        return after
    return replace(after, place=moved(track.place, after.growth, how.alpha))


def moved(place: List, growth: float, alpha: float) -> List:
    """Return the list that a trainer in *place* is moved to: two strikes and out."""
    if growth >= alpha:
        return List.NEW
    return List.WATCHING if place is List.NEW else List.COMPLETING


def _is_nearly(old: Sequence[float], new: Sequence[float], least: float) -> bool:
    return all(abs(n - o) <= least * o for o, n in zip(old, new, strict=True))


# ----------------------------------------------------------------------
# FlowCon among nodes: those that still grow get more, by growth efficiency.


class FlowCon:
    """Rates trainers by the shares that FlowCon gives them.

    A look's interval is the planner's look-ahead; memory has lists, back-off, and
    what everybody has used of the nodes.

    Args:
        alpha: Growth efficiency below which a trainer gets a strike.

    Raises:
        UsageError: *alpha* is not above 0, or not finite.
    """

    name = "flowcon"
    basis = Basis.LOSSES

    def __init__(self, alpha: float = DEFAULT_ALPHA) -> None:
        if not 0 < alpha < math.inf:
            raise UsageError(
                f"alpha {alpha:g} is not above 0. Give the growth efficiency below "
                f"which a trainer is watched, such as {DEFAULT_ALPHA:g}."
            )
        self._alpha = alpha
        self._curves = CurveCache()

    def rate(self, now: RatingInputs, memory: Memory, /) -> RatingResult:
        """Return a rating for each contender."""
        state = from_json(_table(memory.get("state")))
        used_s = _used_s(now, memory)
        names = [contender.name for contender in now.contenders]
        if is_due(state, names, now.now_s):
            seen = [_seen(one, used_s[one.name]) for one in now.contenders]
            how = Settings(interval_s=now.t_fwd_s, alpha=self._alpha)
            state = look(state, seen, now.now_s, how)
        tracks = {track.name: track for track in state.tracks}
        ratings = (self._rating(one, tracks[one.name]) for one in now.contenders)
        held = {one.name: one.held / max(1, now.nodes) for one in now.contenders}
        remembered = {
            "state": to_json(state),
            "used_s": used_s,
            "held": held,
            "now_s": now.now_s,
        }
        return RatingResult(tuple(ratings), remembered)

    def _rating(self, contender: Contender, track: Track) -> Rating:
        forecast = contender.forecast
        is_diverging = forecast is not None and forecast.is_diverging
        return Rating(
            curve=self._curve(contender, track.share),
            is_background=is_diverging,
            reason=_reason(
                track, has_loss=forecast is not None, is_diverging=is_diverging
            ),
        )

    def _curve(self, contender: Contender, share: float) -> Curve:
        """Return worth that makes the planner give nodes by share.

        The sum of share * log(1 + speed) is largest where 1 + speed goes by share, if
        speed goes by nodes; that of share * speed would give all to the largest.
        """
        speed = self._curves.speed_up(contender).value_per_s
        worth = share * contender.weight * np.log1p(np.maximum(0.0, speed))
        return self._curves.custom(worth, contender.sizes)


def _table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _used_s(now: RatingInputs, memory: Memory) -> dict[str, float]:
    """Return what each contender has used: seconds of all nodes, by what it held."""
    passed_s = max(0.0, now.now_s - _number(memory.get("now_s", now.now_s)))
    used, held = _table(memory.get("used_s")), _table(memory.get("held"))
    return {
        one.name: _number(used.get(one.name)) + passed_s * _number(held.get(one.name))
        for one in now.contenders
    }


def _seen(contender: Contender, used_s: float) -> Seen:
    forecast = contender.forecast
    if forecast is None:
        return Seen(name=contender.name, values=(), used_s=used_s)
    sign = -1.0 if forecast.better is Better.HIGHER else 1.0
    return Seen(
        name=contender.name,
        values=tuple((point.t_s, sign * point.value) for point in forecast.points),
        used_s=used_s,
        is_diverging=forecast.is_diverging,
    )


def _reason(track: Track, *, has_loss: bool, is_diverging: bool) -> str:
    share = f"share {per_cent(track.share)}"
    if is_diverging:
        return f"diverging, {track.place}, {share}: gets what the others leave"
    if not has_loss:
        return f"no usable loss, rated by throughput, {share}"
    if track.growth is None:
        return f"growth not known yet, {track.place}, {share}"
    return f"growth efficiency {track.growth:.3g}, {track.place}, {share}"
