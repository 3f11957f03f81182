"""The priority ``speedup``: trainers count alike, whatever a sample costs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.priority.curves import Curves
from freetrain.priority.interface import Basis, Rated, Rating

if TYPE_CHECKING:
    from freetrain.priority.interface import Look, Memory

_REASON = "worth its speed-up over one node"


class SpeedUp:
    """O_j(n) = samples a second on n nodes, over those on one.

    Raises:
        MalformedProblemError: From ``rate``: a contender does no work on its
            smallest size.
    """

    name = "speedup"
    basis = Basis.TRAINER

    def __init__(self) -> None:
        self._curves = Curves()

    def rate(self, look: Look, _memory: Memory, /) -> Rated:
        """Rate every contender by its speed-up."""
        ratings = [
            Rating(curve=self._curves.speed_up(one), reason=_REASON)
            for one in look.contenders
        ]
        return Rated(tuple(ratings), {})
