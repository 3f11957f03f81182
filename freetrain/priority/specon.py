"""The priority ``specon``: slow growers make room for fast ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.errors import UsageError
from freetrain.priority.base import CurveCache, Rating, RatingBasis, RatingResult
from freetrain.priority.fair import level_nodes, share_curve
from freetrain.priority.losses import (
    LossStatus,
    done_samples,
    loss_status,
    quality_after,
    rating_by_speed_up,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from freetrain.priority.base import Contender, Memory, RatingInputs

STRIKES = 2
"""Slow ratings in a row after which a trainer makes room."""

NO_LOSS = "no usable loss, so it has an equal share"

MAKING_ROOM = "growing slowly, so it makes room for others"

AHEAD = 1.1
"""Growth is predicted over the next tenth of the work done."""


class SpeCon:
    """Equal shares of the nodes as by ``fair``, but a slow grower's share is small.

    A trainer is slow after two ratings in a row, at least *period_s* apart, at which
    its growth was under *threshold*. Its share is then its smallest size, while there
    are fewer nodes than all could use, if moving it costs less than the others gain,
    and if it would not be the last to finish because of that. Nodes above a share are
    worth a tenth: so it grows again on nodes that no other trainer wants.

    Args:
        threshold: Growth below this is slow: quality for each e-fold of work.
        period_s: Ratings closer together than this count as one, seconds.

    Raises:
        UsageError: *threshold* or *period_s* is below 0, or not finite.
    """

    name = "specon"
    basis = RatingBasis.LOSSES

    def __init__(self, *, threshold: float = 0.1, period_s: float = 10.0) -> None:
        for what, value in (("threshold", threshold), ("period_s", period_s)):
            if not 0 <= value < math.inf:
                raise UsageError(f"{what} {value:g} is not 0 or more.")
        self._threshold = threshold
        self._period_s = period_s
        self._curves = CurveCache()

    def rate(self, inputs: RatingInputs, memory: Memory, /) -> RatingResult:
        """Rate contenders by their share of the nodes."""
        statuses = {
            contender.name: loss_status(contender) for contender in inputs.contenders
        }
        growths = {
            contender.name: self._growth(contender, statuses[contender.name])
            for contender in inputs.contenders
        }
        records = self._strikes(inputs, from_memory(memory), growths)
        slow = {name for name, own in records.items() if own.strikes >= STRIKES}
        reasons = [
            NO_LOSS
            if statuses[contender.name] is LossStatus.NO_LOSS
            else _reason(contender, inputs, growths, slow)
            for contender in inputs.contenders
        ]
        most = [
            contender.sizes[0] if reason is MAKING_ROOM else contender.sizes[-1]
            for contender, reason in zip(inputs.contenders, reasons, strict=True)
        ]
        level = level_nodes(most, inputs.nodes)
        ratings = [
            rating_by_speed_up(contender, LossStatus.DIVERGING, self._curves)
            if statuses[contender.name] is LossStatus.DIVERGING
            else self._rating(contender, min(level, own), reason)
            for contender, own, reason in zip(
                inputs.contenders, most, reasons, strict=True
            )
        ]
        return RatingResult(tuple(ratings), to_memory(records))

    def _rating(self, contender: Contender, share: float, reason: str) -> Rating:
        return Rating(curve=share_curve(contender, share, self._curves), reason=reason)

    def _growth(self, contender: Contender, status: LossStatus) -> float:
        """Return the quality for each e-fold of work; the threshold if unknown."""
        if status is LossStatus.DIVERGING:
            return 0.0
        if contender.forecast is None or status is LossStatus.NO_LOSS:
            return self._threshold
        done = done_samples(contender, contender.forecast)
        after = quality_after(contender.forecast, AHEAD * done)
        return (after - quality_after(contender.forecast, done)) / math.log(AHEAD)

    def _strikes(
        self,
        inputs: RatingInputs,
        before: Mapping[str, Strikes],
        growths: Mapping[str, float],
    ) -> dict[str, Strikes]:
        return {
            contender.name: strikes_after(
                before.get(contender.name),
                contender,
                now_s=inputs.now_s,
                period_s=self._period_s,
                is_slow=growths[contender.name] < self._threshold,
            )
            for contender in inputs.contenders
        }


def _reason(
    contender: Contender,
    inputs: RatingInputs,
    growths: Mapping[str, float],
    slow: AbstractSet[str],
) -> str:
    """Return why *contender* has an equal share, or ``MAKING_ROOM``."""
    if contender.name not in slow:
        return f"growing by {growths[contender.name]:.3g} an e-fold of work"
    if sum(other.sizes[-1] for other in inputs.contenders) <= inputs.nodes:
        return "growing slowly, with room for all"
    if not is_worth_its_cost(contender, inputs, growths, slow):
        return "growing slowly, but to move it costs more than others gain"
    if would_be_last(contender, inputs):
        return "growing slowly, but on fewer nodes it would be the last to finish"
    return MAKING_ROOM


# Strikes against slow growers, remembered from rating to rating


@dataclass(frozen=True, slots=True)
class Strikes:
    """The memory of a trainer.

    Attributes:
        at_s: The time of the last rating that counted.
        samples: Work it had done by then.
        strikes: Slow ratings in a row.
    """

    at_s: float
    samples: float
    strikes: int = 0


def strikes_after(
    before: Strikes | None,
    contender: Contender,
    *,
    now_s: float,
    period_s: float,
    is_slow: bool,
) -> Strikes:
    """Return the strikes after a rating: one more, none, or as before.

    A rating counts if *period_s* has passed since the last that did, and work has been
    done: a trainer without nodes is not slow, and its growth is not new.
    """
    done = contender.done_samples
    if before is None:
        return Strikes(now_s, done, int(is_slow))
    if now_s - before.at_s < period_s or done <= before.samples:
        return before
    return Strikes(now_s, done, before.strikes + 1 if is_slow else 0)


def to_memory(records: Mapping[str, Strikes]) -> Memory:
    """Return *records* as JSON."""
    return {
        name: {"at_s": own.at_s, "samples": own.samples, "strikes": own.strikes}
        for name, own in records.items()
    }


def from_memory(memory: Memory) -> dict[str, Strikes]:
    """Return the records in *memory*, without those that cannot be read."""
    return {
        name: own for name in memory if (own := _strikes_in(memory[name])) is not None
    }


def _strikes_in(entry: object) -> Strikes | None:
    match entry:
        case {
            "at_s": float() | int() as at_s,
            "samples": float() | int() as samples,
            "strikes": int(strikes),
        }:
            return Strikes(at_s, samples, strikes)
        case _:
            return None


# The gain of moving a slow grower to its smallest size, and its cost


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

    where stops are the seconds of a rescale. A trainer that holds no more than its
    smallest size has nothing to move.

    Args:
        slow: The slow grower.
        inputs: All trainers.
        growths: Growth by name.
        others_slow: Names of all slow growers, which get none of the freed nodes.
    """
    least = slow.sizes[0]
    freed = slow.held - least
    if freed <= 0:
        return True
    most = max(
        (
            _gain(contender, freed, inputs.t_fwd_s, growths[contender.name])
            for contender in inputs.contenders
            if contender.name not in others_slow
        ),
        default=0.0,
    )
    lost_s = inputs.t_fwd_s * (_speed_up(slow, slow.held) - _speed_up(slow, least))
    stopped_s = slow.shrink_s * _speed_up(slow, slow.held)
    own = max(growths[slow.name], 0.0)
    return most > own * (lost_s + stopped_s)


