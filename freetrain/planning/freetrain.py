"""The policy ``freetrain``, and its yardstick ``static``: plans of the most gain.

Both ask a solver for the best plan by the published objective (docs/reference/model.md,
M0). ``freetrain`` plans for the nodes that are idle now; ``static`` for as many nodes
that never leave, on which changes cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.planning.policy import (
    Planned,
    TrainerStates,
    plan_in_order,
    planned_by,
    problem_of,
)
from milp.problem import NodeClass, Problem, ProblemTrainer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.planning.policy import Request, Tools
    from milp.problem import Curve

    _Kind = tuple[Curve, int]
    """Curve and width of a trainer."""

_MOST_PLANS = 10_000
"""About 5 MB; a year of a busy machine asks for a few thousand different ones."""


class FreeTrain:
    """Asks a solver, which verifies its plans."""

    def __init__(self, tools: Tools) -> None:
        self._solver = tools.solver()
        self._states = TrainerStates()

    def plan(self, request: Request) -> Planned:
        """Return a verified plan; the present one where there is no better."""
        return plan_in_order(self._plan, request)

    def _plan(self, request: Request) -> Planned:
        answer = self._solver.plan(problem_of(request, self._states))
        return planned_by(answer, request)


class Static:
    """Asks a solver once for each set of curves and widths; remembers the answer.

    Such problems have many equal optima, which makes them slow to solve exactly, and
    few of them are different.
    """

    def __init__(self, tools: Tools) -> None:
        self._solver = tools.solver()
        self._numbers: dict[_Kind, int] = {}
        self._counts: dict[tuple[int, tuple[_Kind, ...]], tuple[int, ...]] = {}
        self._plans: dict[tuple[int, tuple[_Kind, ...]], Planned] = {}

    def plan(self, request: Request) -> Planned:
        """Return the plan for these trainers and all nodes, which are of one class."""
        ((k, free),) = request.free.items()
        nodes = free + sum([t.units(t.held).get(k, 0) for t in request.trainers])
        kinds = tuple(
            [(trainer.curve, trainer.width(k)) for trainer in request.trainers]
        )
        known = self._plans.get((nodes, kinds))
        if known is None:
            counts = self._in_order(kinds, nodes, request.t_fwd_s)
            known = Planned(holdings=[{k: given} if given else {} for given in counts])
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[nodes, kinds] = known
        return known

    def _in_order(
        self, kinds: Sequence[_Kind], nodes: int, t_fwd_s: float
    ) -> list[int]:
        """Return the counts of the same trainers in any order, in this order."""
        for kind in kinds:
            self._numbers.setdefault(kind, len(self._numbers))
        order = sorted(range(len(kinds)), key=lambda place: self._numbers[kinds[place]])
        found = self._best(tuple([kinds[place] for place in order]), nodes, t_fwd_s)
        counts = [0] * len(kinds)
        for place, given in zip(order, found, strict=True):
            counts[place] = given
        return counts

    def _best(
        self, kinds: tuple[_Kind, ...], nodes: int, t_fwd_s: float
    ) -> tuple[int, ...]:
        """Return the best counts for trainers of these kinds."""
        known = self._counts.get((nodes, kinds))
        if known is not None:
            return known
        trainers = tuple(
            ProblemTrainer(
                name=str(place),
                curve=curve,
                held=(0,),
                up_s=0.0,
                down_s=0.0,
                widths=None if width == 1 else (width,),
            )
            for place, (curve, width) in enumerate(kinds)
        )
        pool = (NodeClass("dedicated", nodes),)
        answer = self._solver.plan(Problem(pool, trainers, t_fwd_s))
        counts = tuple([row[0] for row in answer.plan.counts])
        if len(self._counts) >= _MOST_PLANS:
            self._counts.clear()
        self._counts[nodes, kinds] = counts
        return counts
