"""Options that cannot be in any optimal plan, and a plan to start from.

Lagrangian bound with one price for each class (docs/model.md, R1-R4): whatever
the prices, it is a bound; good ones make it tight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from milp.greedy import greedy
from milp.objective import gains, plan_gain
from milp.problem import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from milp.problem import Problem, TrainerState

# Far above the rounding of a sum of gains, relative to its magnitude (R5).
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Reduction:
    """A bound, the best plan known, and how much each option loses.

    Attributes:
        rows: Gains by trainer at 0 .. max nodes, ``-inf`` where not possible.
        losses: How far each lies under its trainer's best at the prices.
        bound: No plan gains more.
        rounding: Differences up to this say nothing.
        counts: The best plan known, shape (trainers, classes).
        gain: Its gain.
    """

    rows: Sequence[NDArray[np.float64]]
    losses: Sequence[NDArray[np.float64]]
    bound: float
    rounding: float
    counts: tuple[tuple[int, ...], ...]
    gain: float

    @property
    def gap(self) -> float:
        """How much a better plan can still gain, rounding included."""
        return self.bound - self.gain + self.rounding

    @property
    def is_proof(self) -> bool:
        """Whether the plan known is as good as the bound."""
        return self.bound - self.gain <= self.rounding

    def options(self, within: float) -> list[dict[int, float]]:
        """Gains of the sizes that lose up to *within*, and the known plan's sizes."""
        chosen = []
        for row, lost, counts in zip(self.rows, self.losses, self.counts, strict=True):
            sizes = {int(n) for n in np.flatnonzero(lost <= within)} | {sum(counts)}
            chosen.append({n: float(row[n]) for n in sorted(sizes)})
        return chosen

    def improved(self, counts: tuple[tuple[int, ...], ...], gain: float) -> Reduction:
        """The same with *counts* as the plan known, if they gain more."""
        return replace(self, counts=counts, gain=gain) if gain > self.gain else self

    def plan(self, *, proven: bool) -> Plan:
        """The plan known, as its own bound where it is proven optimal."""
        bound = self.gain if proven else max(self.gain, self.bound)
        return Plan(self.counts, self.gain, bound)


def reduce(
    problem: Problem,
    rows: Sequence[NDArray[np.float64]],
    prices: Sequence[float],
    sizes: Sequence[float],
) -> Reduction:
    """Bound the problem at *prices*, and find a greedy plan.

    Args:
        problem: The problem.
        rows: From :func:`feasible_gains`.
        prices: [lambda_k] Gain of a node of each class, 0 or more.
        sizes: A relaxed plan's size by trainer to start from, or nothing.
    """
    paid = [
        row - node_costs(trainer, problem, prices)[: len(row)]
        for trainer, row in zip(problem.trainers, rows, strict=True)
    ]
    best = np.array([float(one.max()) for one in paid])
    worth = sum(p * c.nodes for p, c in zip(prices, problem.classes, strict=True))
    bound = float(best.sum()) + worth
    rounding = _ROUNDING * (float(np.abs(best).sum()) + worth)
    priced = [float(one.argmax()) for one in paid]
    counts = _incumbent(problem, rows, [priced, *([sizes] if sizes else [])], prices)
    losses = [top - one for one, top in zip(paid, best, strict=True)]
    gain = plan_gain(problem, counts)
    return Reduction(rows, losses, bound, rounding, counts, gain)


def feasible_gains(problem: Problem) -> list[NDArray[np.float64]]:
    """Gains by trainer, ``-inf`` where no plan can have that size (M2-M5)."""
    rows = []
    free = [0.0] * len(problem.classes)
    for trainer in problem.trainers:
        row = gains(trainer, problem.t_fwd_s).copy()
        row[~np.isfinite(node_costs(trainer, problem, free))] = -np.inf
        rows.append(row)
    return rows


def node_costs(
    trainer: TrainerState, problem: Problem, prices: Sequence[float]
) -> NDArray[np.float64]:
    """Least price of 0 .. max nodes for *trainer* without migration (M4, M5).

    Below what it holds it keeps its cheapest nodes; above, it keeps all and
    adds the cheapest ones. ``inf`` where there are not that many.
    """
    usable = range(len(prices)) if trainer.usable is None else trainer.usable
    most = len(trainer.curve.value_per_s) - 1
    cheap_first = sorted(usable, key=lambda k: prices[k])
    own = [prices[k] for k in cheap_first for _ in range(trainer.held[k])]
    if len(own) == sum(trainer.held):
        for k in cheap_first:
            spare = problem.classes[k].nodes - trainer.held[k]
            own += [prices[k]] * min(spare, most - len(own))
    costs = np.full(most + 1, np.inf)
    costs[: len(own) + 1] = np.cumsum([0.0, *own])
    return costs


def _incumbent(
    problem: Problem,
    rows: Sequence[NDArray[np.float64]],
    starts: Sequence[Sequence[float]],
    prices: Sequence[float],
) -> tuple[tuple[int, ...], ...]:
    """The best of the greedy plans from each start and from the present counts."""
    held = [float(sum(trainer.held)) for trainer in problem.trainers]
    plans = []
    for start in (*starts, held):
        targets = [
            int(np.flatnonzero(np.isfinite(row[: int(size + 1e-6) + 1]))[-1])
            for row, size in zip(rows, start, strict=True)
        ]
        counts = greedy(problem, rows, targets=targets, price=prices)
        plans.append(tuple(map(tuple, counts)))
    return max(plans, key=lambda counts: plan_gain(problem, counts))
