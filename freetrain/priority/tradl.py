"""The priority ``tradl``: quickly to a usable model, then with less weight."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from freetrain.priority.base import CurveCache, Rating, RatingBasis, RatingResult
from freetrain.priority.fair import (
    Turn,
    level_nodes,
    share_curve,
    to_memory,
    turns_at,
    whose_turn,
)
from freetrain.priority.losses import (
    Assessment,
    Claim,
    LossStatus,
    done_samples,
    loss_status,
    ratings,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.losscurve.forecast import LossForecast
    from freetrain.priority.base import Contender, Memory, RatingInputs, Target

FARTHEST = 10.0
"""Times the work done: predictions are cut off there."""

PROMISED = 0.7
"""Part of its equal share of the nodes that each trainer has over time. With 0.5 the
worst trainer finishes 2.1 times as late as under ``fair`` in turns, with 0.7 1.85
times, and first tiers come 22 and 19 % sooner (means over seeds 11 to 20)."""

TURN_S = 300.0
"""Longer turns let trainers of a few minutes wait longer for their next one."""

FIRST_S = 600.0
"""Seconds with nodes that a trainer has before turns count. Without them a trainer of
minutes that had more than its share until it delivered waited until others had caught
up. With 300 and 900 the worst finishes 2.4 and 2.1 times as late (the same seeds)."""

LAST_S = 1200.0
"""Seconds of work left, on its smallest size, for which a trainer keeps the promise of
its first minutes. Of a trainer that had most of its nodes before others came, the rest
waited until all others had had their first minutes: with 600 the worst of two draws of
Pollux curves finishes 4.6 times as late as under ``fair`` in turns, with 1200 2.3."""

DELIVERED = 0.05
"""Worth of a trainer after its delivery, over its worth before. With 0.02 first tiers
and ends are the same within a per cent or two, with 0.002 first tiers come 23 % sooner,
and the worst finishes 2.05 times as late (the same seeds)."""


class Tradl:
    """O_j(n) = (min(n, L) + 0.1 max(0, n - L)) / R_j: the nearest to delivery first.

    R_j is the time left to the first tier on one node, and L the equal share of the
    nodes, one at least, as by ``fair``. A trainer without a target delivers at its end.
    After its delivery R_j is the time left to its end, and the worth times
    :data:`DELIVERED`; beyond its final tier a trainer is worth nothing. Every trainer
    that is not diverging has an equal share for its first :data:`FIRST_S` and its last
    :data:`LAST_S`, and between them :data:`PROMISED` of it over time, in turns, before
    its delivery and after.
    """

    name = "tradl"
    basis = RatingBasis.LOSSES

    def __init__(self) -> None:
        self._curves = CurveCache()

    def rate(self, inputs: RatingInputs, memory: Memory, /) -> RatingResult:
        """Rate contenders by how near they are to delivering."""
        level = level_nodes(
            [contender.sizes[-1] for contender in inputs.contenders], inputs.nodes
        )
        assessments = [
            self._assessment(contender, level, inputs.t_fwd_s)
            for contender in inputs.contenders
        ]
        rated = ratings(inputs.contenders, assessments, self._curves)
        turns = turns_at(inputs, memory, part=PROMISED)
        promises = _promises(inputs, turns)
        floors = _floors(inputs, promises, level)
        kept = [
            replace(
                rating,
                floor=floors[contender.name],
                reason=f"{rating.reason}; {promises[contender.name]}",
            )
            if contender.name in promises
            else rating
            for contender, rating in zip(inputs.contenders, rated, strict=True)
        ]
        return RatingResult(tuple(kept), to_memory(turns))

    def _assessment(
        self, contender: Contender, level: float, t_fwd_s: float
    ) -> Assessment:
        target, forecast = contender.target, contender.forecast
        if target is not None and _is_finished(target, forecast):
            return self._finished(contender)
        status = loss_status(contender)
        if status is LossStatus.DIVERGING:
            return status
        is_delivered = target is not None and _is_delivered(target, forecast)
        if target is None:
            if contender.total_samples is None:
                return LossStatus.NO_AIM
            left = contender.total_samples - contender.done_samples
            how = "no target: its end counts as delivery"
        elif is_delivered:
            left, how = _samples_to(contender, target.final, forecast), "delivered"
        elif forecast is None or status is LossStatus.NO_LOSS:
            return LossStatus.NO_LOSS
        else:
            left = _samples_to(contender, target.deliver, forecast)
            how = f"predicted by {forecast.family}"
        least = contender.sizes[0]
        one_node = contender.samples_per_s.item(least) / least
        curve = share_curve(contender, max(level, least), self._curves)
        worth = curve.value_per_s / max(left / one_node, t_fwd_s)
        does = "ends" if is_delivered else "delivers"
        return Claim(
            DELIVERED * worth if is_delivered else worth,
            f"{does} after {max(left, 0.0):.3g} more samples ({how})",
        )

    def _finished(self, contender: Contender) -> Rating:
        nothing = np.zeros(contender.sizes[-1] + 1)
        return Rating(
            curve=self._curves.custom(nothing, contender.sizes),
            is_background=True,
            reason="its final target is reached; nothing is left to do",
        )


_FIRST = (
    f"it has its first {FIRST_S / 60:g} minutes or its last {LAST_S / 60:g}, promised "
    f"to all"
)
_TURN = "it is its turn for what is promised to all"


def _floors(
    inputs: RatingInputs, promises: Mapping[str, str], level: float
) -> dict[str, int]:
    """Return the nodes that *promises* keep, by name, of the equal share *level*.

    These are the smallest sizes where not all can have their share, as beside a trainer
    whose smallest size is more than that.
    """
    own = [each for each in inputs.contenders if each.name in promises]
    parts = {_FIRST: level, _TURN: PROMISED * level}
    floors = {
        each.name: max(
            (size for size in each.sizes if size <= parts[promises[each.name]]),
            default=each.sizes[0],
        )
        for each in own
    }
    if sum(floors.values()) <= inputs.nodes:
        return floors
    return {each.name: each.sizes[0] for each in own}


def _promises(inputs: RatingInputs, turns: Mapping[str, Turn]) -> dict[str, str]:
    """Return why trainers have nodes by the promise, by name.

    First come those that have held nodes for less than :data:`FIRST_S`, or have work
    for less than :data:`LAST_S`; those that hold some keep them. Of the others, one
    that is not ahead has a turn, and keeps it until it is ahead by a turn. Together
    these have the promised part of the nodes, or as many as one of them needs that
    fits, if the first leave so many.
    """
    own = [each for each in inputs.contenders if not _gets_nothing(each)]
    new = [
        contender
        for contender in own
        if turns[contender.name].had_s < FIRST_S or _is_nearly_done(contender)
    ]
    first = whose_turn(replace(inputs, contenders=tuple(new)), turns, math.inf)
    behind = [
        contender
        for contender in own
        if contender.name not in first
        and turns[contender.name].ahead_node_s
        <= (TURN_S * contender.sizes[0] if contender.held else 0.0)
    ]
    least = [each.sizes[0] for each in behind if each.sizes[0] <= inputs.nodes]
    promised = max(math.ceil(PROMISED * inputs.nodes), *least, 0)
    left = inputs.nodes - sum(each.sizes[0] for each in new if each.name in first)
    others = replace(inputs, contenders=tuple(behind), nodes=min(promised, left))
    second = whose_turn(others, turns, TURN_S)
    return dict.fromkeys(first, _FIRST) | dict.fromkeys(second, _TURN)


def _is_nearly_done(contender: Contender) -> bool:
    """Tell whether it can end within :data:`LAST_S` on its smallest size.

    Before it has trained its speed is a guess.
    """
    if contender.total_samples is None or not contender.done_samples:
        return False
    left = contender.total_samples - contender.done_samples
    return left <= LAST_S * contender.samples_per_s.item(contender.sizes[0])


def _gets_nothing(contender: Contender) -> bool:
    """Tell whether it diverges or is finished."""
    forecast, target = contender.forecast, contender.target
    is_diverging = forecast is not None and forecast.is_diverging
    return is_diverging or (target is not None and _is_finished(target, forecast))


def is_reached(value: float, forecast: LossForecast | None) -> bool:
    """Tell whether a value reported so far is as good as *value*."""
    if forecast is None:
        return False
    wanted = forecast.quality(value)
    return any(forecast.quality(point.value) >= wanted for point in forecast.points)


def _is_finished(target: Target, forecast: LossForecast | None) -> bool:
    return target.final is not None and is_reached(target.final, forecast)


def _is_delivered(target: Target, forecast: LossForecast | None) -> bool:
    return target.is_delivered or is_reached(target.deliver, forecast)


def _samples_to(
    contender: Contender, value: float | None, forecast: LossForecast | None
) -> float:
    """Return the samples left to *value*, or to the end where that is nearer."""
    if forecast is None:
        done, left = contender.done_samples, math.inf
    else:
        done = done_samples(contender, forecast)
        left = math.inf if value is None else forecast.samples_to(value) - done
    left = min(left, FARTHEST * done)
    if contender.total_samples is not None:
        left = min(left, contender.total_samples - done)
    return left
