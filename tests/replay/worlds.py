"""Small pools and trainers for the replay's tests, by hand and at random."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from freetrain.replay.accounting import Run, usable_rates
from freetrain.replay.policies.base import View
from freetrain.replay.pool import NO_NODES, PoolTimeline
from freetrain.replay.run import ReplayResult, run_replay
from freetrain.replay.settings import Accounting, ReplaySettings
from freetrain.replay.trainers import Costs, Scaling, TrainerSpec
from logs.timeline import UnitRanges
from logs.trace import IdleTrace

FOR_NOTHING = Costs(grow_s=0.0, shrink_s=0.0)

# The figures that the independent replay beside the real logs prints.
_KEYS = """samples finished end_s images_per_s eq_nodes pool_node_s used_node_s
rescale_samples preempt_samples preemptions events"""
REFERENCE_KEYS = frozenset(_KEYS.split())


def trace_of(
    intervals: Mapping[int, Sequence[tuple[float, float]]], nodes: int | None = None
) -> IdleTrace:
    rows = sorted((a, node, b) for node, own in intervals.items() for a, b in own)
    machine = nodes or max(intervals) + 1
    return IdleTrace(
        source="by hand",
        node_names=tuple(f"n{k}" for k in range(machine)),
        node=np.array([node for _, node, _ in rows], dtype=np.int32),
        start_s=np.array([a for a, _, _ in rows], dtype=np.float64),
        end_s=np.array([b for _, _, b in rows], dtype=np.float64),
    )


def trainer(name: str = "t", **changes: Any) -> TrainerSpec:  # noqa: ANN401  any field
    """Return a trainer that does 10 samples/s a node, on 1 to 4 nodes."""
    settings: dict[str, Any] = {
        "scaling": linear(),
        "samples": 1e6,
        "arrival_s": 0.0,
        "costs": FOR_NOTHING,
        "fixed_nodes": 2,
    }
    return TrainerSpec(name=name, **(settings | changes))


def linear(per_node: float = 10.0, most: int = 4) -> Scaling:
    speeds = per_node * np.arange(most + 1, dtype=np.float64)
    return Scaling("linear", speeds, tuple(range(1, most + 1)))


def run(serial: int = 0, *held: int, **changes: Any) -> Run:  # noqa: ANN401
    """Return a run of a trainer that holds these nodes."""
    spec = trainer(f"t{serial}", **changes)
    return Run(serial, spec, usable_rates(spec.scaling), 0.0, held=set(held))


def view(*runs: Run, free: Sequence[int] = (), now_s: float = 0.0) -> View:
    """Return the pool of nodes that these runs hold, and of free ones."""
    idle_nodes = len(free) + sum(len(one.held) for one in runs)
    return View(
        now_s=now_s,
        trainers=runs,
        free=UnitRanges.of(free),
        idle_nodes=idle_nodes,
        joined=NO_NODES,
        left=NO_NODES,
    )


def no_clock() -> float:
    return 0.0


def pool(text: str) -> dict[int, list[tuple[float, float]]]:
    """Return idle intervals, a word a node: ``0-20 0-5,9-20`` for two nodes."""
    words = [[span.split("-") for span in word.split(",")] for word in text.split()]
    return {k: [(float(a), float(b)) for a, b in own] for k, own in enumerate(words)}


def cases(*rows: tuple[Any, ...]) -> list[Any]:
    """Return parameters by rows, the first of each being its id."""
    return [pytest.param(*row, id=name) for name, *row in rows]


def check(result: object, figures: str) -> None:
    """Check figures of *result*, such as ``samples=80 coverage=23/30``."""
    pairs = [figure.split("=") for figure in figures.split()]
    wanted = {name: float(Fraction(number)) for name, number in pairs}
    found = {name: attrgetter(name)(result) for name in wanted}
    assert found == pytest.approx(wanted, rel=1e-12, abs=1e-12)


def replay(
    intervals: Mapping[int, Sequence[tuple[float, float]]],
    trainers: Sequence[TrainerSpec],
    *,
    days: float | None = None,
    **choices: Any,  # noqa: ANN401  any setting
) -> ReplayResult:
    timeline = PoolTimeline.from_trace(trace_of(intervals), days=days)
    return run_replay(timeline, trainers, ReplaySettings(**choices), clock=no_clock)


@st.composite
def pools(draw: DrawFn, most_nodes: int = 6) -> dict[int, list[tuple[float, float]]]:
    """Idle intervals by node, in whole seconds, some of them touching."""
    pool = {}
    for node in range(draw(st.integers(1, most_nodes))):
        steps = draw(st.lists(st.integers(0, 60), max_size=8))
        at, own = 0.0, []
        for gap, length in zip(steps[::2], steps[1::2], strict=False):
            if length:
                own.append((at + gap, at + gap + length))
                at += gap + length
        pool[node] = own
    if not any(pool.values()):
        pool[0] = [(0.0, 30.0)]
    return pool


@st.composite
def teams(draw: DrawFn) -> tuple[TrainerSpec, ...]:
    """One to five trainers of two models, with and without costs."""
    models = [linear(), linear(3.0, 6)]
    count = draw(st.integers(1, 5))
    return tuple(
        trainer(
            f"t{k}",
            scaling=draw(st.sampled_from(models)),
            samples=float(draw(st.integers(1, 3_000))),
            arrival_s=float(draw(st.integers(0, 60))),
            fixed_nodes=1,
            costs=draw(costs()),
        )
        for k in range(count)
    )


def costs() -> st.SearchStrategy[Costs]:
    seconds = st.sampled_from([0.0, 1.0, 7.0, 40.0])
    return st.builds(
        Costs,
        grow_s=seconds,
        shrink_s=seconds,
        start_s=seconds,
        checkpoint_every_s=seconds,
    )


def settings(**fixed: Any) -> st.SearchStrategy[ReplaySettings]:  # noqa: ANN401
    choices: dict[str, Any] = {
        "policy": st.sampled_from(["freetrain", "equal", "scavenger"]),
        "priority": st.sampled_from(["throughput", "speedup", "weight", "fair"]),
        "accounting": st.sampled_from(Accounting),
        "parallel": st.sampled_from([None, 1, 2, 10]),
        "t_fwd_s": st.sampled_from([10.0, 120.0]),
    }
    return st.builds(
        ReplaySettings, **(choices | {k: st.just(v) for k, v in fixed.items()})
    )
