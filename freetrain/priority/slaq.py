"""The priorities ``slaq`` and ``slaq-min``: nodes where they raise quality most.

Both are objectives of SLAQ (Zhang et al., SoCC 2017): the sum of the quality gained,
and the worst trainer first.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from freetrain.errors import UsageError
from freetrain.priority.base import CurveCache, Rating, RatingBasis, RatingResult
from freetrain.priority.fair import level_nodes
from freetrain.priority.losses import (
    Assessment,
    Claim,
    LossStatus,
    done_samples,
    loss_status,
    quality_after,
    ratings,
)
from freetrain.text import per_cent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from freetrain.losscurve.forecast import LossForecast
    from freetrain.priority.base import Contender, Memory, RatingInputs

MOST_ASKED = 17
"""Amounts of work within a horizon for which a forecast is evaluated."""

ROOM = "there are nodes for all that it can use, so it counts by its speed-up"

UNASKED = frozenset({LossStatus.DIVERGING, LossStatus.PLATEAUED})
"""For trainers of this status no gain is predicted."""

NEW = "has reported too little, so it is taken to learn as trainings usually do"


class Slaq:
    """O_j(n) = expected gain on n nodes within H, over H.

    The gain is a share of the way to the expected end. A trainer with few values is
    expected to gain as trainings usually do. A trainer whose largest size is within
    its equal share of the nodes counts by its speed-up: it takes nothing from others.

    Args:
        horizon_s: [H] How far ahead, seconds; 0 for half of each trainer's work.

    Raises:
        UsageError: *horizon_s* is below 0, or not finite.
    """

    name = "slaq"
    basis = RatingBasis.LOSSES

    def __init__(self, *, horizon_s: float = 0.0) -> None:
        self._horizon_s = checked_horizon_s(horizon_s)
        self._curves = CurveCache()

    def rate(self, inputs: RatingInputs, _memory: Memory, /) -> RatingResult:
        """Rate contenders by the quality that they are expected to gain."""
        horizons = self._horizons_s(inputs)
        level = level_nodes(
            [contender.sizes[-1] for contender in inputs.contenders], inputs.nodes
        )
        assessments = [
            self._assessed(contender, horizon_s, level)
            for contender, horizon_s in zip(inputs.contenders, horizons, strict=True)
        ]
        return RatingResult(ratings(inputs.contenders, assessments, self._curves), {})

    def _assessed(
        self, contender: Contender, horizon_s: float, level: float
    ) -> Assessment:
        """Return the assessment, or a rating by speed-up where there is room for all.

        Half of the nodes bring nearly all of the gain within a horizon, and without
        this rule the rest of them stood idle: a trainer held 4 of 64 for twenty
        minutes, the other 60 free, and could have used 8.
        """
        if contender.sizes[-1] > level:
            return self._assessment(contender, horizon_s)
        no_room = (LossStatus.DIVERGING, LossStatus.NO_LOSS)
        if loss_status(contender) in no_room:  # forecasts take long; others need none
            assessment = self._assessment(contender, horizon_s)
            if assessment in no_room:
                return assessment
        return Rating(curve=self._curves.speed_up(contender), reason=ROOM)

    def _horizons_s(self, inputs: RatingInputs) -> Sequence[float]:
        if self._horizon_s:
            return (self._horizon_s,) * len(inputs.contenders)
        return horizons_s(inputs)

    def _assessment(self, contender: Contender, horizon_s: float) -> Assessment:
        status, whole = loss_status(contender), whole_samples(contender)
        is_new = status is LossStatus.NO_LOSS
        if status in UNASKED or not whole:
            return status
        if is_new and contender.done_samples >= whole / 2:
            return status
        usual = usual_gains(contender, horizon_s)
        if is_new or contender.forecast is None:
            return Claim(usual / horizon_s, NEW)
        gains = weighed(contender, contender.forecast, usual, horizon_s)
        if not gains.any():
            return LossStatus.DOUBTFUL
        best = int(gains.argmax())
        return Claim(
            gains / horizon_s,
            f"{contender.forecast.family} and what is usual expect "
            f"{per_cent(gains[best], '+.1f')} of its way in {horizon_s:.4g} s on "
            f"{best} nodes",
        )


SHARPNESS = 10.0
"""Three tenths further from its end, a trainer's gain counts e^3 = 20 times as much."""


class SlaqMin(Slaq):
    """O_j(n) = (u(p_j(n)) - u(p_j(0))) / H, with u(p) = -exp(-10 p).

    p is the share of the way to the expected end that the trainer will have gone
    after H on n nodes: quality over quality at ``total_samples``, or after twice the
    work done where those are unknown. The sum of u is a soft minimum of p.

    Args:
        horizon_s: [H] How far ahead, seconds; 0 for the planner's look-ahead.

    Raises:
        UsageError: *horizon_s* is below 0, or not finite.
    """

    name = "slaq-min"

    def _horizons_s(self, inputs: RatingInputs) -> Sequence[float]:
        return (self._horizon_s or inputs.t_fwd_s,) * len(inputs.contenders)

    def _assessment(self, contender: Contender, horizon_s: float) -> Assessment:
        status, forecast = loss_status(contender), contender.forecast
        if status is not LossStatus.LEARNING or forecast is None:
            return status
        end = final_quality(contender, forecast)
        if end <= 0:
            return LossStatus.DOUBTFUL
        way = np.clip(qualities(contender, forecast, horizon_s) / end, 0, 1)
        useful = np.maximum(np.exp(-SHARPNESS * way[0]) - np.exp(-SHARPNESS * way), 0)
        if not useful.any():
            return LossStatus.DOUBTFUL
        reason = f"{per_cent(way[0])} of the way to its expected end"
        return Claim(useful / horizon_s, reason)