def would_be_last(slow: Contender, inputs: RatingInputs) -> bool:
    """Tell whether *slow* on its smallest size would finish after all others.

    The others are taken to stay on the nodes they hold, or on their smallest size.
    """
    others = [contender for contender in inputs.contenders if contender is not slow]
    left_s = _left_s(slow, slow.sizes[0])
    return left_s > max(
        (
            _left_s(contender, max(contender.held, contender.sizes[0]))
            for contender in others
        ),
        default=0.0,
    )


def _left_s(contender: Contender, nodes: int) -> float:
    """Return the seconds of the remaining work on *nodes*; inf where it is unknown."""
    if contender.total_samples is None:
        return math.inf
    speeds = contender.samples_per_s
    return (contender.total_samples - contender.done_samples) / speeds.item(
        min(nodes, len(speeds) - 1)
    )


def _gain(contender: Contender, freed: int, t_fwd_s: float, growth: float) -> float:
    """Return the gain of *contender* by growing into *freed* nodes, 0 if it cannot."""
    size = max((n for n in contender.sizes if n <= contender.held + freed), default=0)
    if size <= contender.held:
        return 0.0
    now, then = _speed_up(contender, contender.held), _speed_up(contender, size)
    stopped_s = contender.grow_s * now if contender.held else contender.start_s * then
    return growth * (t_fwd_s * (then - now) - stopped_s)


def _speed_up(contender: Contender, nodes: int) -> float:
    """Return the speed over that of one node on the smallest size."""
    least = contender.sizes[0]
    speeds = contender.samples_per_s
    return speeds.item(min(nodes, len(speeds) - 1)) / speeds.item(least) * least
