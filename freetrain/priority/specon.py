"""The priority ``specon``: slow growers make room for fast ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.errors import UsageError
from freetrain.priority.base import (
    Basis,
    CurveCache,
    LossStatus,
    Rating,
    RatingResult,
    done_samples,
    loss_status,
    plain,
    quality_after,
)
from freetrain.priority.fair import level_nodes, share_curve

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from freetrain.priority.base import Contender, Memory, RatingInputs


# ----------------------------------------------------------------------
# What moving a slow grower to its smallest size brings, and what it costs.


def is_worth_its_cost(
    slow: Contender,
    inputs: RatingInputs,
    growths: Mapping[str, float],
    others_slow: AbstractSet[str],
) -> bool:
    """Tell whether *slow* should give up its nodes above the smallest size.

    The nodes that it frees go to the fast grower that makes the most of them. In
    quality, with G for growth and S for speed-up, over the look-ahead T::

        G_f (T (S_f(n') - S_f(n)) - stops_f)  >  G_s (T (S_s(h) - S_s(m)) + stops_s)

    where stopping costs the seconds of a rescale of what is stopped. Who holds no
    more than its smallest size has nothing to move.

    Args:
        slow: The slow grower.
        inputs: All trainers.
        growths: Growth by name.
        others_slow: Names of all slow growers, who get none of what is freed.
    """
    least = slow.sizes[0]
    freed = slow.held - least
    if freed <= 0:
        return True
    most = max(
        (
            _gain(one, freed, inputs.t_fwd_s, growths[one.name])
            for one in inputs.contenders
            if one.name not in others_slow
        ),
        default=0.0,
    )
    lost_s = inputs.t_fwd_s * (_speed_up(slow, slow.held) - _speed_up(slow, least))
    stopped_s = slow.shrink_s * _speed_up(slow, slow.held)
    own = max(growths[slow.name], 0.0)
    return most > own * (lost_s + stopped_s)


def would_be_last(slow: Contender, inputs: RatingInputs) -> bool:
    """Tell whether *slow* on its smallest size would finish after all others.

    Those are taken to stay on what they hold, or on their smallest size.
    """
    others = [one for one in inputs.contenders if one is not slow]
    left_s = _left_s(slow, slow.sizes[0])
    return left_s > max(
        (_left_s(one, max(one.held, one.sizes[0])) for one in others), default=0.0
    )


def _left_s(one: Contender, nodes: int) -> float:
    """Return how long what is left takes on so many nodes; inf for nobody knows."""
    if one.total_samples is None:
        return math.inf
    speeds = one.samples_per_s
    return (one.total_samples - one.done_samples) / speeds.item(
        min(nodes, len(speeds) - 1)
    )


def _gain(one: Contender, freed: int, t_fwd_s: float, growth: float) -> float:
    """Return what *one* gains by growing into *freed* nodes, 0 where it cannot."""
    size = max((n for n in one.sizes if n <= one.held + freed), default=0)
    if size <= one.held:
        return 0.0
    now, then = _speed_up(one, one.held), _speed_up(one, size)
    stopped_s = one.grow_s * now if one.held else one.start_s * then
    return growth * (t_fwd_s * (then - now) - stopped_s)


def _speed_up(contender: Contender, nodes: int) -> float:
    """Return speed over that of a node, as it is on the smallest size."""
    least = contender.sizes[0]
    speeds = contender.samples_per_s
    return speeds.item(min(nodes, len(speeds) - 1)) / speeds.item(least) * least


# ----------------------------------------------------------------------
# Strikes against slow growers, remembered from look to inputs.


@dataclass(frozen=True, slots=True)
class Record:
    """What is remembered of a trainer.

    Attributes:
        at_s: When it was last looked at and had been training.
        samples: Work it had done by then.
        strikes: Slow looks in a row.
    """

    at_s: float
    samples: float
    strikes: int = 0


def struck(
    before: Record | None,
    contender: Contender,
    *,
    now_s: float,
    period_s: float,
    is_slow: bool,
) -> Record:
    """Return the record after a look: one strike more, none, or as it was.

    A look counts where *period_s* has passed since the last that did, and work has
    been done: who holds no nodes is not slow, and its growth is not new.
    """
    done = contender.done_samples
    if before is None:
        return Record(now_s, done, int(is_slow))
    if now_s - before.at_s < period_s or done <= before.samples:
        return before
    return Record(now_s, done, before.strikes + 1 if is_slow else 0)


def to_memory(records: Mapping[str, Record]) -> Memory:
    """Return *records* as JSON has them."""
    return {
        name: {"at_s": own.at_s, "samples": own.samples, "strikes": own.strikes}
        for name, own in records.items()
    }


def from_memory(memory: Memory) -> dict[str, Record]:
    """Return the records of *memory*; what cannot be read counts as never seen."""
    return {name: own for name in memory if (own := _record(memory[name])) is not None}


def _record(entry: object) -> Record | None:
    match entry:
        case {
            "at_s": float() | int() as at_s,
            "samples": float() | int() as samples,
            "strikes": int(strikes),
        }:
            return Record(at_s, samples, strikes)
        case _:
            return None


# ----------------------------------------------------------------------
# The priority ``specon``: slow growers make room for fast ones.

STRIKES = 2
"""Slow looks in a row after which a trainer makes room."""

UNHEARD = "no usable loss, so it has an equal share"
MAKING_ROOM = "growing slowly, so it makes room for others"

AHEAD = 1.1
"""Growth is looked at over the next tenth of the work done."""


class SpeCon:
    """Equal shares of the nodes that slow growers leave: as ``fair``, but for those.

    A trainer is slow after two looks in a row, at least *period_s* apart, at which
    its growth was under *threshold*. It makes room, by a share of its smallest size
    only, while there are fewer nodes than all could use, where moving it costs less
    than the others gain, and where it would not be the last to finish for it. Nodes
    above a share are worth a tenth: with those that nobody wants it comes back.

    Args:
        threshold: Growth below this is slow: quality for each e-fold of work.
        period_s: Looks closer together than this are one, seconds.

    Raises:
        UsageError: *threshold* or *period_s* is below 0, or not finite.
    """

    name = "specon"
    basis = Basis.LOSSES

    def __init__(self, *, threshold: float = 0.1, period_s: float = 10.0) -> None:
        for what, value in (("threshold", threshold), ("period_s", period_s)):
            if not 0 <= value < math.inf:
                raise UsageError(f"{what} {value:g} is not 0 or more.")
        self._threshold = threshold
        self._period_s = period_s
        self._curves = CurveCache()

    def rate(self, inputs: RatingInputs, memory: Memory, /) -> RatingResult:
        """Rate contenders by their share of the nodes, slow growers' being small."""
        stood = {one.name: loss_status(one) for one in inputs.contenders}
        growths = {
            one.name: self._growth(one, stood[one.name]) for one in inputs.contenders
        }
        records = self._records(inputs, from_memory(memory), growths)
        slow = {name for name, own in records.items() if own.strikes >= STRIKES}
        reasons = [
            UNHEARD
            if stood[one.name] is LossStatus.NO_LOSS
            else _reason(one, inputs, growths, slow)
            for one in inputs.contenders
        ]
        most = [
            one.sizes[0] if reason is MAKING_ROOM else one.sizes[-1]
            for one, reason in zip(inputs.contenders, reasons, strict=True)
        ]
        level = level_nodes(most, inputs.nodes)
        ratings = [
            plain(one, LossStatus.DIVERGING, self._curves)
            if stood[one.name] is LossStatus.DIVERGING
            else self._rating(one, min(level, own), reason)
            for one, own, reason in zip(inputs.contenders, most, reasons, strict=True)
        ]
        return RatingResult(tuple(ratings), to_memory(records))

    def _rating(self, one: Contender, share: float, reason: str) -> Rating:
        return Rating(curve=share_curve(one, share, self._curves), reason=reason)

    def _growth(self, one: Contender, stands: LossStatus) -> float:
        """Return the quality for each e-fold of work; the threshold if unknown."""
        if stands is LossStatus.DIVERGING:
            return 0.0
        if one.forecast is None or stands is LossStatus.NO_LOSS:
            return self._threshold
        done = done_samples(one, one.forecast)
        after = quality_after(one.forecast, AHEAD * done)
        return (after - quality_after(one.forecast, done)) / math.log(AHEAD)

    def _records(
        self,
        inputs: RatingInputs,
        before: Mapping[str, Record],
        growths: Mapping[str, float],
    ) -> dict[str, Record]:
        return {
            one.name: struck(
                before.get(one.name),
                one,
                now_s=inputs.now_s,
                period_s=self._period_s,
                is_slow=growths[one.name] < self._threshold,
            )
            for one in inputs.contenders
        }


def _reason(
    one: Contender,
    inputs: RatingInputs,
    growths: Mapping[str, float],
    slow: AbstractSet[str],
) -> str:
    """Return why *one* has an equal share, or ``MAKING_ROOM``."""
    if one.name not in slow:
        return f"growing by {growths[one.name]:.3g} an e-fold of work"
    if sum(other.sizes[-1] for other in inputs.contenders) <= inputs.nodes:
        return "growing slowly, with room for all"
    if not is_worth_its_cost(one, inputs, growths, slow):
        return "growing slowly, but to move it costs more than others gain"
    if would_be_last(one, inputs):
        return "growing slowly, but on fewer nodes it would be the last to finish"
    return MAKING_ROOM
