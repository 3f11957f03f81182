"""Random histories of idle nodes, forecasters that saw them, and all their answers."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from freetrain.lookahead.affinity import Affinity
from freetrain.lookahead.base import (
    FORECASTERS,
    Forecaster,
    Pairs,
    Prospects,
    forecaster_named,
)
from freetrain.lookahead.reliability import ForecastRecord, ScoredForecaster
from freetrain.replay.pool import Nodes, PoolEvent

EVERY = pytest.mark.parametrize("name", FORECASTERS)
HORIZON_S = 400.0
HORIZONS_S = (0.0, 60.0, 7200.0)

Learner = TypeVar("Learner", bound="Prospects")
Test: TypeAlias = "Callable[..., None]"


def every_with(**drawn: st.SearchStrategy[Any]) -> Callable[[Test], Test]:
    """Return a decorator: the test runs with each forecaster and random values."""
    often = settings(max_examples=30, deadline=None)
    return lambda test: EVERY(often(given(**drawn)(test)))


@st.composite
def histories(draw: DrawFn, nodes: int = 8, most_events: int = 25) -> list[PoolEvent]:
    """Events at which some idle nodes leave and some others join.

    In some of them most of the order has left from one end, and come back, so often
    that neighbours are expected to leave together.
    """
    idle: set[int] = set()
    now_s, events = 0.0, []
    if draw(st.booleans()):
        events = _lower_end_leaves(tuple(range(nodes)))
        now_s, idle = len(events) * 100.0, set(range(nodes))
    for _ in range(draw(st.integers(2, most_events))):
        moved = draw(st.sets(st.integers(0, nodes - 1)))
        left, joined = moved & idle, moved - idle
        events.append(pool_event(now_s, sorted(joined), sorted(left)))
        idle = (idle - left) | joined
        now_s += draw(st.sampled_from([1.0, 30.0, 100.0, 700.0, 5000.0]))
    return events


def pool_event(
    time_s: float, joined: Sequence[int] = (), left: Sequence[int] = ()
) -> PoolEvent:
    """Return the event of nodes that come and leave, each ascending."""
    return PoolEvent(time_s, Nodes.of(joined), Nodes.of(left))


def _lower_end_leaves(line: tuple[int, ...]) -> list[PoolEvent]:
    lower = line[: 3 * len(line) // 4]
    events = [pool_event(0.0, line, ())]
    for turn in range(1, 25, 2):
        events.append(pool_event(100.0 * turn, (), lower))
        events.append(pool_event(100.0 * (turn + 1), lower, ()))
    return events


def idle_after(events: Iterable[PoolEvent]) -> list[int]:
    idle: set[int] = set()
    for event in events:
        idle = (idle - set(event.left)) | set(event.joined)
    return sorted(idle)


def departures_of(events: Iterable[PoolEvent]) -> list[tuple[list[int], list[int]]]:
    """Return the nodes that left, and those idle until then, by departure."""
    idle, departures = set[int](), []
    for event in events:
        if event.left:
            departures.append((list(event.left), sorted(idle)))
        idle = (idle - set(event.left)) | set(event.joined)
    return departures


def shown(forecaster: Learner, events: Iterable[PoolEvent]) -> Learner:
    for event in events:
        forecaster.see(event.time_s, joined=event.joined, left=event.left)
    return forecaster


def watch(events: Iterable[PoolEvent], watched: ScoredForecaster) -> ForecastRecord:
    """Return how reliable the forecasts of *watched* were over *events*."""
    return shown(watched, events).record([f"n{node}" for node in range(100)])


def made(
    name: str,
    *,
    pairs: Pairs | None = None,
    state: dict[str, Any] | None = None,
    checks: bool = True,
    learns_s: float = 0.0,
) -> Forecaster:
    return forecaster_named(name)(
        HORIZON_S,
        pairs=Affinity() if pairs is None else pairs,
        checks=checks,
        state=state,
        learns_s=learns_s,
        order=int,
    )


def answers(forecaster: Prospects, idle: Iterable[int]) -> list[object]:
    """Return all answers about the *idle* nodes, to be compared."""
    nodes = sorted(idle)
    clusters = [forecaster.cluster(node) for node in nodes]
    return [
        forecaster.is_learning,
        nodes,
        clusters,
        [sorted(forecaster.members(cluster)) for cluster in clusters],
        [forecaster.prospect(cluster) for cluster in clusters],
        [[forecaster.survival(node, h) for h in HORIZONS_S] for node in nodes],
        forecaster.affinity(nodes).tolist(),
    ]


def leaves_young(name: str) -> Forecaster:
    """Return one that saw node 0 come and leave after ten seconds, 50 times."""
    forecaster = made(name)
    for turn in range(50):
        forecaster.see(turn * 1_000.0, joined=(0,), left=())
        forecaster.see(turn * 1_000.0 + 10.0, joined=(), left=(0,))
    return forecaster
