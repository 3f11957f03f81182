"""The policy ``static``: the planner on dedicated nodes, where changes are free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.replay.policies.counts import changes_to
from milp.problem import NodeClass, Problem, TrainerState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.replay.policies.interface import Change, View
    from freetrain.replay.policies.planning import MeasuredPlanner
    from freetrain.replay.policies.worth import Worth
    from milp.problem import Curve

_MOST_PLANS = 10_000
"""About 5 MB; a year of a busy machine asks for a few thousand different ones."""


class StaticPolicy:
    """Asks the planner once for each set of curves, and remembers the answer.

    Where nothing costs anything, the best counts depend on who is there and not
    on who holds what. Such problems have many equal optima, which makes them
    slow to solve exactly, and few of them are different.
    """

    name = "static"

    def __init__(
        self, planner: MeasuredPlanner, worth: Worth, *, t_fwd_s: float
    ) -> None:
        self._planner = planner
        self._worth = worth
        self._t_fwd_s = t_fwd_s
        self._curves: dict[Curve, int] = {}
        self._plans: dict[tuple[int, tuple[Curve, ...]], tuple[int, ...]] = {}

    def decide(self, view: View) -> Sequence[Change]:
        """Give everybody what the plan for those who are there gives them."""
        if not view.trainers or not view.idle_nodes:
            return ()
        curves = self._worth.curves(view)
        for curve in curves:
            self._curves.setdefault(curve, len(self._curves))
        order = sorted(range(len(curves)), key=lambda k: self._curves[curves[k]])
        planned = self._counts(tuple(curves[k] for k in order), view.idle_nodes)
        counts = [0] * len(curves)
        for place, nodes in zip(order, planned, strict=True):
            counts[place] = nodes
        return changes_to(counts, view)

    def _counts(self, curves: tuple[Curve, ...], pool_nodes: int) -> tuple[int, ...]:
        """Return the best counts for trainers of these curves."""
        known = self._plans.get((pool_nodes, curves))
        if known is not None:
            return known
        trainers = tuple(
            TrainerState(name=str(k), curve=curve, held=(0,), up_s=0.0, down_s=0.0)
            for k, curve in enumerate(curves)
        )
        pool = (NodeClass("dedicated", pool_nodes),)
        counts = self._planner.counts(Problem(pool, trainers, self._t_fwd_s))
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        self._plans[pool_nodes, curves] = counts
        return counts
