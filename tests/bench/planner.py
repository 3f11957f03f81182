"""How fast the planner is: count against node by CBC, large problems, exact calls."""

from __future__ import annotations

from operator import itemgetter
from time import perf_counter
from typing import TYPE_CHECKING

from rich.table import Table

from milp.count import plan_counts
from milp.exact import ExactSolver, dense
from milp.node import plan_nodes
from milp.objective import gains
from milp.solver import COUNT_OPTIONS, Cbc
from milp.verify import violations
from tests.bench.planner_cases import (
    many_classes,
    one_class,
    ragged,
    replay_like,
    summit_like,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from milp.problem import Curve, Problem
    from milp.proposal import Proposal

NODE_LIMIT_S = 60.0
COUNT_LIMIT_S = 2.0


def run(console: Console) -> None:
    console.print(_against_node(console))
    console.print(_large(console))
    console.print(_exact_calls())


def _mixes() -> dict[str, Sequence[Curve]]:
    networks = summit_like()
    return {
        "seven networks": networks,
        "identical": networks[5:6],
        "ragged": ragged(seed=3),
    }


def _against_node(console: Console) -> Table:
    table = Table(
        "trainers", "count s", "node s", "node / count", "count gain / node's"
    )
    table.title = f"30 trainers x 400 nodes, CBC, node cut at {NODE_LIMIT_S:g} s"
    for name, curves in _mixes().items():
        console.log(f"count against node: {name}")
        problem = one_class(curves, trainers=30, nodes=400, seed=1)
        count, count_s = min((_count(problem) for _ in range(3)), key=itemgetter(1))
        begin = perf_counter()
        node = plan_nodes(problem, Cbc(), limit_s=NODE_LIMIT_S)
        node_s = perf_counter() - begin
        better = "node found none"
        if node.plan is not None and count.plan is not None:
            better = f"{count.plan.gain / node.plan.gain:.6f} ({node.found})"
        ratio = f"{node_s / count_s:.0f}"
        table.add_row(name, f"{count_s:.3f}", f"{node_s:.1f}", ratio, better)
    return table


def _large(console: Console) -> Table:
    table = Table("trainers x nodes", "curves", "seconds", "outcome", "below bound")
    table.title = "count, CBC, one core, modelling and solving"
    for name, curves in _mixes().items():
        console.log(f"large problems: {name}")
        one = one_class(curves, trainers=300, nodes=10_000, seed=1)
        several = many_classes(curves, trainers=100, nodes=10_000, classes=16, seed=1)
        for title, problem in (
            ("300 x 10,000", one),
            ("100 x 10,000 in 16", several),
        ):
            proposal, seconds = _count(problem)
            if proposal.plan is not None:
                below = 1.0 - proposal.plan.gain / proposal.plan.bound
                outcome = str(proposal.found)
                table.add_row(title, name, f"{seconds:.2f}", outcome, f"{below:.4%}")
    return table


def _count(problem: Problem) -> tuple[Proposal, float]:
    begin = perf_counter()
    proposal = plan_counts(problem, Cbc(options=COUNT_OPTIONS), limit_s=COUNT_LIMIT_S)
    seconds = perf_counter() - begin
    if proposal.plan is None or violations(problem, proposal.plan):
        raise SystemExit("the count formulation returned no sound plan")
    return proposal, seconds


def _exact_calls() -> Table:
    table = Table("trainers", "mean pool", "calls", "µs a call", "µs a call, dense")
    table.title = "exact, a run of problems as in a replay, seven networks to 64 nodes"
    for trainers, pool in ((10, 84), (20, 400), (40, 344)):
        problems = replay_like(trainers=trainers, nodes=pool, calls=400, seed=1)
        solver = ExactSolver()
        begin = perf_counter()
        for problem in problems:
            solver.solve(problem)
        pruned_us = (perf_counter() - begin) / len(problems) * 1e6
        few = problems[::10]
        begin = perf_counter()
        for problem in few:
            rows = [gains(t, problem.t_fwd_s) for t in problem.trainers]
            dense(rows, problem.classes[0].nodes)
        dense_us = (perf_counter() - begin) / len(few) * 1e6
        table.add_row(
            str(trainers),
            str(pool),
            str(len(problems)),
            f"{pruned_us:.0f}",
            f"{dense_us:.0f}",
        )
    return table
