"""The policy ``static``: the published plan of nodes that never leave, a yardstick.

Changes cost nothing on such nodes, so that a plan follows from who is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.planning.request import Planned
from milp.problem import NodeClass, Problem, ProblemTrainer

if TYPE_CHECKING:
    from freetrain.planning.request import Request, Solver, Tools
    from milp.problem import Curve

_MOST_PLANS = 10_000
"""About 5 MB; a year of a busy machine asks for a few thousand different ones."""


def make(tools: Tools) -> Static:
    """Return the policy."""
    return Static(tools.solver())


class Static:
    """Asks a solver once for each set of curves, and remembers the answer.

    Such problems have many equal optima, which makes them slow to solve exactly, and
    few of them are different.
    """

    def __init__(self, solver: Solver) -> None:
        self._solver = solver
        self._curves: dict[Curve, int] = {}
        self._plans: dict[tuple[int, tuple[Curve, ...]], tuple[int, ...]] = {}

    def plan(self, request: Request) -> Planned:
        """Give every trainer what the plan for those who are there gives it.

        All nodes are of one class.
        """
        ((k, free),) = request.free.items()
        nodes = free + sum([trainer.held.get(k, 0) for trainer in request.trainers])
        curves = [trainer.curve for trainer in request.trainers]
        for curve in curves:
            self._curves.setdefault(curve, len(self._curves))
        order = sorted(
            range(len(curves)), key=lambda place: self._curves[curves[place]]
        )
        planned = self._counts(
            tuple(curves[place] for place in order), nodes, request.t_fwd_s
        )
        counts = [0] * len(curves)
        for place, given in zip(order, planned, strict=True):
            counts[place] = given
        return Planned(holdings=[{k: given} if given else {} for given in counts])

    def _counts(
        self, curves: tuple[Curve, ...], nodes: int, t_fwd_s: float
    ) -> tuple[int, ...]:
        """Return the best counts for trainers of these curves."""
        known = self._plans.get((nodes, curves))
        if known is not None:
            return known
        trainers = tuple(
            ProblemTrainer(
                name=str(place), curve=curve, held=(0,), up_s=0.0, down_s=0.0
            )
            for place, curve in enumerate(curves)
        )
        pool = (NodeClass("dedicated", nodes),)
        answer = self._solver.plan(Problem(pool, trainers, t_fwd_s))
        counts = tuple([row[0] for row in answer.plan.counts])
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        self._plans[nodes, curves] = counts
        return counts
