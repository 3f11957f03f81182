"""The published node-level MILP: a yardstick (docs/reference/model.md, "Node by node").

One binary for each trainer and node, as the authors coded it. The curve is one
binary for each size instead of SOS2 weights: between measured points the curve
is given at every whole count already, sizes may be any set, and CBC branches on
binaries better than on SOS2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pulp

from milp.answer import Plan, SolverStatus
from milp.problem import loose_bound, plan_gain
from milp.program import whole

if TYPE_CHECKING:
    from milp.problem import Problem, ProblemTrainer
    from milp.program import ModelSolver


class _Node(NamedTuple):
    class_index: int
    holder: int | None


class _NodeModel(NamedTuple):
    model: pulp.LpProblem
    x: list[dict[int, pulp.LpVariable]]
    nodes: list[_Node]


def plan_nodes(
    problem: Problem, solver: ModelSolver, *, limit_s: float | None
) -> Plan | None:
    """Plan with one binary variable for each trainer and node; its bound if optimal.

    Raises:
        SolverFailedError: The solver crashed or returned no usable point.
        SolverUnavailableError: The solver is not installed.
    """
    built = _build(problem)
    found = solver.solve(built.model, limit_s=limit_s)
    if found not in (SolverStatus.OPTIMUM, SolverStatus.INCUMBENT):
        return None
    counts = tuple([_counts(row, built.nodes, problem) for row in built.x])
    gain = plan_gain(problem, counts)
    bound = gain if found is SolverStatus.OPTIMUM else max(gain, loose_bound(problem))
    return Plan(counts, gain, bound)


def _counts(
    row: dict[int, pulp.LpVariable], nodes: list[_Node], problem: Problem
) -> tuple[int, ...]:
    counts = [0] * len(problem.classes)
    for index, taken in zip(row, whole(row.values()), strict=True):
        counts[nodes[index].class_index] += taken
    return tuple(counts)


def _build(problem: Problem) -> _NodeModel:
    model = pulp.LpProblem("node", pulp.LpMaximize)
    nodes = _expand(problem)
    objective: list[pulp.LpAffineExpression] = []
    x = []
    for index, trainer in enumerate(problem.trainers):
        row, worth = _add_trainer(model, (index, trainer), nodes, problem.t_fwd_s)
        x.append(row)
        objective.append(worth)
    model += pulp.lpSum(objective)
    for index in range(len(nodes)):  # M3
        takers = [row[index] for row in x if index in row]
        if takers:
            model += pulp.lpSum(takers) <= 1
    return _NodeModel(model, x, nodes)


def _expand(problem: Problem) -> list[_Node]:
    """Classes to single nodes, those held first."""
    nodes: list[_Node] = []
    for k, node_class in enumerate(problem.classes):
        held = [
            _Node(k, j)
            for j, t in enumerate(problem.trainers)
            for _ in range(t.held[k])
        ]
        nodes += held
        nodes += [_Node(k, None)] * (node_class.nodes - len(held))
    return nodes


def _add_trainer(
    model: pulp.LpProblem,
    numbered: tuple[int, ProblemTrainer],
    nodes: list[_Node],
    t_fwd_s: float,
) -> tuple[dict[int, pulp.LpVariable], pulp.LpAffineExpression]:
    """Add one trainer's variables and constraints; return x and its gain (M0)."""
    j, trainer = numbered
    held = sum(trainer.held)
    z = {n: _binary(model, f"z_{j}_{n}") for n in (0, *trainer.curve.sizes)}
    x = {
        i: _binary(model, f"x_{j}_{i}")
        for i, node in enumerate(nodes)
        if trainer.usable is None or node.class_index in trainer.usable
    }
    grown = _binary(model, f"u_{j}")
    shrunk = _binary(model, f"d_{j}")
    model += pulp.lpSum(z.values()) == 1  # M2
    model += pulp.lpSum(x.values()) == pulp.lpSum(n * z[n] for n in z)
    model += grown == pulp.lpSum(z[n] for n in z if n > held)  # M6
    model += shrunk == pulp.lpSum(z[n] for n in z if n < held)
    for i, node in enumerate(nodes):  # M4; M5 where a held node is not usable
        if node.holder == j:
            model += x.get(i, 0) >= 1 - shrunk
        elif i in x:
            model += x[i] <= grown
    return x, _worth(trainer, z, (grown, shrunk), t_fwd_s)


def _worth(
    trainer: ProblemTrainer,
    z: dict[int, pulp.LpVariable],
    flags: tuple[pulp.LpVariable, pulp.LpVariable],
    t_fwd_s: float,
) -> pulp.LpAffineExpression:
    """The trainer's part of the objective (M0), costs hung on the flags."""
    grown, shrunk = flags
    curve = trainer.curve.value_per_s
    held = sum(trainer.held)
    earning_s = t_fwd_s - (trainer.start_s if held == 0 else 0.0)
    earned = pulp.lpSum(earning_s * float(curve[n]) * z[n] for n in z)
    lump = float(curve[held])
    return earned - lump * trainer.up_s * grown - lump * trainer.down_s * shrunk


def _binary(model: pulp.LpProblem, name: str) -> pulp.LpVariable:
    return model.add_variable(name, cat=pulp.LpBinary)