def checked_horizon_s(horizon_s: float) -> float:
    """Return *horizon_s*, 0 or more.

    Raises:
        UsageError: It is not.
    """
    if not 0 <= horizon_s < math.inf:
        raise UsageError(
            f"horizon_s {horizon_s:g} is not 0 or more. Give the seconds to look "
            f"ahead, or 0 for what is usual."
        )
    return horizon_s


# How far ahead each trainer's gain is predicted

AHEAD = 0.5
"""Share of a trainer's whole work. With the planner's two minutes, nodes went from
trainers that were nearly done to those that were steep just then, and the gain went
into rescales (docs/reference/priorities.md)."""


def horizons_s(inputs: RatingInputs) -> tuple[float, ...]:
    """Return the horizon of each contender, seconds.

    As long as half of its whole work takes on its equal share of the nodes, or all
    that is left of it where that is less; at least the planner's look-ahead. On
    more nodes than the share a gain is the same sooner and no larger: so nodes go to
    many trainers, each using them well, rather than to the steepest alone.
    """
    level = level_nodes(
        [contender.sizes[-1] for contender in inputs.contenders], inputs.nodes
    )
    return tuple(
        [
            _horizon_s(contender, level, inputs.t_fwd_s)
            for contender in inputs.contenders
        ]
    )


def _horizon_s(contender: Contender, level: float, t_fwd_s: float) -> float:
    whole = whole_samples(contender)
    work = min(AHEAD * whole, max(whole - contender.done_samples, 0.0))
    share = max((n for n in contender.sizes if n <= level), default=contender.sizes[0])
    return max(work / contender.samples_per_s.item(share), t_fwd_s)


def whole_samples(contender: Contender) -> float:
    """Return the work of the whole training; twice the work done if unknown."""
    if contender.total_samples is not None:
        return contender.total_samples
    return 2 * contender.done_samples


# Gains: by the forecast, and as usual for trainings with few values

USUAL = 0.4
"""Share of the whole work within which a training comes nearer to its end by a
factor e: wide, as half of the recorded ones are nine tenths of their way after a
quarter of the work, and some have hardly begun then."""

HALF_TRUSTED = 10
"""Values with which a forecast counts as much as the usual gain."""


def weighed(
    contender: Contender,
    forecast: LossForecast,
    usual: NDArray[np.float64],
    horizon_s: float,
) -> NDArray[np.float64]:
    """Return the gain by *forecast* and the *usual* gain, weighted by values so far."""
    own = trust(forecast)
    return own * gained_ways(contender, forecast, horizon_s) + (1 - own) * usual


def trust(forecast: LossForecast) -> float:
    """Return how much a forecast counts beside the usual gain, from 0 to 1."""
    reported = len(forecast.points)
    return reported / (reported + HALF_TRUSTED)


def usual_gains(contender: Contender, horizon_s: float) -> NDArray[np.float64]:
    """Return the share of its way that a training usually gains.

    The way gone is 1 - exp(-x / 0.4) after a share x of the work.

    Args:
        contender: Its whole work is above 0.
        horizon_s: Seconds.

    Returns:
        Shape (largest size + 1,), 0 to 1, at 0 .. the largest size.
    """
    whole, done = whole_samples(contender), contender.done_samples
    speeds = contender.samples_per_s[: contender.sizes[-1] + 1]
    then = np.minimum(done + speeds * horizon_s, max(whole, done))
    way: NDArray[np.float64] = 1.0 - np.exp(-then / whole / USUAL)
    gained: NDArray[np.float64] = way - way[0]
    return gained


def gained_ways(
    contender: Contender, forecast: LossForecast, horizon_s: float
) -> NDArray[np.float64]:
    """Return the gain by *forecast*, as a share of the way to the expected end.

    Returns:
        Shape (largest size + 1,), 0 to 1, at 0 .. the largest size.
    """
    after = qualities(contender, forecast, horizon_s)
    gains = np.maximum(after - after[0], 0.0)
    end = max(final_quality(contender, forecast), after.max().item())
    return gains / end if end > 0 else np.zeros_like(gains)


def final_quality(contender: Contender, forecast: LossForecast) -> float:
    """Return the quality expected at the end of the training."""
    done = done_samples(contender, forecast)
    end = 2 * done if contender.total_samples is None else contender.total_samples
    return quality_after(forecast, max(end, done))


def qualities(
    contender: Contender, forecast: LossForecast, horizon_s: float
) -> NDArray[np.float64]:
    """Return the quality expected after *horizon_s* seconds, by node count.

    For trainers with many sizes, the forecast is evaluated for :data:`MOST_ASKED`
    amounts of work, and quality is linear between those: 40 trainers of 64 sizes took
    45 ms, at every event of a replay.

    Returns:
        Shape (largest size + 1,), at 0 .. the largest size.
    """
    done = done_samples(contender, forecast)
    most = math.inf if contender.total_samples is None else contender.total_samples
    then = np.minimum(done + contender.samples_per_s * horizon_s, max(most, done))
    asked = np.unique(then[: contender.sizes[-1] + 1])
    if asked.size > MOST_ASKED:
        # Closer together at first, where curves bend most.
        steps = np.linspace(0.0, 1.0, MOST_ASKED) ** 2
        asked = asked[0] + steps * (asked[-1] - asked[0])
    expected = [quality_after(forecast, samples) for samples in asked.tolist()]
    return np.interp(then[: contender.sizes[-1] + 1], asked, expected)
