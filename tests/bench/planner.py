"""How fast the planner is: count against node by CBC, large problems, exact calls."""

from __future__ import annotations

import math
from itertools import product
from operator import itemgetter
from statistics import fmean, median
from time import perf_counter
from typing import TYPE_CHECKING

from milp.answer import gap
from milp.exact import ExactSolver, Limit, SizeTable, search_all
from milp.planner import plan_counts
from milp.problem import violations
from milp.program import COUNT_OPTIONS, Cbc
from tests.bench.planner_cases import (
    many_classes,
    one_class,
    ragged,
    replay_like,
    summit_like,
)
from tests.milp.node_model import plan_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from milp.answer import Plan
    from milp.problem import Curve, Problem

NODE_LIMIT_S = 60.0
COUNT_LIMIT_S = 2.0


def lines(_: Path) -> Iterator[str]:
    """Yield the benchmark's tables, row by row, as they come."""
    yield from _against_node()
    yield from _large()
    yield from _exact_calls()


def _mixes() -> dict[str, Sequence[Curve]]:
    networks = summit_like()
    return {
        "seven networks": networks,
        "identical": networks[5:6],
        "ragged": ragged(seed=3),
    }


def _against_node() -> Iterator[str]:
    yield (
        f"count (best of 3) against node, both CBC, node cut at {NODE_LIMIT_S:g} s: "
        "30 trainers x 400 nodes"
    )
    yield "curves          held  count s  node s  node/count  gain to node's  count is"
    for (name, curves), held in product(_mixes().items(), (200, 400)):
        problem = one_class(curves, trainers=30, nodes=400, held=held, seed=1)
        runs = [_count(problem) for _ in range(3)]
        count, how, count_s = min(runs, key=itemgetter(2))
        begin = perf_counter()
        node = plan_nodes(problem, Cbc(), limit_s=NODE_LIMIT_S)
        node_s = perf_counter() - begin
        better = "(no plan)"
        if node is not None:
            better = f"{count.gain / node.gain:.6f}"
        yield (
            f"{name:14s}  {held:4d}  {count_s:7.3f}  {node_s:6.1f}  "
            f"{node_s / count_s:10.0f}  {better:14s}  {how}"
        )


def _large() -> Iterator[str]:
    yield f"count, CBC, modelling and solving, limit {COUNT_LIMIT_S:g} s"
    yield "trainers x nodes     curves          seconds  below bound  count is"
    for name, curves in _mixes().items():
        one = one_class(curves, trainers=300, nodes=10_000, held=5_000, seed=1)
        several = many_classes(curves, trainers=100, nodes=10_000, classes=16, seed=1)
        for title, problem in (
            ("300 x 10,000", one),
            ("100 x 10,000 in 16", several),
        ):
            plan, how, seconds = _count(problem)
            below = gap(plan.gain, plan.bound)
            yield f"{title:19s}  {name:14s}  {seconds:7.2f}  {below:11.4%}  {how}"


def _count(problem: Problem) -> tuple[Plan, str, float]:
    """Return the plan, how far it is proven, and the seconds that took."""
    begin = perf_counter()
    solver = Cbc(options=COUNT_OPTIONS)
    answer = plan_counts(problem, solver, limit_s=COUNT_LIMIT_S)
    seconds = perf_counter() - begin
    if violations(problem, answer.plan):
        raise SystemExit("the count formulation returned no sound plan")
    return answer.plan, answer.reason or answer.outcome, seconds


def _exact_calls() -> Iterator[str]:
    yield "exact, a run of problems as in a replay, seven networks up to 64 nodes"
    yield "trainers  mean pool  us a call  median us  dense us"
    for trainers, pool in ((10, 84), (20, 400), (40, 344)):
        problems = replay_like(trainers=trainers, nodes=pool, calls=400, seed=1)
        solver = ExactSolver()
        pruned = [_timed(solver.solve, problem) for problem in problems]
        dense_us = fmean(_timed(_dense, problem) for problem in problems[::10])
        yield (
            f"{trainers:8d}  {pool:9d}  {fmean(pruned):9.0f}  {median(pruned):9.0f}  "
            f"{dense_us:8.0f}"
        )


def _dense(problem: Problem) -> None:
    """The same without pruning: all sizes of all trainers, all pools (E1)."""
    table = SizeTable()
    priced = table.priced(table.rows_of(problem), 0.0)
    everything = Limit(math.inf, 0.0, problem.classes[0].nodes)
    search_all([one.within(math.inf) for one in priced], everything)


def _timed(call: Callable[[Problem], object], problem: Problem) -> float:
    """Microseconds that *call* takes on *problem*."""
    begin = perf_counter()
    call(problem)
    return (perf_counter() - begin) * 1e6
