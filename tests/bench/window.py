"""How near to the best the look-ahead planner's plans for a tick are, and how fast.

``python -m tests.bench window``
"""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import process_time

import pulp

from milp.answer import PlanStatus, SolverStatus, SolverUnavailableError, gap
from milp.problem import Curve, custom
from milp.window import (
    BoundedClasses,
    Holding,
    SearchDeadline,
    Window,
    WindowClass,
    WindowTrainer,
    first_bound,
    size_rows,
    tighten,
)
from milp.window_planner import Exchange, WindowAnswer, answer_window, repair
from milp.window_search import WindowPlanner
from tests.bench.planner import ragged, summit_like

LIMIT_S = 2.0
LONG_S = 6.0
"""Processor time for the best known plan."""


class _NoSolver:
    """Is not there, so that the search stands alone."""

    def solve(self, _: pulp.LpProblem, *, limit_s: float | None) -> SolverStatus:
        raise SolverUnavailableError(f"no solver, though it had {limit_s} s.")


def lines(_: Path) -> Iterator[str]:
    """Yield the benchmark's tables, row by row, as they come."""
    yield from _ticks()
    yield from _against_program()


def _ticks() -> Iterator[str]:
    yield (
        f"100 trainers x 1,000 nodes in 8 classes, limit {LIMIT_S:g} s, processor time"
    )
    yield "curves          held cost  seconds  replay's  below bound  below best known"
    all_within = count = 0
    longest_s = 0.0
    for name, window in tick_windows():
        answer, seconds = _timed(window, LIMIT_S)
        fast = WindowPlanner().plan(window)
        known = max(answer.gain, _best_known(window, answer, fast.kept))
        below, behind = gap(answer.gain, answer.bound), gap(answer.gain, known)
        count += 1
        all_within += min(below, behind) <= 0.01
        longest_s = max(longest_s, seconds)
        yield (
            f"{name}  {seconds:7.2f}  {gap(fast.gain, answer.bound):8.2%}  "
            f"{below:11.2%}  {behind:16.2%}"
        )
    yield (
        f"{all_within} of {count} within 1 % of the bound or of the best known plan; "
        f"the longest took {longest_s:.2f} s"
    )


def _against_program() -> Iterator[str]:
    yield "small windows: the search alone, and with the integer program"
    yield "trainers x nodes in classes    search s  below optimum  program s  answer"
    for name, window in small_windows():
        alone, alone_s = _timed(window, LIMIT_S, _NoSolver())
        proven, seconds = _timed(window, 10.0 * LIMIT_S)
        missing = gap(alone.gain, proven.gain)
        told = str(proven.outcome)
        if proven.outcome is not PlanStatus.PROVEN:
            told += f", gap {proven.gap:.2%}"
        yield f"{name:29s}  {alone_s:8.2f}  {missing:13.3%}  {seconds:9.2f}  {told}"


def _timed(
    window: Window, limit_s: float, solver: _NoSolver | None = None
) -> tuple[WindowAnswer, float]:
    """Return the answer and the seconds of processor time, CBC's own left out."""
    began_s = process_time()
    answer = answer_window(window, limit_s=limit_s, clock=process_time, solver=solver)
    return answer, process_time() - began_s


def _best_known(
    window: Window, answer: WindowAnswer, kept: tuple[Holding, ...]
) -> float:
    """Return what a much longer search finds from the answer and what is *kept*."""
    pool = BoundedClasses.of(window)
    options = size_rows(window, pool)
    dual = tighten(options, first_bound(options), reached=answer.gain, steps=200)
    exchange, best = Exchange(window, pool), answer.gain
    end = SearchDeadline(process_time() + LONG_S, process_time)
    for plan in (answer.holdings, kept):
        exchange.changes.load(pool.rows(plan))
        exchange.run(end)
        repair(exchange, options, dual, rounds=100_000, deadline=end.share(0.5))
        best = max(best, exchange.changes.gain)
    return best


# The windows: made by formula, the same every time.

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
