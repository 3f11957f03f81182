"""Random planning problems and windows, and checks that share nothing with a search."""

import math
from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from milp.problem import (
    Curve,
    NodeClass,
    Problem,
    ProblemTrainer,
    constraint_violations,
    custom,
)
from milp.window import Holding, Window, WindowClass, WindowTrainer, total_gain
from milp.window_search import WindowPlanner

# Few distinct values make ties, any float makes none; curves need neither rise
# nor bend one way.
_WORTH = st.one_of(
    st.integers(0, 4).map(float), st.floats(0, 100, allow_subnormal=False)
)
_COST_S = st.sampled_from([0.0, 1.0, 12.0, 18.0, 180.0])
_T_FWD_S = st.sampled_from([1.0, 10.0, 120.0])


@st.composite
def curves(draw: DrawFn, most_nodes: int = 8, *, least: float = 0.0) -> Curve:
    worth = (
        _WORTH
        if least >= 0.0
        else _WORTH | st.floats(least, 0.0, allow_subnormal=False)
    )
    values = draw(st.lists(worth, min_size=1, max_size=most_nodes))
    every = range(1, len(values) + 1)
    sizes = draw(st.none() | st.sets(st.sampled_from(every), min_size=1))
    return custom([0.0, *values], sizes)


@st.composite
def problems(
    draw: DrawFn,
    *,
    pools: Sequence[int] = (24,),
    most_trainers: int = 6,
    usable: bool = False,
) -> Problem:
    """Problems of up to ``pools[k]`` nodes in class k, some of them held.

    A trainer may hold a count that is not one of its sizes, as after a loss.
    """
    free = [draw(st.integers(0, most)) for most in pools]
    classes = tuple(NodeClass(f"c{k}", n) for k, n in enumerate(free))
    few_curves = draw(st.lists(curves(), min_size=1, max_size=3))
    some = st.none() | st.frozensets(st.integers(0, len(pools) - 1))
    trainers = []
    for index in range(draw(st.integers(0, most_trainers))):
        curve = draw(st.sampled_from(few_curves))
        held: list[int] = []
        for k, left in enumerate(free):
            room = len(curve.value_per_s) - 1 - sum(held)
            held.append(draw(st.integers(0, min(left, room))))
            free[k] -= held[-1]
        costs_s = draw(st.tuples(_COST_S, _COST_S, _COST_S))
        mine = draw(some) if usable else None
        trainers.append(ProblemTrainer(f"t{index}", curve, tuple(held), *costs_s, mine))
    return Problem(classes, tuple(trainers), draw(_T_FWD_S))


one_class_problems = problems


def many_class_problems() -> st.SearchStrategy[Problem]:
    return problems(pools=(5, 4, 4), most_trainers=4, usable=True)


@st.composite
def windows(
    draw: DrawFn,
    most_classes: int = 5,
    most_trainers: int = 5,
    *,
    least_worth: float = -100.0,
) -> Window:
    """Windows in which some nodes are held; a count need not be one of the sizes.

    Worths may be below 0: a priority may make them so.
    """
    left = {
        k: draw(st.integers(1, 6)) for k in range(draw(st.integers(1, most_classes)))
    }
    lives_s, hits, shares = (
        st.floats(1.0, 400.0),
        st.floats(0.0, 1.0),
        st.floats(0.05, 1.0),
    )
    classes = {
        k: WindowClass(nodes, draw(lives_s), draw(hits), draw(shares))
        for k, nodes in left.items()
    }
    few_curves = draw(st.lists(curves(least=least_worth), min_size=1, max_size=3))
    cost_s = st.sampled_from([0.0, 1.0, 12.0, 180.0])
    none: dict[int, float] = {}
    new_hit_share = st.just(none) | st.dictionaries(
        st.integers(0, len(left) - 1), st.floats(0.0, 1.0), max_size=2
    )
    trainers = []
    for _ in range(draw(st.integers(0, most_trainers))):
        curve = draw(st.sampled_from(few_curves))
        room, held = len(curve.value_per_s) - 1, dict[int, int]()
        for k, unheld in left.items():
            nodes = draw(st.integers(0, min(unheld, room)))
            left[k] -= nodes
            room -= nodes
            held |= {k: nodes} if nodes else {}
        costs_s = draw(st.tuples(cost_s, cost_s, cost_s, cost_s))
        trainers.append(WindowTrainer(curve, held, *costs_s, draw(new_hit_share)))
    return Window(
        classes=classes,
        free={k: nodes for k, nodes in left.items() if nodes},
        trainers=tuple(trainers),
        hit_weight=draw(st.sampled_from([0.0, 0.25, 1.0])),
        change_weight=draw(st.sampled_from([1.0, 1.3])),
    )


def standing_still() -> float:
    """Be a clock that does not go on."""
    return 0.0


def present(window: Window) -> tuple[Holding, ...]:
    """Return the present plan; a trainer off its sizes falls back to the next below."""
    return WindowPlanner().plan(window).kept


def whole_problem(window: Window) -> Problem:
    """Return *window* as the published planner's problem, each class apart."""
    classes = tuple(NodeClass(str(k), own.nodes) for k, own in window.classes.items())
    trainers = tuple(
        ProblemTrainer(
            name=f"t{place}",
            curve=trainer.curve,
            held=tuple(trainer.held.get(k, 0) for k in window.classes),
            up_s=trainer.up_s,
            down_s=trainer.down_s,
        )
        for place, trainer in enumerate(window.trainers)
    )
    return Problem(classes, trainers, 400.0)


def faults(
    window: Window, plan: Sequence[Holding], claimed: float | None = None
) -> tuple[str, ...]:
    """Return what the published verifier says of *plan*, and if *claimed* is wrong."""
    rows = [[own.get(k, 0) for k in window.classes] for own in plan]
    broken = constraint_violations(whole_problem(window), rows)
    if broken or claimed is None:
        return broken
    gained = total_gain(window, plan)
    is_right = math.isclose(gained, claimed, rel_tol=1e-9, abs_tol=1e-9)
    return () if is_right else (f"W0: claims {claimed!r}, but gains {gained!r}",)


def draw_start(data: st.DataObject, window: Window) -> list[int]:
    """Draw a size for each trainer, all of which fit the pool together."""
    pool, start = sum(own.nodes for own in window.classes.values()), []
    for trainer in window.trainers:
        fitting = [n for n in (0, *trainer.curve.sizes) if n <= pool]
        start.append(data.draw(st.sampled_from(fitting)))
        pool -= start[-1]
    return start
