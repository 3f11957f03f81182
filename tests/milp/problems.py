"""Random planning problems for the planner's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from milp.curve import custom
from milp.problem import Curve, NodeClass, Problem, TrainerState

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

# Few distinct values make ties, any float makes none; curves need neither rise
# nor bend one way.
_WORTH = st.one_of(
    st.integers(0, 4).map(float), st.floats(0, 100, allow_subnormal=False)
)
_COST_S = st.sampled_from([0.0, 1.0, 12.0, 18.0, 180.0])


@st.composite
def curves(draw: DrawFn, most_nodes: int = 8) -> Curve:
    values = draw(st.lists(_WORTH, min_size=1, max_size=most_nodes))
    every = range(1, len(values) + 1)
    sizes = draw(st.none() | st.sets(st.sampled_from(every), min_size=1))
    return custom([0.0, *values], sizes)


@st.composite
def one_class_problems(draw: DrawFn, most_trainers: int = 6) -> Problem:
    pool = draw(st.integers(0, 24))
    shared_curves = draw(st.lists(curves(), min_size=1, max_size=3))
    trainers, free = [], pool
    for index in range(draw(st.integers(0, most_trainers))):
        curve = draw(st.sampled_from(shared_curves))
        fitting = [0, *(size for size in curve.sizes if size <= free)]
        held = draw(st.sampled_from(fitting))
        free -= held
        trainers.append(
            TrainerState(
                f"t{index}",
                curve,
                (held,),
                draw(_COST_S),
                draw(_COST_S),
                draw(_COST_S),
            )
        )
    t_fwd_s = draw(st.sampled_from([1.0, 10.0, 120.0]))
    return Problem((NodeClass("idle", pool),), tuple(trainers), t_fwd_s)
