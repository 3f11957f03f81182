"""The priority ``tradl``: quickly to a model that can be used, then at leisure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from freetrain.priority.base import (
    Answer,
    Basis,
    Claim,
    CurveCache,
    LossStatus,
    Rating,
    RatingResult,
    done_samples,
    loss_status,
    ratings,
)

if TYPE_CHECKING:
    from freetrain.losscurve.forecast import LossForecast
    from freetrain.priority.base import Contender, Memory, RatingInputs, Target

FARTHEST = 10.0
"""Times the work done: no prediction is believed to reach further."""


class Tradl:
    """O_j(n) = speed(n) / R_j: deliveries a second, R_j samples being left to one.

    Who is near its first tier is worth much, as the shortest remaining time first
    has it, and who gains most by a node gets it. A trainer without a target delivers
    at its end. After its delivery a trainer is in the background, and beyond its
    final tier it is worth nothing.
    """

    name = "tradl"
    basis = Basis.LOSSES

    def __init__(self) -> None:
        self._curves = CurveCache()

    def rate(self, inputs: RatingInputs, _memory: Memory, /) -> RatingResult:
        """Rate contenders by how near they are to delivering."""
        answers = [self._answer(one, inputs) for one in inputs.contenders]
        return RatingResult(ratings(inputs.contenders, answers, self._curves), {})

    def _answer(self, contender: Contender, inputs: RatingInputs) -> Answer:
        target, forecast = contender.target, contender.forecast
        if target is not None and _is_finished(target, forecast):
            return self._finished(contender)
        if target is not None and _is_delivered(target, forecast):
            return self._delivered(contender)
        stands = loss_status(contender)
        if stands is LossStatus.DIVERGING:
            return stands
        if target is None:
            return _towards_end(contender, inputs)
        if forecast is None or stands is LossStatus.NO_LOSS:
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
    """Tell whether a value told so far is as good as *value*."""
    if forecast is None:
        return False
    wanted = forecast.quality(value)
    return any(forecast.quality(point.value) >= wanted for point in forecast.points)


def _is_finished(target: Target, forecast: LossForecast | None) -> bool:
    return target.final is not None and is_reached(target.final, forecast)


def _is_delivered(target: Target, forecast: LossForecast | None) -> bool:
    return target.is_delivered or is_reached(target.deliver, forecast)


def _towards_end(contender: Contender, inputs: RatingInputs) -> Answer:
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
    """Return the claim of who has so many samples left, a look-ahead's at least."""
    slowest = contender.samples_per_s.item(contender.sizes[0])
    worth = contender.samples_per_s / max(left, slowest * inputs.t_fwd_s)
    reason = f"delivers after {max(left, 0.0):.3g} more samples ({how})"
    return Claim(worth, reason)
