"""The published node-level MILP: a yardstick (docs/reference/model.md, "Node by node").

One binary for each trainer and node, as the authors coded it. The curve is one
binary for each size instead of SOS2 weights: between measured points the curve
is given at every whole count already, sizes may be any set, and CBC branches on
binaries better than on SOS2.
"""

import pulp

from milp.answer import Plan, SolverStatus
from milp.problem import Problem, loose_bound, plan_gain
from milp.program import ModelSolver, whole


def plan_nodes(
    problem: Problem, solver: ModelSolver, *, limit_s: float | None
) -> Plan | None:
    """Plan with one binary variable for each trainer and node.

    Returns:
        None if the solver found nothing; the bound is the gain if it found the optimum.
    """
    model = pulp.LpProblem("node", pulp.LpMaximize)
    nodes = _expand(problem)
    objective: list[pulp.LpAffineExpression] = []
    x = []
    for j in range(len(problem.trainers)):
        row, worth = _add_trainer(model, problem, j, nodes)
        x.append(row)
        objective.append(worth)
    model += pulp.lpSum(objective)
    for index in range(len(nodes)):  # M3
        takers = [row[index] for row in x if index in row]
        if takers:
            model += pulp.lpSum(takers) <= 1
    found = solver.solve(model, limit_s=limit_s)
    if found not in (SolverStatus.OPTIMUM, SolverStatus.INCUMBENT):
        return None
    rows = [[0] * len(problem.classes) for _ in x]
    for counts, row in zip(rows, x, strict=True):
        for index, taken in zip(row, whole(row.values()), strict=True):
            counts[nodes[index][0]] += taken
    gain = plan_gain(problem, rows)
    bound = gain if found is SolverStatus.OPTIMUM else max(gain, loose_bound(problem))
    return Plan(tuple(map(tuple, rows)), gain, bound)


def _expand(problem: Problem) -> list[tuple[int, int | None]]:
    """Return class and holder of each node, those held first."""
    nodes: list[tuple[int, int | None]] = []
    for k, node_class in enumerate(problem.classes):
        held = [
            (k, j) for j, t in enumerate(problem.trainers) for _ in range(t.held[k])
        ]
        nodes += held
        nodes += [(k, None)] * (node_class.nodes - len(held))
    return nodes


def _add_trainer(
    model: pulp.LpProblem, problem: Problem, j: int, nodes: list[tuple[int, int | None]]
) -> tuple[dict[int, pulp.LpVariable], pulp.LpAffineExpression]:
    """Add one trainer's variables and constraints; return x and its gain (M0)."""
    trainer = problem.trainers[j]
    held, curve = sum(trainer.held), trainer.curve.value_per_s
    z = {n: _binary(model, f"z_{j}_{n}") for n in (0, *trainer.curve.sizes)}
    x = {
        i: _binary(model, f"x_{j}_{i}")
        for i, (k, _) in enumerate(nodes)
        if trainer.usable is None or k in trainer.usable
    }
    grown = _binary(model, f"u_{j}")
    shrunk = _binary(model, f"d_{j}")
    model += pulp.lpSum(z.values()) == 1  # M2
    model += pulp.lpSum(x.values()) == pulp.lpSum(n * z[n] for n in z)
    model += grown == pulp.lpSum(z[n] for n in z if n > held)  # M6
    model += shrunk == pulp.lpSum(z[n] for n in z if n < held)
    for i, (_, holder) in enumerate(nodes):  # M4; M5 where a held node is not usable
        if holder == j:
            model += x.get(i, 0) >= 1 - shrunk
        elif i in x:
            model += x[i] <= grown
    earning_s = problem.t_fwd_s - (trainer.start_s if held == 0 else 0.0)
    earned = pulp.lpSum(earning_s * float(curve[n]) * z[n] for n in z)
    lost_s = trainer.up_s * grown + trainer.down_s * shrunk
    return x, earned - float(curve[held]) * lost_s


def _binary(model: pulp.LpProblem, name: str) -> pulp.LpVariable:
    return model.add_variable(name, cat=pulp.LpBinary)
