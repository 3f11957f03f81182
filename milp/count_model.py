"""The count MILP as a PuLP model (docs/model.md, M1-M6 by class)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import pulp

from milp.scale import scale_of
from milp.solver import whole

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from milp.problem import Problem, TrainerState


class CountModel(NamedTuple):
    """A model and where to read its answer.

    Attributes:
        model: The PuLP model; its objective is the gain times ``scale``.
        x: [x_jk] By trainer and class; 0 where the class is not usable.
        capacity: [M3] One row for each class; its dual is the price of a node.
        scale: Factor of the objective, for the solver's tolerances.
    """

    model: pulp.LpProblem
    x: list[list[pulp.LpVariable | int]]
    capacity: list[pulp.LpConstraint]
    scale: float

    def counts(self) -> tuple[tuple[int, ...], ...]:
        """Return the solved counts.

        Raises:
            SolverFailedError: A count is missing or fractional.
        """
        return tuple([_read(row) for row in self.x])

    def prices(self) -> list[float]:
        """Return the price of a node of each class in a relaxed solution."""
        return [abs(_finite(row.pi)) / self.scale for row in self.capacity]

    def relaxed_sizes(self) -> list[float]:
        """Return each trainer's nodes in a relaxed solution, whole or not."""
        return [
            sum(max(0.0, _finite(n.value())) for n in row if not isinstance(n, int))
            for row in self.x
        ]


def _scale(options: Sequence[Mapping[int, float]]) -> float:
    largest = max((abs(g) for row in options for g in row.values()), default=0.0)
    return scale_of(largest)


def build(
    problem: Problem, options: Sequence[Mapping[int, float]], *, category: str
) -> CountModel:
    """Build the model over *options* (gains by size, for each trainer).

    Args:
        problem: The problem.
        options: Gains of the sizes to choose from, by trainer; 0 is among them
            or the trainer's size now.
        category: PuLP's name for the variables' kind; continuous to relax it.
    """
    model = pulp.LpProblem("count", pulp.LpMaximize)
    scale = _scale(options)
    objective: list[pulp.LpAffineExpression] = []
    x = []
    for j, (trainer, row) in enumerate(zip(problem.trainers, options, strict=True)):
        z = {n: model.add_variable(f"z_{j}_{n}", 0, 1, category) for n in row}
        objective += [scale * gain * z[n] for n, gain in row.items()]
        model += pulp.lpSum(z.values()) == 1  # M2
        x.append(_add_counts(model, (j, trainer), z, problem, category=category))
    model += pulp.lpSum(objective)  # M0
    capacity = []
    for k, node_class in enumerate(problem.classes):  # M3
        row = pulp.lpSum(counts[k] for counts in x) <= node_class.nodes
        model += row, f"capacity_{k}"
        capacity.append(row)
    return CountModel(model, x, capacity, scale)


def _add_counts(
    model: pulp.LpProblem,
    numbered: tuple[int, TrainerState],
    z: Mapping[int, pulp.LpVariable],
    problem: Problem,
    *,
    category: str,
) -> list[pulp.LpVariable | int]:
    """Add one trainer's counts by class: their sum (M2), no migration (M4)."""
    j, trainer = numbered
    held = sum(trainer.held)
    grown = pulp.lpSum(z[n] for n in z if n > held)
    shrunk = pulp.lpSum(z[n] for n in z if n < held)
    x: list[pulp.LpVariable | int] = []
    for k, node_class in enumerate(problem.classes):
        before = trainer.held[k]
        most = min(node_class.nodes, max(z)) if _may_use(trainer, k) else 0
        if most == 0:
            x.append(0)  # M5
            continue
        count = model.add_variable(f"x_{j}_{k}", 0, most, category)
        x.append(count)
        if len(problem.classes) > 1:
            model += count >= before * (1 - shrunk)
            model += count <= before + (most - before) * grown
    model += pulp.lpSum(x) == pulp.lpSum(n * z[n] for n in z)
    return x


def _may_use(trainer: TrainerState, k: int) -> bool:
    return trainer.usable is None or k in trainer.usable


def _read(row: Sequence[pulp.LpVariable | int]) -> tuple[int, ...]:
    variables = [count for count in row if not isinstance(count, int)]
    values = iter(whole(variables))
    return tuple([n if isinstance(n, int) else next(values) for n in row])


def _finite(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else 0.0
