"""Contenders and their forecasts, to rate and to plan."""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from freetrain.losscurve.forecast import Expected, MetricDirection, MetricPoint
from freetrain.planning.rating import planned_curves
from freetrain.priority.base import (
    Contender,
    Memory,
    Priority,
    Rating,
    RatingInputs,
    RatingResult,
    Target,
)
from milp.planner import Planner
from milp.problem import NodeClass, Problem, ProblemTrainer

T_FWD_S = 120.0
MOST_SAMPLES = 1e12


def speeds(most: int, *, one_node: float = 100.0) -> NDArray[np.float64]:
    """Speed on 0 .. *most* nodes, a little less than linear."""
    return one_node * np.arange(most + 1, dtype=np.float64) ** 0.9


def contender(name: str, **changes: object) -> Contender:
    """A contender that can run on 1 to 8 nodes, and has done some work."""
    settings: dict[str, object] = {
        "sizes": tuple(range(1, 9)),
        "samples_per_s": speeds(8),
        "held": 0,
        "done_samples": 1e5,
    }
    return Contender(name=name, **(settings | changes))  # type: ignore[arg-type]


def inputs_of(
    *contenders: Contender,
    nodes: int = 8,
    now_s: float = 1000.0,
    t_fwd_s: float = T_FWD_S,
) -> RatingInputs:
    return RatingInputs(
        now_s=now_s, contenders=contenders, nodes=nodes, t_fwd_s=t_fwd_s
    )


def later(
    inputs: RatingInputs, after_s: float, *, work: float = 1.0, more: float = 0.0
) -> RatingInputs:
    """Return *inputs* after some time; all have trained since."""
    trained = [
        replace(c, done_samples=c.done_samples * work + more) for c in inputs.contenders
    ]
    return replace(inputs, now_s=inputs.now_s + after_s, contenders=tuple(trained))


def rated_in_turn(
    make: Callable[[], Priority], looks: Iterable[RatingInputs]
) -> RatingResult:
    """Rate with a new priority each time; its memory goes through JSON."""
    memory: Memory = {}
    for inputs in looks:
        rated = make().rate(inputs, memory)
        memory = json.loads(json.dumps(rated.memory, allow_nan=False))
    return rated


def problem_of(
    curves: Sequence[Contender], ratings: Sequence[Rating], nodes: int
) -> Problem:
    trainers = [
        ProblemTrainer(c.name, curve, (c.held,), c.grow_s, c.shrink_s, c.start_s)
        for c, curve in zip(curves, planned_curves(ratings), strict=True)
    ]
    return Problem((NodeClass("idle", nodes),), tuple(trainers), T_FWD_S)


def planned(inputs: RatingInputs, ratings: Sequence[Rating]) -> dict[str, int]:
    """Return the nodes that the planner gives, by trainer."""
    problem = problem_of(inputs.contenders, ratings, inputs.nodes)
    counts = Planner().plan(problem).plan.counts
    return {t.name: row[0] for t, row in zip(problem.trainers, counts, strict=True)}


def planned_by(priority: Priority, given: RatingInputs) -> dict[str, int]:
    """Return the nodes that the planner gives by the ratings of *priority*."""
    return planned(given, priority.rate(given, {}).ratings)


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeForecast:
    """Expects the truth.

    Attributes:
        truth: Metric by samples; the lower the better, or the higher for
            ``MetricDirection.HIGHER``.
        done: Samples up to which values have been reported.
        reported: Number of values, evenly spread from the beginning.
        better: Which values are good.
        family: A name.
        is_diverging: Whether it is.
    """

    truth: Callable[[float], float]
    done: float
    reported: int = 10
    better: MetricDirection = MetricDirection.LOWER
    family: str = "truth"
    is_diverging: bool = False

    @property
    def points(self) -> tuple[MetricPoint, ...]:
        """Values without noise; the last one at *done*."""
        last = max(self.reported - 1, 1)
        steps = [self.done * k / last for k in range(self.reported)]
        return tuple([MetricPoint(at / 100, at, self.truth(at)) for at in steps])

    def expected(self, samples: float) -> Expected:
        """Return the truth, refusing questions about the past."""
        if samples < self.done:
            raise ValueError(f"asked for {samples:g} of {self.done:g} samples done")
        value = self.truth(samples)
        return Expected(value, value, value)

    def quality(self, value: float) -> float:
        """Return how far *value* is from the first to the best value reported."""
        shown = [point.value for point in self.points]
        best = (min if self.better is MetricDirection.LOWER else max)(shown)
        worst = (max if self.better is MetricDirection.LOWER else min)(shown)
        value = worst if math.isnan(value) else value
        return (value - shown[0]) / (best - shown[0]) if best != shown[0] else 0.0

    def samples_to(self, value: float) -> float:
        """Return when the truth gets there, by halving; inf for never."""
        low, high = self.done, MOST_SAMPLES
        if not self.better.is_reached(value, self.truth(high)):
            return math.inf
        for _ in range(100):
            middle = (low + high) / 2
            is_reached = self.better.is_reached(value, self.truth(middle))
            low, high = (low, middle) if is_reached else (middle, high)
        return high


def power_law(
    *, steepness: float = 0.5, at: float = 1e4, floor: float = 0.2
) -> Callable[[float], float]:
    """Return a loss that falls from 1 + *floor* to *floor*: half way by *at* or so."""
    return lambda samples: floor + (1 + samples / at) ** -steepness


def exponential(*, at: float, floor: float = 0.2) -> Callable[[float], float]:
    """Return a loss that falls by a factor e every *at* samples."""
    return lambda samples: floor + math.exp(-samples / at)


def flat(level: float = 0.5) -> Callable[[float], float]:
    """Return a loss that fell at once, and stays."""
    return lambda samples: level if samples else 1.0


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
        reported=draw(st.sampled_from([1, 4, 30])),
        is_diverging=draw(st.booleans()) and draw(st.booleans()),
    )


@st.composite
def contenders(draw: st.DrawFn, name: str) -> Contender:
    sizes = draw(
        st.sampled_from([(1,), (1, 2, 3, 4), tuple(range(1, 17)), (2, 4, 8), (4, 16)])
    )
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
    team = [draw(contenders(name)) for name in names]
    return inputs_of(*team, nodes=draw(st.integers(0, 40)), now_s=5000.0)
