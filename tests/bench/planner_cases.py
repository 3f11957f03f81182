"""Planning problems for the benchmark: made by formula, the same every time."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np

from milp.exact import ExactSolver
from milp.problem import NodeClass, Problem, ProblemTrainer, custom, throughput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from milp.problem import Curve

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
