"""Looks of all kinds, for what holds of every priority."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from freetrain.priority.base import Contender, RatingInputs, Target
from tests.priority.fake_forecast import FakeForecast, exponential, flat, power_law
from tests.priority.inputs import T_FWD_S, speeds

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = [(1,), (1, 2, 3, 4), tuple(range(1, 17)), (2, 4, 8), (4, 16)]
NOW_S = 5000.0


@st.composite
def truths(draw: st.DrawFn) -> Callable[[float], float]:
    kind = draw(st.sampled_from(["power law", "exponential", "flat", "wave"]))
    at = draw(st.sampled_from([1e3, 1e4, 1e6]))
    if kind == "power law":
        return power_law(steepness=draw(st.sampled_from([0.2, 0.5, 1.0])), at=at)
    if kind == "wave":
        return lambda samples: 1.0 + math.sin(samples / at)
    return exponential(at=at) if kind == "exponential" else flat()


@st.composite
def forecasts(draw: st.DrawFn, done: float) -> FakeForecast:
    return FakeForecast(
        truth=draw(truths()),
        done=done * draw(st.sampled_from([0.5, 1.0, 2.0])),
        told=draw(st.sampled_from([1, 4, 30])),
        is_diverging=draw(st.booleans()) and draw(st.booleans()),
    )


@st.composite
def contenders(draw: st.DrawFn, name: str) -> Contender:
    sizes = draw(st.sampled_from(SIZES))
    done = draw(st.sampled_from([0.0, 1e3, 1e5, 3e6]))
    deliver = draw(st.sampled_from([0.1, 0.4, 0.9]))
    final = draw(st.sampled_from([None, deliver - 0.05]))
    target = Target(deliver=deliver, final=final, is_delivered=draw(st.booleans()))
    return Contender(
        name=name,
        sizes=sizes,
        samples_per_s=speeds(sizes[-1], one_node=draw(st.sampled_from([3.0, 1e4]))),
        held=draw(st.sampled_from([0, *sizes])),
        done_samples=done,
        total_samples=draw(st.sampled_from([None, 2 * done + 1e4])),
        weight=draw(st.sampled_from([1.0, 3.0])),
        deadline_s=draw(st.sampled_from([None, 1000.0, 6000.0, 1e6])),
        target=draw(st.sampled_from([None, target])),
        forecast=draw(st.none() | forecasts(done)),
        grow_s=5.0,
        shrink_s=draw(st.sampled_from([0.0, 30.0])),
        start_s=10.0,
    )


@st.composite
def looks(draw: st.DrawFn) -> RatingInputs:
    names = [f"trainer-{k}" for k in range(draw(st.integers(0, 5)))]
    return RatingInputs(
        now_s=NOW_S,
        contenders=tuple([draw(contenders(name)) for name in names]),
        nodes=draw(st.integers(0, 40)),
        t_fwd_s=T_FWD_S,
    )
