"""The priority ``throughput``: every sample is worth the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.priority.curves import Curves
from freetrain.priority.interface import Basis, Rated, Rating

if TYPE_CHECKING:
    from freetrain.priority.interface import Look, Memory

_REASON = "worth its samples a second"


class Throughput:
    """O_j(n) = samples a second on n nodes."""

    name = "throughput"
    basis = Basis.TRAINER

    def __init__(self) -> None:
        self._curves = Curves()

    def rate(self, look: Look, _memory: Memory, /) -> Rated:
        """Rate every contender by its samples."""
        ratings = [
            Rating(curve=self._curves.throughput(one), reason=_REASON)
            for one in look.contenders
        ]
        return Rated(tuple(ratings), {})
