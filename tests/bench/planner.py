"""How fast the planner is: count against node by CBC, large problems, exact calls."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from operator import itemgetter
from pathlib import Path
from statistics import fmean, median
from time import perf_counter

import numpy as np

from milp.answer import Plan, gap
from milp.exact import ExactSolver, Limit, SizeTable, search_all
from milp.planner import Planner, plan_counts
from milp.problem import (
    Curve,
    NodeClass,
    Problem,
    ProblemTrainer,
    as_one_class,
    custom,
    throughput,
    violations,
)
from milp.program import COUNT_OPTIONS, Cbc
from tests.milp.node_model import plan_nodes
from tests.milp.shared_nodes import SharedNode, SharedTrainer, shared_problem

NODE_LIMIT_S = 60.0
COUNT_LIMIT_S = 2.0
SHARED_LIMIT_S = 1.5
"""A plan shall take two seconds; modelling takes some, and CBC may end late."""


def lines(_: Path) -> Iterator[str]:
    """Yield the benchmark's tables, row by row, as they come."""
    yield from _against_node()
    yield from _large()
    yield from _exact_calls()
    yield from _several_classes()
    yield from _shared()


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


def _count(
    problem: Problem, *, limit_s: float = COUNT_LIMIT_S
) -> tuple[Plan, str, float]:
    """Return the plan, how far it is proven, and the seconds that took."""
    begin = perf_counter()
    solver = Cbc(options=COUNT_OPTIONS)
    answer = plan_counts(problem, solver, limit_s=limit_s)
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


def _several_classes() -> Iterator[str]:
    yield "exact, three classes over one: 30 trainers x 400 nodes, ragged, mean of 10"
    yield "may use        one class ms  three ms  ratio  by the solver"
    for who in ("every class", "some classes"):
        one_ms, three_ms, solved = 0.0, 0.0, 0
        for seed in range(10):
            problem = many_classes(
                ragged(seed=3), trainers=30, nodes=400, classes=3, seed=seed
            )
            if who == "every class":
                anywhere = [replace(one, usable=None) for one in problem.trainers]
                problem = replace(problem, trainers=tuple(anywhere))
            planner = Planner()
            three_ms += _timed(planner.plan, problem) / 1e4
            solved += planner.plan(problem).reason == ""
            one_ms += _timed(Planner().plan, as_one_class(problem)) / 1e4
        yield (
            f"{who:12s}  {one_ms:12.1f}  {three_ms:8.1f}  {three_ms / one_ms:5.1f}  "
            f"{solved:2d} of 10"
        )


def _shared() -> Iterator[str]:
    yield (
        "shared nodes of 8 GPUs of three kinds, leases of 1, 2, 4 and 8 GPUs: 100 "
        f"trainers x 1,000 nodes, CBC, limit {SHARED_LIMIT_S:g} s, worst of 4"
    )
    yield "may use       curves          classes  seconds  below bound  proven"
    for (name, curves), most_kinds in product(_mixes().items(), (1, 3)):
        seconds, below, proven, classes = 0.0, 0.0, 0, 0
        for seed in range(4):
            problem = shared(
                up_to(64, curves), trainers=100, most_kinds=most_kinds, seed=seed
            )
            plan, _, took_s = _count(problem, limit_s=SHARED_LIMIT_S)
            seconds = max(seconds, took_s)
            below = max(below, gap(plan.gain, plan.bound))
            proven += gap(plan.gain, plan.bound) == 0.0
            classes = max(classes, len(problem.classes))
        who = "one kind" if most_kinds == 1 else "1 to 3 kinds"
        yield (
            f"{who:12s}  {name:14s}  {classes:7d}  {seconds:7.2f}  {below:11.4%}  "
            f"{proven} of 4"
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


# The problems: made by formula, the same every time.

# Seven networks as they scale on Summit, roughly: samples a second on one node,
# and by which power of the node count that grows.
_NETWORKS = (
    (7100.0, 0.81),
    (1190.0, 0.98),
    (5220.0, 0.94),
    (990.0, 0.98),
    (3250.0, 0.94),
    (2710.0, 0.96),
    (2980.0, 0.93),
)
_MEASURED = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)


def summit_like() -> list[Curve]:
    """Seven curves up to 256 nodes, linear between measured sizes."""
    sizes = np.array(_MEASURED, dtype=np.float64)
    return [
        throughput(np.interp(np.arange(257), sizes, speed * sizes**power))
        for speed, power in _NETWORKS
    ]


def ragged(seed: int) -> list[Curve]:
    """Curves that neither rise throughout nor bend one way, some with few sizes."""
    rng = random.Random(seed)  # noqa: S311  a case, no secret
    curves = []
    for speed, power in _NETWORKS:
        values = [0.0] + [
            speed * n**power * rng.uniform(0.7, 1.1) for n in range(1, 257)
        ]
        powers_of_two = [1, 2, 4, 8, 16, 32, 64, 128, 256]
        curves.append(custom(values, rng.choice([None, None, powers_of_two])))
    return curves


def up_to(most: int, curves: Sequence[Curve]) -> list[Curve]:
    """Curves cut at *most* nodes or leases."""
    return [
        custom(curve.value_per_s[: most + 1], [n for n in curve.sizes if n <= most])
        for curve in curves
    ]


def one_class(
    curves: Sequence[Curve], *, trainers: int, nodes: int, held: int, seed: int
) -> Problem:
    """A problem in one class with a random current plan over up to *held* nodes."""
    return _problem(curves, ([nodes], [held]), None, trainers=trainers, seed=seed)


