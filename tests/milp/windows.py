"""Random windows for the look-ahead planner's tests, and W0 worked out anew."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from milp.problem import NodeClass, Problem, ProblemTrainer
from milp.window import Window, WindowClass, WindowTrainer, total_gain
from milp.window_search import WindowPlanner
from tests.milp.planning_problems import curves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import DrawFn

    from milp.window import Holding


_SECONDS = st.sampled_from([0.0, 1.0, 12.0, 180.0])


@st.composite
def windows(
    draw: DrawFn,
    most_classes: int = 5,
    most_trainers: int = 5,
    *,
    least_worth: float = -100.0,
) -> Window:
    """Windows in which some nodes are held; a count need not be one of the sizes.

    What trainers do may be worth less than nothing: a priority may say so.
    """
    left = {
        k: draw(st.integers(1, 6)) for k in range(draw(st.integers(1, most_classes)))
    }
    stays = {k: draw(_stays(nodes)) for k, nodes in left.items()}
    few_curves = draw(st.lists(curves(least=least_worth), min_size=1, max_size=3))
    trainers = []
    for _ in range(draw(st.integers(0, most_trainers))):
        curve = draw(st.sampled_from(few_curves))
        room, held = len(curve.value_per_s) - 1, dict[int, int]()
        for k, unheld in left.items():
            nodes = draw(st.integers(0, min(unheld, room)))
            left[k] -= nodes
            room -= nodes
            held |= {k: nodes} if nodes else {}
        up_s, down_s, start_s, loss_s = (draw(_SECONDS) for _ in range(4))
        fresh = draw(_fresh(len(left)))
        trainers.append(
            WindowTrainer(curve, held, up_s, down_s, start_s, loss_s, fresh)
        )
    return Window(
        classes=stays,
        free={k: nodes for k, nodes in left.items() if nodes},
        trainers=tuple(trainers),
        hit_weight=draw(st.sampled_from([0.0, 0.25, 1.0])),
        change_weight=draw(st.sampled_from([1.0, 1.3])),
    )


def _fresh(classes: int) -> st.SearchStrategy[dict[int, float]]:
    some = st.dictionaries(st.integers(0, classes - 1), st.floats(0.0, 1.0), max_size=2)
    return st.just({}) | some


@st.composite
def _stays(draw: DrawFn, nodes: int) -> WindowClass:
    return WindowClass(
        nodes=nodes,
        life_s=draw(st.floats(1.0, 400.0)),
        hit=draw(st.floats(0.0, 1.0)),
        share=draw(st.floats(0.05, 1.0)),
    )


def standing_still() -> float:
    """Tell the time by a clock that does not go on."""
    return 0.0


def rows_of(window: Window, plan: Sequence[Holding]) -> list[list[int]]:
    """Return nodes by trainer and class, zeros among them."""
    return [[own.get(k, 0) for k in window.classes] for own in plan]


def present(window: Window) -> tuple[Holding, ...]:
    """Return what is held; who holds what is no size falls back to the next below."""
    return WindowPlanner().plan(window).kept


def whole_problem(window: Window) -> Problem:
    """Return *window* as the published planner's problem, every class told apart."""
    classes = tuple(NodeClass(str(k), stay.nodes) for k, stay in window.classes.items())
    trainers = tuple(
        ProblemTrainer(
            name=f"t{place}",
            curve=one.curve,
            held=tuple(one.held.get(k, 0) for k in window.classes),
            up_s=one.up_s,
            down_s=one.down_s,
        )
        for place, one in enumerate(window.trainers)
    )
    return Problem(classes, trainers, 400.0)


def wrong_gain(window: Window, holdings: Sequence[Holding], claimed: float) -> str:
    """Return in what the gain claimed is wrong; empty if it is right."""
    summed = total_gain(window, holdings)
    if math.isclose(summed, claimed, rel_tol=1e-9, abs_tol=1e-9):
        return ""
    return f"W0: claims a gain of {claimed!r}, but gains {summed!r}"
