"""The priority ``fair``: equal shares of the nodes, whatever trainers make of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from freetrain.priority.curves import Curves
from freetrain.priority.interface import Basis, Rated, Rating

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.priority.interface import Contender, Look, Memory
    from milp.problem import Curve

BEYOND = 0.1
"""Worth of a node above the share, over one below it: enough to use idle nodes."""


class Fair:
    """O_j(n) = min(n, L) + 0.1 max(0, n - L), with the level L the same for all.

    L fills the pool: the sum of min(L, largest size) is the nodes there are. A node
    below L is worth ten above it, so that the planner levels; it does not where the
    rescale costs more than the look-ahead brings.
    """

    name = "fair"
    basis = Basis.MOMENT

    def __init__(self) -> None:
        self._curves = Curves()

    def rate(self, look: Look, _memory: Memory, /) -> Rated:
        """Rate every contender by how much of its share it has."""
        most = [one.sizes[-1] for one in look.contenders]
        level = level_nodes(most, look.nodes)
        ratings = [self._rating(one, level) for one in look.contenders]
        return Rated(tuple(ratings), {})

    def _rating(self, contender: Contender, level: float) -> Rating:
        share = min(level, contender.sizes[-1])
        return Rating(
            curve=share_curve(contender, share, self._curves),
            reason=f"its equal share is {share:.3g} nodes",
        )


def share_curve(contender: Contender, share: float, curves: Curves) -> Curve:
    """Return the worth of nodes up to a *share* of them, and a little beyond."""
    counts = np.arange(contender.sizes[-1] + 1, dtype=np.float64)
    above = np.maximum(counts - share, 0.0)
    return curves.custom(counts - above + BEYOND * above, contender.sizes)


def level_nodes(most: Sequence[int], nodes: int) -> float:
    """Return the level up to which all can be filled with *nodes*, above 0.

    Args:
        most: The largest size of each, above 0.
        nodes: Nodes to spread; more than all can use level at the largest size.
    """
    left, level = float(max(nodes, 1)), 1.0
    for place, own in enumerate(sorted(most)):
        level = left / (len(most) - place)
        if level <= own:
            return level
        left -= own
        level = float(own)
    return level
