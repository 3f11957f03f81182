"""The priority ``weight``: speed-up, times what its user says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.priority.curves import Curves
from freetrain.priority.interface import Basis, Rated, Rating

if TYPE_CHECKING:
    from freetrain.priority.interface import Contender, Look, Memory


class Weight:
    """O_j(n) = weight x samples a second on n nodes, over those on one.

    Raises:
        MalformedProblemError: From ``rate``: a contender does no work on its
            smallest size, or its weight is not above 0.
    """

    name = "weight"
    basis = Basis.TRAINER

    def __init__(self) -> None:
        self._curves = Curves()

    def rate(self, look: Look, _memory: Memory, /) -> Rated:
        """Rate every contender by its speed-up and weight."""
        return Rated(tuple([self._rating(one) for one in look.contenders]), {})

    def _rating(self, contender: Contender) -> Rating:
        curve = self._curves.weighted(
            self._curves.speed_up(contender), contender.weight
        )
        reason = f"worth its speed-up, times its weight {contender.weight:g}"
        return Rating(curve=curve, reason=reason)
