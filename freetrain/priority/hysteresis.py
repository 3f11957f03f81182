"""No change for less than a set gain, whatever the priority."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.errors import UsageError
from freetrain.priority.curves import Curves
from freetrain.priority.interface import Basis, Rated

if TYPE_CHECKING:
    from freetrain.priority.interface import (
        Contender,
        Look,
        Memory,
        Priority,
        Rating,
    )

DEFAULT_GAIN = 0.05
"""AdaptDL's: jobs that change for less spend more on changing than they gain."""


class Steady:
    """Another priority, whose ratings favour the nodes that a trainer holds.

    The worth of the held count h is raised: O'(h) = (1 + gain) O(h). A plan that
    changes some trainers must then gain *gain* times what those are worth now. What
    a rescale costs in the present worth is raised by as much.

    Args:
        priority: Whose ratings.
        gain: The least gain of a change, as a share of the present worth.

    Raises:
        UsageError: *gain* is not above 0, or not finite.
    """

    def __init__(self, priority: Priority, gain: float = DEFAULT_GAIN) -> None:
        if not 0 < gain < math.inf:
            raise UsageError(
                f"hysteresis {gain:g} is not above 0. Give the least gain of a change, "
                f"such as 0.05 for 5 %."
            )
        self.name = priority.name
        depends = priority.basis
        self.basis: Basis = Basis.MOMENT if depends is Basis.TRAINER else depends
        self._priority = priority
        self._gain = gain
        self._curves = Curves()

    def rate(self, look: Look, memory: Memory, /) -> Rated:
        """Return the other's ratings, with a bonus on what is held."""
        rated = self._priority.rate(look, memory)
        pairs = zip(rated.ratings, look.contenders, strict=True)
        return Rated(tuple([self._steady(*pair) for pair in pairs]), rated.memory)

    def _steady(self, rating: Rating, contender: Contender) -> Rating:
        held = contender.held
        worth = rating.curve.value_per_s
        if held not in rating.curve.sizes or worth[held] <= 0:
            return rating
        raised = worth.copy()
        raised[held] *= 1 + self._gain
        return replace(rating, curve=self._curves.custom(raised, rating.curve.sizes))
