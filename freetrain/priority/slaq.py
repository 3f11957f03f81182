"""The priorities ``slaq`` and ``slaq-min``: nodes where they raise quality most.

Both are objectives of SLAQ (Zhang et al., SoCC 2017): the sum of the quality gained,
and the worst trainer first.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from freetrain.errors import UsageError
from freetrain.priority.base import CurveCache, RatingBasis, RatingResult
from freetrain.priority.fair import level_nodes, share_curve
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
    from numpy.typing import NDArray

    from freetrain.losscurve.forecast import LossForecast
    from freetrain.priority.base import Contender, Memory, RatingInputs


class Slaq:
    """O_j(n) = d_j (min(n, L) + 0.1 max(0, n - L)): gain for the work, on equal shares.

    d_j is the most that a node-second brings: the greatest of gain(x) / x, x being work
    from what H brings to all that is left. The gain is a share of the way to the
    expected end; a trainer with few values is expected to gain as trainings usually do.
    Nodes above the equal share L, one at least, count little, as by ``fair``: so the
    trainers with the largest d_j have a share each, and use it well.

    Args:
        horizon_s: [H] Gains sooner than this do not count for more, seconds; 0 for the
            planner's look-ahead.

    Raises:
        UsageError: *horizon_s* is below 0, or not finite.

    Source:
        On one machine and with known curves, the largest d_j first has the least area
        of lacking quality (Sidney, 1975).
    """

    name = "slaq"
    basis = RatingBasis.LOSSES

    def __init__(self, *, horizon_s: float = 0.0) -> None:
        if not 0 <= horizon_s < math.inf:
            raise UsageError(
                f"horizon_s {horizon_s:g} is not 0 or more. Give the shortest seconds "
                f"over which a gain counts, or 0 for the planner's look-ahead."
            )
        self._horizon_s = horizon_s
        self._curves = CurveCache()

    def rate(self, inputs: RatingInputs, _memory: Memory, /) -> RatingResult:
        """Rate contenders by the quality that they are expected to gain."""
        level = level_nodes(
            [contender.sizes[-1] for contender in inputs.contenders], inputs.nodes
        )
        horizon_s = self._horizon_s or inputs.t_fwd_s
        assessments = [
            self._assessment(contender, level, horizon_s)
            for contender in inputs.contenders
        ]
        return RatingResult(ratings(inputs.contenders, assessments, self._curves), {})

    def _assessment(
        self, contender: Contender, level: float, horizon_s: float
    ) -> Assessment:
        status, whole = loss_status(contender), whole_samples(contender)
        if status is LossStatus.DIVERGING:
            return status
        is_silent = status is LossStatus.NO_LOSS
        if not whole or (is_silent and contender.done_samples >= whole / 2):
            return LossStatus.NO_LOSS
        least = contender.sizes[0]
        share = max((n for n in contender.sizes if n <= level), default=least)
        left = whole - contender.done_samples
        if left <= 0:
            return LossStatus.NO_GAIN
        speeds = contender.samples_per_s
        work = np.geomspace(min(speeds.item(share) * horizon_s, left), left, LOOKS)
        way, gains = expected_way(contender, status, work)
        if not gains.any():
            return LossStatus.NO_GAIN
        per_sample = (gains / work).max().item() * self.urgency(way)
        per_node_s = per_sample * speeds.item(least) / least
        curve = share_curve(contender, max(level, least), self._curves)
        return Claim(
            per_node_s * curve.value_per_s,
            f"{per_cent(way)} of its way, and expected to gain "
            f"{per_cent(per_node_s * 3600, '+.1f')} an hour on a node",
        )

    def urgency(self, way: float) -> float:
        """Return by how much a gain counts after a share *way* of the way: always 1."""
        del way
        return 1.0


SHARPNESS = 10.0
"""Three tenths further from its end, a trainer's gain counts e^3 = 20 times as much."""


class SlaqMin(Slaq):
    """As ``slaq``, but a gain counts by exp(-10 p) after a share p of the way.

    That is the gradient of a soft minimum of p: the worst trainer comes first.
    """

    name = "slaq-min"

    def urgency(self, way: float) -> float:
        """Return by how much a gain counts after a share *way* of the way."""
        return math.exp(-SHARPNESS * way)


# Gains: by the forecast, and as usual for trainings with few values

LOOKS = 9
"""Amounts of work for which a gain is looked up."""

USUAL = 0.4
"""Share of the whole work within which a training comes nearer to its end by a
factor e: wide, as half of the recorded ones are nine tenths of their way after a
quarter of the work, and some have hardly begun then."""

HALF_TRUSTED = 10
"""Values with which a forecast counts as much as the usual gain."""


def whole_samples(contender: Contender) -> float:
    """Return the work of the whole training; twice the work done if unknown."""
    if contender.total_samples is not None:
        return contender.total_samples
    return 2 * contender.done_samples


def expected_way(
    contender: Contender, status: LossStatus, work: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """Return the share of its way that *contender* has gone, and what it will gain.

    The way by the forecast and the usual one, 1 - exp(-x / 0.4) after a share x of the
    whole work, weighted by the values so far.

    Args:
        contender: Its whole work is above 0.
        status: Its status by its losses.
        work: Samples more than it has done, above 0, ascending; shape (looks,).

    Returns:
        The share gone, 0 to 1, and the shares gained by each of *work*, likewise.
    """
    done, whole = contender.done_samples, whole_samples(contender)
    gone = np.append(done, done + work) / whole
    way = (1.0 - np.exp(-gone / USUAL)) / (1.0 - math.exp(-1.0 / USUAL))
    forecast = contender.forecast
    if forecast is not None and status is not LossStatus.NO_LOSS:
        trust = len(forecast.points) / (len(forecast.points) + HALF_TRUSTED)
        way = trust * forecast_way(contender, forecast, work) + (1 - trust) * way
    way = way.clip(0.0, 1.0)
    return way.item(0), np.maximum(way[1:] - way[0], 0.0)


def forecast_way(
    contender: Contender, forecast: LossForecast, work: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the share of the way by *forecast*, now and after each of *work*."""
    done = done_samples(contender, forecast)
    end = max(contender.total_samples or 2 * done, done)
    then = np.minimum(done + np.append(0.0, work), end)
    quality = np.array([quality_after(forecast, at) for at in (*then, end)])
    best = quality.max().item()
    return quality[:-1] / best if best > 0 else np.ones(len(then))
