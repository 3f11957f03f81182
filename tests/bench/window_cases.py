"""Windows for the benchmark: made by formula, the same every time."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from milp.problem import custom
from milp.window import Window, WindowClass, WindowTrainer
from tests.bench.planner_cases import ragged, summit_like

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from milp.problem import Curve

_LUMPS = (1, 2, 4, 8, 16)
"""Nodes of one class that a trainer holds at a time."""


def tick_windows() -> Iterator[tuple[str, Window]]:
    """Yield 20 windows of 100 trainers on 1,000 nodes in 8 classes, by name.

    Three mixes of curves; none, half or all nodes held; published costs and ten times
    these; the last two of all curves, a quarter held.
    """
    networks = summit_like()
    mixes = {
        "seven networks": networks,
        "identical": networks[5:6],
        "ragged": ragged(seed=3),
    }
    seed = 0
    for name, curves in mixes.items():
        for held in (0, 500, 1000):
            for cost in (1.0, 10.0):
                seed += 1
                title = f"{name:14s} {held:5d} x{cost:<2g}"
                yield title, window(curves, (100, 1000, 8), held, seed, cost=cost)
    for cost in (1.0, 10.0):
        seed += 1
        title = f"{'mixed':14s} {250:5d} x{cost:<2g}"
        mixed = [*networks, *ragged(seed=4)]
        yield title, window(mixed, (100, 1000, 8), 250, seed, cost=cost)


def small_windows() -> Iterator[tuple[str, Window]]:
    """Yield windows that an integer program can prove, by name."""
    seed = 100
    for trainers, nodes, classes in ((4, 15, 3), (6, 24, 6), (10, 50, 8), (8, 40, 12)):
        for held in (nodes // 2, nodes):
            seed += 1
            curves = [custom(one.value_per_s[:33]) for one in summit_like()]
            title = f"{trainers:2d} x {nodes} in {classes:2d}, {held:2d} held"
            yield title, window(curves, (trainers, nodes, classes), held, seed)


def window(
    curves: Sequence[Curve],
    shape: tuple[int, int, int],
    held: int,
    seed: int,
    *,
    cost: float = 10.0,
) -> Window:
    """Return a window with random lives, class sizes and present plan.

    Args:
        curves: Handed out in turn.
        shape: Trainers, nodes, classes.
        held: Nodes that are held.
        seed: Of all that is random.
        cost: Times the published costs of changes.
    """
    rng = random.Random(seed)  # noqa: S311  a case, no secret
    trainers, nodes, classes = shape
    cuts = [0, *sorted(rng.sample(range(1, nodes), classes - 1)), nodes]
    free = {k: cuts[k + 1] - cuts[k] for k in range(classes)}
    stays = {k: _stay(rng, nodes) for k, nodes in free.items()}
    most = [curves[j % len(curves)].sizes[-1] for j in range(trainers)]
    own = _hold(rng, free, held, most)
    return Window(
        classes=stays,
        free={k: n for k, n in free.items() if n},
        trainers=tuple(
            WindowTrainer(
                curve=curves[j % len(curves)],
                held=own[j],
                up_s=18.0 * cost,
                down_s=12.0 * cost,
                start_s=30.0 * cost * (seed % 2),
                loss_s=12.0 * cost + 150.0 * (seed % 3),
            )
            for j in range(trainers)
        ),
        hit_weight=0.25,
        change_weight=1.3,
    )


def _stay(rng: random.Random, nodes: int) -> WindowClass:
    return WindowClass(
        nodes=nodes,
        life_s=rng.uniform(40.0, 400.0),
        hit=rng.uniform(0.05, 0.95),
        share=rng.choice([0.02, 0.1, 0.5, 1.0]),
    )


def _hold(
    rng: random.Random, free: dict[int, int], held: int, most: Sequence[int]
) -> list[dict[int, int]]:
    """Hand *held* nodes out in lumps of one class; *free* is changed."""
    own: list[dict[int, int]] = [{} for _ in most]
    order = rng.sample(range(len(most)), len(most))
    turn = 0
    while held:
        place = order[turn % len(order)]
        turn += 1
        k = rng.choice([k for k, n in free.items() if n])
        room = most[place] - sum(own[place].values())
        lump = min(free[k], held, rng.choice(_LUMPS), room)
        if lump:
            own[place][k] = own[place].get(k, 0) + lump
            free[k] -= lump
            held -= lump
    return own