def many_classes(
    curves: Sequence[Curve], *, trainers: int, nodes: int, classes: int, seed: int
) -> Problem:
    """A problem whose classes differ in which trainers may use them."""
    rng = random.Random(seed)  # noqa: S311  a case, no secret
    each = [nodes // classes + (k < nodes % classes) for k in range(classes)]
    usable = [
        frozenset(rng.sample(range(classes), rng.randint(1, classes)))
        for _ in range(trainers)
    ]
    half = [n // 2 for n in each]
    return _problem(curves, (each, half), usable, trainers=trainers, seed=seed + 1)


def _problem(
    curves: Sequence[Curve],
    nodes_and_held: tuple[list[int], list[int]],
    usable: list[frozenset[int]] | None,
    *,
    trainers: int,
    seed: int,
) -> Problem:
    rng = random.Random(seed)  # noqa: S311  a case, no secret
    nodes, free = nodes_and_held
    states = []
    for index in range(trainers):
        curve = curves[index % len(curves)]
        mine = None if usable is None else usable[index]
        held = _hold(rng, curve, free, sorted(mine or range(len(nodes))))
        states.append(ProblemTrainer(f"t{index}", curve, held, 18.0, 12.0, usable=mine))
    classes = tuple(NodeClass(f"c{k}", n) for k, n in enumerate(nodes))
    return Problem(classes, tuple(states), 120.0)


def _hold(
    rng: random.Random, curve: Curve, free: list[int], usable: list[int]
) -> tuple[int, ...]:
    """Take a random allowed size out of *free*, or nothing."""
    reach = sum(free[k] for k in usable)
    share = max(1, 2 * reach // 3)
    fitting = [0, *(size for size in curve.sizes if size <= min(reach, share, 64))]
    missing = rng.choice(fitting)
    held = [0] * len(free)
    for k in rng.sample(usable, len(usable)):
        held[k] = min(missing, free[k])
        free[k] -= held[k]
        missing -= held[k]
    return tuple(held)


_SHARED_KINDS = ((1, 2, 4, 8),) * 3


_SHARED_NODES = 1_000
_IDLE_SHARE = 0.1


def shared(
    curves: Sequence[Curve], *, trainers: int, most_kinds: int, seed: int
) -> Problem:
    """A problem on nodes of 8 GPUs of three kinds, with leases of 1, 2, 4 or 8 GPUs.

    A tenth of the nodes is idle; others' jobs and leases are on the others. A trainer
    may use GPUs of up to *most_kinds* kinds.
    """
    rng = random.Random(seed)  # noqa: S311  a case, no secret
    team = [
        SharedTrainer(
            curve=curves[place % len(curves)],
            widths=(rng.choice((1, 2, 4, 8)),) * 3,
            kinds=frozenset(rng.sample(range(3), rng.randint(1, most_kinds))),
            costs_s=(18.0, 12.0, 0.0),
        )
        for place in range(trainers)
    ]
    # Every second trainer holds leases.
    rooms = [(place % 2) * one.curve.sizes[-1] for place, one in enumerate(team)]
    pool = []
    for _ in range(_SHARED_NODES):
        kind = rng.randrange(3)
        left, leases = 8, list[int]()
        if rng.random() >= _IDLE_SHARE:
            left, leases = _leases(rng, team, rooms, (kind, rng.randint(0, 7)))
        pool.append(SharedNode(kind, left, tuple(leases)))
    return shared_problem(pool, team, _SHARED_KINDS, 120.0).problem


def _leases(
    rng: random.Random,
    team: Sequence[SharedTrainer],
    rooms: list[int],
    kind_and_free: tuple[int, int],
) -> tuple[int, list[int]]:
    """Let trainers take leases of a node's free GPUs; the GPUs left, and who took."""
    kind, left = kind_and_free
    leases: list[int] = []
    for place in rng.sample(range(len(team)), 12):
        width = team[place].widths[kind]
        if kind in team[place].kinds and width <= left and rooms[place]:
            leases.append(place)
            rooms[place] -= 1
            left -= width
    return left, leases


def replay_like(*, trainers: int, nodes: int, calls: int, seed: int) -> list[Problem]:
    """Problems as a replay asks them: each starts from the plan of the one before.

    Between two calls the pool gains or loses a batch of nodes, and now and then
    a trainer finishes and a new one begins.
    """
    rng = random.Random(seed)  # noqa: S311  a case, no secret
    curves = [throughput(curve.value_per_s[:65]) for curve in summit_like()]
    mine = [rng.choice(curves) for _ in range(trainers)]
    held = [0] * trainers
    pool = nodes
    solver = ExactSolver()
    problems = []
    for _ in range(calls):
        pool = _next_pool(rng, pool, nodes, held)
        if rng.random() < 0.1:
            index = rng.randrange(trainers)
            held[index], mine[index] = 0, rng.choice(curves)
        states = tuple(
            ProblemTrainer(f"t{k}", mine[k], (held[k],), 18.0, 12.0)
            for k in range(trainers)
        )
        problems.append(Problem((NodeClass("idle", pool),), states, 120.0))
        held = [row[0] for row in solver.solve(problems[-1]).counts]
    return problems


def _next_pool(rng: random.Random, pool: int, mean: int, held: list[int]) -> int:
    """Change the pool by a batch and take the leaving nodes off their trainers."""
    batch = min(int(rng.expovariate(1 / 6)) + 1, mean)
    if rng.random() < mean / (mean + pool):
        return pool + batch
    for _ in range(min(batch, pool)):
        # Any node of the pool leaves; where it is held, its trainer loses it.
        owner = rng.choices([*range(len(held)), -1], [*held, pool - sum(held)])[0]
        if owner >= 0:
            held[owner] -= 1
        pool -= 1
    return pool
