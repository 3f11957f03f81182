"""The priority ``flowcon``: trainers that still grow get more, by growth efficiency.

FlowCon's algorithm shares one resource among trainers: ``update`` measures how much
each trainer's loss fell for what it used, moves trainers between lists, and computes
shares. It is pure, and packs share the CPUs of a node by it, too. ``FlowCon`` is the
priority that rates trainers by these shares among nodes.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from freetrain.errors import UsageError
from freetrain.losscurve.forecast import MetricDirection
from freetrain.priority.base import CurveCache, Rating, RatingBasis, RatingResult
from freetrain.text import per_cent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from freetrain.priority.base import Contender, Memory, RatingInputs
    from milp.problem import Curve

DEFAULT_ALPHA = 0.03
"""The authors' threshold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowConSettings:
    """Constants of the algorithm.

    Attributes:
        interval_s: Time between two updates while any trainer grows; the unit of time
            of growth.
        alpha: Growth efficiency below which a trainer gets a strike.
        most_doublings: How often the interval doubles at the most.
        least_gain: Shares that would change by less than this part stay.
    """

    interval_s: float
    alpha: float = DEFAULT_ALPHA
    most_doublings: int = 6
    least_gain: float = 0.05


class GrowthList(StrEnum):
    """The list that a trainer is in."""

    NEW = "new"
    WATCHING = "watching"
    COMPLETING = "completing"


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthSample:
    """The losses of one trainer and what it has used, for one update.

    Attributes:
        name: The trainer.
        values: Pairs of time and loss since the trainer began, or at least since its
            growth was last measured, ascending in time; lower is better; may be nan or
            infinite.
        used_s: Seconds of the whole resource that it has used so far: ten seconds on
            half of it are 5. Counted from any origin.
        is_diverging: Whether its forecast says that it diverges.
    """

    name: str
    values: tuple[tuple[float, float], ...]
    used_s: float
    is_diverging: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthTrack:
    """The growth of one trainer so far. Levels are medians; lower is better.

    Attributes:
        name: The trainer.
        measured_s: When its level was last measured.
        used_s: Seconds of the whole resource that it had used by then.
        spent_s: Seconds of the whole resource that it has used since then.
        first: The level that it began with; None before its first value.
        best: The lowest level so far; likewise.
        last: The level that was measured last; likewise.
        growth: Growth efficiency that was measured last; None where it is unknown.
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
    place: GrowthList = GrowthList.NEW
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class FlowConState:
    """The state of all trainers from one update to the next.

    Attributes:
        tracks: The trainers at the last update, in their order.
        due_s: When the next update is due, unless a trainer comes or goes before.
        doublings: How often the interval has doubled.
    """

    tracks: tuple[GrowthTrack, ...] = ()
    due_s: float = 0.0
    doublings: int = 0

    @property
    def shares(self) -> dict[str, float]:
        """The part of the resource that each trainer is to have; 1 in all."""
        return {track.name: track.share for track in self.tracks}


def is_due(state: FlowConState, names: Iterable[str], now_s: float) -> bool:
    """Tell whether an update is due: it is time, or a trainer came or went."""
    return now_s >= state.due_s or {t.name for t in state.tracks} != set(names)


def update(
    state: FlowConState,
    samples: Sequence[GrowthSample],
    now_s: float,
    settings: FlowConSettings,
) -> FlowConState:
    """Return the next state, with new shares; call it when ``is_due`` says so.

    Args:
        state: The last state; ``FlowConState()`` at first.
        samples: All trainers, each once.
        now_s: The time, on a clock that never goes back.
        settings: The same for every update.
    """
    known = {track.name: track for track in state.tracks}
    tracks = [_track(known.get(s.name), s, now_s, settings) for s in samples]
    resting = bool(tracks) and all(t.place is GrowthList.COMPLETING for t in tracks)
    same = known.keys() == {sample.name for sample in samples}
    doublings = (
        min(state.doublings + 1, settings.most_doublings) if resting and same else 0
    )
    due_s = now_s + settings.interval_s * 2**doublings
    parts = shares(tracks, settings)
    if same and _is_nearly(
        [track.share for track in tracks], parts, settings.least_gain
    ):
        parts = [track.share for track in tracks]
    shared = (
        replace(track, share=part) for track, part in zip(tracks, parts, strict=True)
    )
    return FlowConState(tuple(shared), due_s, doublings)


def _track(
    track: GrowthTrack | None,
    sample: GrowthSample,
    now_s: float,
    settings: FlowConSettings,
) -> GrowthTrack:
    if track is None:
        return _first_track(sample, now_s)
    after = _measured(track, sample, now_s, settings.interval_s)
    if after is None:
        return replace(track, spent_s=spent_s(track, sample))
    if after.growth is None:
        return after
    return replace(after, place=next_list(track.place, after.growth, settings.alpha))


def next_list(place: GrowthList, growth: float, alpha: float) -> GrowthList:
    """Return the list that a trainer in *place* moves to: two strikes and out."""
    if growth >= alpha:
        return GrowthList.NEW
    return GrowthList.WATCHING if place is GrowthList.NEW else GrowthList.COMPLETING


def _is_nearly(old: Sequence[float], new: Sequence[float], least: float) -> bool:
    return all(abs(n - o) <= least * o for o, n in zip(old, new, strict=True))


# Growth efficiency: how much a trainer's loss falls for what the trainer uses

LEAST_SHARE = 0.05
"""Every trainer counts as using at least this: growth divides by it."""

SHORTEST = 0.5
"""Part of an interval below which nothing is measured: that time is added to the next
measurement. Arrivals cause updates at any moment."""

_HEAD = 3
"""Values at the most whose median is the first level: losses fall at once."""

_SIGMAS = 2.0
"""Errors of a median within which a change of level is none."""

# Of a normal sample: its deviation from its median absolute deviation, and its
# median's error over its mean's.
_MEDIAN_ERROR = 1.4826 * 1.2533


def _first_track(sample: GrowthSample, now_s: float) -> GrowthTrack:
    """Return the track of a new trainer."""
    past = [value for _, value in sample.values if math.isfinite(value)]
    track = GrowthTrack(
        name=sample.name, measured_s=now_s, used_s=max(0.0, sample.used_s)
    )
    if not past:
        return track
    level = median(past[-_few(past) :])
    return replace(track, first=median(past[: _few(past)]), best=level, last=level)


def _measured(
    track: GrowthTrack, sample: GrowthSample, now_s: float, interval_s: float
) -> GrowthTrack | None:
    """Return *track* with the growth since it was last measured.

    Growth is the part of the whole drop shown so far that was gained, by interval and
    by share used::

        G = gained / (first - best) / (time / interval_s) / share used

    Gained is the fall of the level below the best so far; a level above the last one
    counts against it; a return from a loss to the best counts for nothing. So a spike
    neither hides the growth after it nor earns anything when it is over. A change
    within the noise of the values is none.

    Returns:
        None where nothing can be measured yet: no value since, or too little time.
        Growth is between -1 and 1 over ``LEAST_SHARE`` and over ``SHORTEST``.
    """
    passed_s = now_s - track.measured_s
    values = [value for t_s, value in sample.values if track.measured_s < t_s <= now_s]
    if passed_s < SHORTEST * interval_s or not (values or sample.is_diverging):
        return None
    finite = [value for value in values if math.isfinite(value)]
    share = min(1.0, max(LEAST_SHARE, spent_s(track, sample) / passed_s))
    worth = 1 / (passed_s / interval_s) / share
    used_s = max(0.0, sample.used_s)
    after = replace(track, measured_s=now_s, used_s=used_s, spent_s=0.0)
    if sample.is_diverging or not finite or not math.isfinite(values[-1]):
        return replace(after, growth=-worth)
    first, level = _first_level(track, finite), median(finite)
    before = first if track.best is None else track.best
    after = replace(after, first=first, best=min(before, level), last=level)
    part = _gained_part(track, after, level, _error_of_median(finite))
    return replace(after, growth=None if part is None else part * worth)


def _first_level(track: GrowthTrack, finite: Sequence[float]) -> float:
    return median(finite[: _few(finite)]) if track.first is None else track.first


def _few(values: Sequence[float]) -> int:
    return max(1, min(_HEAD, len(values) // _HEAD))


def _gained_part(
    before: GrowthTrack, after: GrowthTrack, level: float, noise: float
) -> float | None:
    """Return the part of the drop that was gained, -1 to 1; None before any drop."""
    first, best = after.first or 0.0, after.best or 0.0
    old_best = first if before.best is None else before.best
    last = first if before.last is None else before.last
    gained = old_best - level if level < old_best else min(0.0, last - level)
    if abs(gained) <= noise:
        return None if before.last is None and gained == 0 else 0.0
    drop = first - best
    return max(-1.0, min(1.0, gained / drop)) if drop > 0 else -1.0


def _error_of_median(values: Sequence[float]) -> float:
    """Return how far the median of *values*, in order, may be off by chance.

    From the differences of neighbours, which a steady fall leaves alike.
    """
    steps = [after - before for before, after in pairwise(values)]
    if not steps:
        return 0.0
    usual = median(steps)
    deviation = median(abs(step - usual) for step in steps) / math.sqrt(2)
    return _SIGMAS * _MEDIAN_ERROR * deviation / math.sqrt(len(values))


def spent_s(track: GrowthTrack, sample: GrowthSample) -> float:
    """Return what a trainer has used since its growth was last measured."""
    # A trainer that was started anew counts from 0 again.
    spent = sample.used_s - track.used_s
    return spent if spent >= 0 else max(0.0, sample.used_s)


# From growth and lists to shares of the resource

PATIENCE = 2
"""Intervals on an equal share for which a trainer without values counts as growing."""


def shares(tracks: Sequence[GrowthTrack], settings: FlowConSettings) -> list[float]:
    """Return the part of the resource for each of *tracks*; 1 in all.

    Parts are weights, not limits: others may use what a trainer leaves. With n
    trainers, G the growth of a trainer and the sum over all that grow::

        new         max(G / sum, 1 / (beta n))
        watching    what it had, 1 / (beta n) at least
        completing  max(G / sum, 1 / (beta n)),   beta = 1 + 1/n
        silent      1 / n

    divided by their sum. Where all are completing, all have the same.
    """
    if not tracks:
        return []
    count = len(tracks)
    if all(track.place is GrowthList.COMPLETING for track in tracks):
        return [1 / count] * count
    growths = [_counted_growth(track, count, settings) for track in tracks]
    # Growth below the threshold is none: alone, it must not look like the whole.
    whole = max(settings.alpha, sum(growth or 0.0 for growth in growths))
    parts = [
        _part(track, growth, whole=whole, count=count)
        for track, growth in zip(tracks, growths, strict=True)
    ]
    return [part / sum(parts) for part in parts]


def _counted_growth(
    track: GrowthTrack, count: int, settings: FlowConSettings
) -> float | None:
    """Return the growth that counts: never below 0; None for a silent trainer.

    A newcomer's is guessed: its first drop is its whole drop so far, so part 1 in one
    interval, on an equal share.
    """
    if track.growth is not None:
        return max(0.0, track.growth)
    is_young = track.spent_s < PATIENCE * settings.interval_s / count
    return float(count) if is_young else None


def _part(
    track: GrowthTrack, growth: float | None, *, whole: float, count: int
) -> float:
    if growth is None:
        return 1 / count
    earned = track.share if track.place is GrowthList.WATCHING else growth / whole
    return max(earned, 1 / (count + 1))


# The state as JSON


def to_json(state: FlowConState) -> dict[str, object]:
    """Return *state* as JSON has it."""
    fields = asdict(state)
    return fields | {"tracks": list(fields["tracks"])}


def from_json(fields: Mapping[str, object]) -> FlowConState:
    """Return the state that ``to_json`` wrote; a new state if it cannot be read."""
    try:
        tracks = fields["tracks"]
        if not isinstance(tracks, list):
            return FlowConState()
        read = tuple(
            GrowthTrack(**{**track, "place": GrowthList(track["place"])})
            for track in tracks
        )
        return FlowConState(
            read, float(str(fields["due_s"])), int(str(fields["doublings"]))
        )
    except (KeyError, TypeError, ValueError):
        return FlowConState()


# The priority


class FlowCon:
    """Rates trainers by the shares that FlowCon gives them.

    The interval is the planner's look-ahead. The memory has the state of the algorithm,
    and what every trainer has used of the nodes.

    Args:
        alpha: Growth efficiency below which a trainer gets a strike.

    Raises:
        UsageError: *alpha* is not above 0, or not finite.
    """

    name = "flowcon"
    basis = RatingBasis.LOSSES

    def __init__(self, alpha: float = DEFAULT_ALPHA) -> None:
        if not 0 < alpha < math.inf:
            raise UsageError(
                f"alpha {alpha:g} is not above 0. Give the growth efficiency below "
                f"which a trainer is watched, such as {DEFAULT_ALPHA:g}."
            )
        self._alpha = alpha
        self._curves = CurveCache()

    def rate(self, inputs: RatingInputs, memory: Memory, /) -> RatingResult:
        """Return a rating for each contender."""
        state = from_json(_table(memory.get("state")))
        used_s = _used_s(inputs, memory)
        names = [contender.name for contender in inputs.contenders]
        if is_due(state, names, inputs.now_s):
            samples = [_sample_of(c, used_s[c.name]) for c in inputs.contenders]
            settings = FlowConSettings(interval_s=inputs.t_fwd_s, alpha=self._alpha)
            state = update(state, samples, inputs.now_s, settings)
        tracks = {track.name: track for track in state.tracks}
        ratings = (
            self._rating(contender, tracks[contender.name])
            for contender in inputs.contenders
        )
        held = {
            contender.name: contender.held / max(1, inputs.nodes)
            for contender in inputs.contenders
        }
        remembered = {
            "state": to_json(state),
            "used_s": used_s,
            "held": held,
            "now_s": inputs.now_s,
        }
        return RatingResult(tuple(ratings), remembered)

    def _rating(self, contender: Contender, track: GrowthTrack) -> Rating:
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
        """Return a worth by which the planner gives nodes by share.

        The sum of share * log(1 + speed) is largest where 1 + speed goes by share, if
        speed goes by nodes; that of share * speed would give all to the largest.
        """
        speed = self._curves.speed_up(contender).value_per_s
        worth = share * contender.weight * np.log1p(np.maximum(0.0, speed))
        return self._curves.custom(worth, contender.sizes)


def _used_s(inputs: RatingInputs, memory: Memory) -> dict[str, float]:
    """Return the seconds of all nodes that each contender has used so far."""
    passed_s = max(0.0, inputs.now_s - _number(memory.get("now_s", inputs.now_s)))
    used, held = _table(memory.get("used_s")), _table(memory.get("held"))
    return {
        contender.name: _number(used.get(contender.name))
        + passed_s * _number(held.get(contender.name))
        for contender in inputs.contenders
    }


def _sample_of(contender: Contender, used_s: float) -> GrowthSample:
    forecast = contender.forecast
    if forecast is None:
        return GrowthSample(name=contender.name, values=(), used_s=used_s)
    sign = -1.0 if forecast.better is MetricDirection.HIGHER else 1.0
    return GrowthSample(
        name=contender.name,
        values=tuple((point.t_s, sign * point.value) for point in forecast.points),
        used_s=used_s,
        is_diverging=forecast.is_diverging,
    )


def _reason(track: GrowthTrack, *, has_loss: bool, is_diverging: bool) -> str:
    share = f"share {per_cent(track.share)}"
    if is_diverging:
        return f"diverging, {track.place}, {share}: gets what the others leave"
    if not has_loss:
        return f"no usable loss, rated by throughput, {share}"
    if track.growth is None:
        return f"growth not known yet, {track.place}, {share}"
    return f"growth efficiency {track.growth:.3g}, {track.place}, {share}"


def _table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
