"""Random planning problems for the planner's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from milp.problem import Curve, NodeClass, Problem, ProblemTrainer, custom

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import DrawFn

# Few distinct values make ties, any float makes none; curves need neither rise
# nor bend one way.
_WORTH = st.one_of(
    st.integers(0, 4).map(float), st.floats(0, 100, allow_subnormal=False)
)
_COST_S = st.sampled_from([0.0, 1.0, 12.0, 18.0, 180.0])
_T_FWD_S = st.sampled_from([1.0, 10.0, 120.0])


@st.composite
def curves(draw: DrawFn, most_nodes: int = 8, *, least: float = 0.0) -> Curve:
    worth = _WORTH if least >= 0.0 else _WORTH | st.floats(least, 0.0)
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
    trainers = []
    for index in range(draw(st.integers(0, most_trainers))):
        curve = draw(st.sampled_from(few_curves))
        held = _hold(draw, free, most=len(curve.value_per_s) - 1)
        mine = draw(_usable(len(pools))) if usable else None
        up_s, down_s, start_s = draw(st.tuples(_COST_S, _COST_S, _COST_S))
        trainers.append(
            ProblemTrainer(f"t{index}", curve, held, up_s, down_s, start_s, mine)
        )
    return Problem(classes, tuple(trainers), draw(_T_FWD_S))


def one_class_problems() -> st.SearchStrategy[Problem]:
    return problems()


def many_class_problems() -> st.SearchStrategy[Problem]:
    return problems(pools=(5, 4, 4), most_trainers=4, usable=True)


def _hold(draw: DrawFn, free: list[int], most: int) -> tuple[int, ...]:
    held: list[int] = []
    for k, left in enumerate(free):
        count = draw(st.integers(0, min(left, most - sum(held))))
        free[k] -= count
        held.append(count)
    return tuple(held)


def _usable(classes: int) -> st.SearchStrategy[frozenset[int] | None]:
    return st.none() | st.frozensets(st.integers(0, classes - 1))
