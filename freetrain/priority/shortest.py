"""The priority ``shortest``: nodes for the trainers with the least work left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.priority.base import CurveCache, Rating, RatingBasis, RatingResult
from freetrain.priority.fair import level_nodes, share_curve
from freetrain.text import render_duration

if TYPE_CHECKING:
    from freetrain.priority.base import Contender, Memory, RatingInputs


class Shortest:
    """O_j(n) = (min(n, L) + 0.1 max(0, n - L)) / R_j: the shortest work left first.

    R_j is the time for the work left on one node, at least T_fwd, and L the equal share
    of the nodes, one at least, as by ``fair``: so those with the least work left have a
    share each, and use it well. A trainer whose end is unknown is taken to go on for as
    long as it ran.
    """

    name = "shortest"
    basis = RatingBasis.MOMENT

    def __init__(self) -> None:
        self._curves = CurveCache()

    def rate(self, inputs: RatingInputs, _memory: Memory, /) -> RatingResult:
        """Rate contenders by their work left."""
        sizes = [contender.sizes[-1] for contender in inputs.contenders]
        level = level_nodes(sizes, inputs.nodes)
        return RatingResult(
            tuple(
                [self._rating(own, level, inputs.t_fwd_s) for own in inputs.contenders]
            ),
            {},
        )

    def _rating(self, contender: Contender, level: float, t_fwd_s: float) -> Rating:
        least = contender.sizes[0]
        left_s = self.waits_by_s(contender, contender.samples_per_s.item(least) / least)
        share = share_curve(contender, max(level, least), self._curves)
        return Rating(
            curve=self._curves.weighted(share, t_fwd_s / max(left_s, t_fwd_s)),
            reason=f"work left on one node: {render_duration(left_s)}",
        )

    def waits_by_s(self, contender: Contender, samples_per_s: float) -> float:
        """Return the seconds of its work left on one node, at *samples_per_s*."""
        done = contender.done_samples
        total = 2 * done if contender.total_samples is None else contender.total_samples
        return max(total - done, 0.0) / samples_per_s
