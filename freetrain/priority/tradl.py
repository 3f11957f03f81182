"""The priority ``tradl``: quickly to a usable model, then with a smaller share."""

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
    from collections.abc import Set as AbstractSet

    from freetrain.losscurve.forecast import LossForecast
    from freetrain.priority.base import Contender, Memory, RatingInputs, Target

FARTHEST = 10.0
"""Times the work done: predictions are cut off there."""

PROMISED = 0.7
"""Part of its equal share of the nodes that each trainer has over time. With 0.5 some
trainers of minutes finished four to six times as late as under ``fair`` in turns, and
with 0.7 a quarter of the gain to the first tier was lost (seeds 11 to 13)."""

TURN_S = 300.0
"""Longer turns let trainers of a few minutes wait longer for their first one."""

BESIDE = 1e-3
"""Worth of further nodes to a trainer in the background that has its turn."""


class Tradl:
    """O_j(n) = (min(n, L) + 0.1 max(0, n - L)) / R_j: the nearest to delivery first.

    R_j is the time left to the first tier on one node, and L the equal share of the
    nodes, one at least, as by ``fair``. A trainer without a target delivers at its end.
    After its delivery a trainer is in the background, and beyond its final tier it is
    worth nothing. Every trainer that is not diverging has :data:`PROMISED` of its equal
    share of the nodes over time, in turns, before its delivery and after.
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
        chosen = _whose_promise(inputs, turns)
        kept = [
            self._promised(contender, rating) if contender.name in chosen else rating
            for contender, rating in zip(inputs.contenders, rated, strict=True)
        ]
        return RatingResult(tuple(kept), to_memory(turns))

    def _promised(self, contender: Contender, rating: Rating) -> Rating:
        curve = rating.curve
        if rating.is_background:
            curve = self._curves.weighted(curve, BESIDE)
        return replace(
            rating,
            curve=curve,
            floor=contender.sizes[0],
            is_background=False,
            reason=f"{rating.reason}; it is its turn for what is promised to all",
        )

    def _assessment(
        self, contender: Contender, level: float, t_fwd_s: float
    ) -> Assessment:
        target, forecast = contender.target, contender.forecast
        if target is not None and _is_finished(target, forecast):
            return self._finished(contender)
        if target is not None and _is_delivered(target, forecast):
            return self._delivered(contender)
        status = loss_status(contender)
        if status is LossStatus.DIVERGING:
            return status
        if target is None:
            if contender.total_samples is None:
                return LossStatus.NO_AIM
            left = contender.total_samples - contender.done_samples
            how = "no target: its end counts as delivery"
        elif forecast is None or status is LossStatus.NO_LOSS:
            return LossStatus.NO_LOSS
        else:
            left = _samples_to_delivery(contender, target, forecast)
            how = f"predicted by {forecast.family}"
        least = contender.sizes[0]
        one_node = contender.samples_per_s.item(least) / least
        curve = share_curve(contender, max(level, least), self._curves)
        worth = curve.value_per_s / max(left / one_node, t_fwd_s)
        return Claim(worth, f"delivers after {max(left, 0.0):.3g} more samples ({how})")

    def _delivered(self, contender: Contender) -> Rating:
        return Rating(
            curve=self._curves.speed_up(contender),
            is_background=True,
            reason="delivered; it goes on with what others leave and its turns",
        )

    def _finished(self, contender: Contender) -> Rating:
        nothing = np.zeros(contender.sizes[-1] + 1)
        return Rating(
            curve=self._curves.custom(nothing, contender.sizes),
            is_background=True,
            reason="its final target is reached; nothing is left to do",
        )


def _whose_promise(inputs: RatingInputs, turns: Mapping[str, Turn]) -> AbstractSet[str]:
    """Return the names of the trainers that have a turn by the promise.

    One that is not ahead has a turn, and keeps it until it is ahead by a turn. Together
    they have the promised part of the nodes, or as many as one of them needs that fits.
    """
    behind = [
        contender
        for contender in inputs.contenders
        if turns[contender.name].ahead_node_s
        <= (TURN_S * contender.sizes[0] if contender.held else 0.0)
        and not _gets_nothing(contender)
    ]
    least = [own.sizes[0] for own in behind if own.sizes[0] <= inputs.nodes]
    needed = max(least, default=0)
    nodes = max(math.ceil(PROMISED * inputs.nodes), needed)
    own = replace(inputs, contenders=tuple(behind), nodes=nodes)
    return whose_turn(own, turns, TURN_S)


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


def _samples_to_delivery(
    contender: Contender, target: Target, forecast: LossForecast
) -> float:
    done = done_samples(contender, forecast)
    left = min(forecast.samples_to(target.deliver) - done, FARTHEST * done)
    if contender.total_samples is not None:
        left = min(left, contender.total_samples - done)
    return left
