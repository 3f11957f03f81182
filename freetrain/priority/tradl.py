"""The priority ``tradl``: quickly to a usable model, then with leftover nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from freetrain.priority.base import CurveCache, Rating, RatingBasis, RatingResult
from freetrain.priority.losses import (
    Assessment,
    Claim,
    LossStatus,
    done_samples,
    loss_status,
    ratings,
)

if TYPE_CHECKING:
    from freetrain.losscurve.forecast import LossForecast
    from freetrain.priority.base import Contender, Memory, RatingInputs, Target

FARTHEST = 10.0
"""Times the work done: predictions are cut off there."""


class Tradl:
    """O_j(n) = speed(n) / R_j: deliveries a second, R_j samples being left to one.

    A trainer near its first tier is worth much, as by shortest remaining time first,
    and a node goes to the trainer that gains most by it. A trainer without a target
    delivers at its end. After its delivery a trainer is in the background, and beyond
    its final tier it is worth nothing.
    """

    name = "tradl"
    basis = RatingBasis.LOSSES

    def __init__(self) -> None:
        self._curves = CurveCache()

    def rate(self, inputs: RatingInputs, _memory: Memory, /) -> RatingResult:
        """Rate contenders by how near they are to delivering."""
        assessments = [
            self._assessment(contender, inputs) for contender in inputs.contenders
        ]
        return RatingResult(ratings(inputs.contenders, assessments, self._curves), {})

    def _assessment(self, contender: Contender, inputs: RatingInputs) -> Assessment:
        target, forecast = contender.target, contender.forecast
        if target is not None and _is_finished(target, forecast):
            return self._finished(contender)
        if target is not None and _is_delivered(target, forecast):
            return self._delivered(contender)
        status = loss_status(contender)
        if status is LossStatus.DIVERGING:
            return status
        if target is None:
            return _towards_end(contender, inputs)
        if forecast is None or status is LossStatus.NO_LOSS:
            return LossStatus.NO_LOSS
        return _towards_delivery(contender, target, forecast, inputs)

    def _delivered(self, contender: Contender) -> Rating:
        return Rating(
            curve=self._curves.speed_up(contender),
            is_background=True,
            reason="delivered; it goes on with what others leave",
        )

    def _finished(self, contender: Contender) -> Rating:
        nothing = np.zeros(contender.sizes[-1] + 1)
        return Rating(
            curve=self._curves.custom(nothing, contender.sizes),
            is_background=True,
            reason="its final target is reached; nothing is left to do",
        )


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


def _towards_end(contender: Contender, inputs: RatingInputs) -> Assessment:
    if contender.total_samples is None:
        return LossStatus.NO_AIM
    left = contender.total_samples - contender.done_samples
    return _claim(contender, left, inputs, "no target: its end counts as delivery")


def _towards_delivery(
    contender: Contender, target: Target, forecast: LossForecast, inputs: RatingInputs
) -> Claim:
    done = done_samples(contender, forecast)
    predicted = forecast.samples_to(target.deliver) - done
    left = min(predicted, FARTHEST * done)
    if contender.total_samples is not None:
        left = min(left, contender.total_samples - done)
    return _claim(contender, left, inputs, f"predicted by {forecast.family}")


def _claim(contender: Contender, left: float, inputs: RatingInputs, how: str) -> Claim:
    """Return the claim of a trainer with *left* samples to do, or T_fwd's if more."""
    slowest = contender.samples_per_s.item(contender.sizes[0])
    worth = contender.samples_per_s / max(left, slowest * inputs.t_fwd_s)
    reason = f"delivers after {max(left, 0.0):.3g} more samples ({how})"
    return Claim(worth, reason)
