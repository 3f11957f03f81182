"""Random histories of idle nodes for the forecaster's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from freetrain.replay.pool import PoolEvent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hypothesis.strategies import DrawFn

    from freetrain.lookahead.reliability import Reliability, ScoredForecaster


@st.composite
def histories(draw: DrawFn, nodes: int = 8, most_events: int = 25) -> list[PoolEvent]:
    """Events at which some idle nodes leave and some others join.

    In some of them most of a line has left from one end, and come back, so often that
    neighbours are expected to leave together.
    """
    idle: set[int] = set()
    now_s, events = 0.0, []
    if draw(st.booleans()):
        events = _line_up(tuple(range(nodes)))
        now_s, idle = len(events) * 100.0, set(range(nodes))
    for _ in range(draw(st.integers(2, most_events))):
        moved = draw(st.sets(st.integers(0, nodes - 1)))
        left, joined = moved & idle, moved - idle
        events.append(PoolEvent(now_s, tuple(sorted(joined)), tuple(sorted(left))))
        idle = (idle - left) | joined
        now_s += draw(st.sampled_from([1.0, 30.0, 100.0, 700.0, 5000.0]))
    return events


def _line_up(line: tuple[int, ...]) -> list[PoolEvent]:
    lower = line[: 3 * len(line) // 4]
    events = [PoolEvent(0.0, line, ())]
    for turn in range(1, 25, 2):
        events.append(PoolEvent(100.0 * turn, (), lower))
        events.append(PoolEvent(100.0 * (turn + 1), lower, ()))
    return events


def idle_after(events: list[PoolEvent]) -> list[int]:
    """Return the nodes that are idle after the last of *events*."""
    idle: set[int] = set()
    for event in events:
        idle = (idle - set(event.left)) | set(event.joined)
    return sorted(idle)


def watch(events: Iterable[PoolEvent], watched: ScoredForecaster) -> Reliability:
    """Show *events* to *watched*, and return how reliable its forecasts were."""
    for event in events:
        watched.see(event.time_s, joined=event.joined, left=event.left)
    return watched.reliability()
