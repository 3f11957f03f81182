"""The priorities by speed alone: ``throughput``, ``speedup``, ``weight``, ``price``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from freetrain.priority.base import CurveCache, Rating, RatingBasis, RatingResult
from milp.answer import MalformedProblemError

if TYPE_CHECKING:
    from freetrain.priority.base import Contender, Memory, RatingInputs
    from milp.problem import Curve


class _BySpeed(ABC):
    """Rates each trainer by itself."""

    basis = RatingBasis.TRAINER

    def __init__(self) -> None:
        self._curves = CurveCache()

    def rate(self, inputs: RatingInputs, _memory: Memory, /) -> RatingResult:
        """Return a rating for each contender.

        Raises:
            MalformedProblemError: The priority cannot rate one of them; see its class.
        """
        return RatingResult(tuple([self._rating(c) for c in inputs.contenders]), {})

    @abstractmethod
    def _rating(self, contender: Contender) -> Rating: ...


class Throughput(_BySpeed):
    """O_j(n) = samples a second on n nodes."""

    name = "throughput"

    def _rating(self, contender: Contender) -> Rating:
        curve = self._curves.throughput(contender)
        return Rating(curve=curve, reason="worth its samples a second")


class SpeedUp(_BySpeed):
    """O_j(n) = samples a second on n nodes, over those on one.

    It cannot rate a contender that does no work on its smallest size.
    """

    name = "speedup"

    def _rating(self, contender: Contender) -> Rating:
        curve = self._curves.speed_up(contender)
        return Rating(curve=curve, reason="worth its speed-up over one node")


class Weight(_BySpeed):
    """O_j(n) = weight x samples a second on n nodes, over those on one.

    It cannot rate a contender that does no work on its smallest size, or whose weight
    is not above 0.
    """

    name = "weight"

    def _rating(self, contender: Contender) -> Rating:
        curve = self._curves.weighted(
            self._curves.speed_up(contender), contender.weight
        )
        reason = f"worth its speed-up, times its weight {contender.weight:g}"
        return Rating(curve=curve, reason=reason)


OWN_NODES = 0.6
"""On Summit's seven networks, six days, anything from 0.6 to 2 does as well."""


class Price(_BySpeed):
    """O_j(n) = weight x w_j x samples a second, w_j = min over n of (n + μ) / speed(n).

    Mixed trainers pay alike for a node. Raw samples starve trainers that do few of them
    a node, and speed-ups those that do many. With w_j no curve is above n + μ, and
    every curve touches it, at the size that uses nodes best. It cannot rate a contender
    that does no work on any size, or whose weight is not above 0.

    Args:
        mu: [μ] Cost of a trainer besides its nodes, in nodes, above 0.
    """

    name = "price"

    def __init__(self, mu: float = OWN_NODES) -> None:
        super().__init__()
        self._mu = mu

    def _rating(self, contender: Contender) -> Rating:
        curve = self._curves.weighted(self._priced(contender), contender.weight)
        return Rating(curve=curve, reason="worth what nodes make of it at their best")

    def _priced(self, contender: Contender) -> Curve:
        sizes = np.array(contender.sizes)
        speeds = contender.samples_per_s[sizes]
        working = speeds > 0.0
        if not working.any():
            raise MalformedProblemError(
                f"{contender.name} does no work on any size, so that it has no price. "
                f"Give a throughput above 0, or use the priority throughput."
            )
        price = ((sizes[working] + self._mu) / speeds[working]).min()
        return self._curves.custom(contender.samples_per_s * price, contender.sizes)
