"""Survival forecasts are scored by outcomes."""

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from freetrain.lookahead.base import Cohort, Prospect
from freetrain.lookahead.learned import LearnedForecaster
from freetrain.lookahead.promises import DelayInterval
from freetrain.lookahead.reliability import ScoredForecaster
from freetrain.replay.pool import PoolEvent
from tests.lookahead.forecasters import (
    answers,
    histories,
    idle_after,
    pool_event,
    shown,
    watch,
)


class Counting:
    """A forecaster whose survival is the number of events that it saw, in tenths."""

    is_learning = False

    def __init__(self) -> None:
        self._events = 0

    def see(
        self, now_s: float, *, joined: Collection[int], left: Collection[int]
    ) -> None:
        del now_s, joined, left
        self._events += 1

    def cluster(self, node: int) -> int:
        return node

    def members(self, cluster: int) -> AbstractSet[int]:
        return {cluster}

    def cohorts(self) -> Collection[Cohort]:
        return ()

    def cohort(self, cluster: int) -> Cohort:
        return Cohort(1, [cluster])

    def prospect(self, cluster: int) -> Prospect:
        del cluster
        return Prospect(1.0, 0.0, 1.0)

    def survival(self, node: int, horizon_s: float) -> float:
        del node, horizon_s
        return min(1.0, self._events / 10)

    def affinity(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        return np.ones((len(nodes), len(nodes)))


def counting(
    *, every_s: float = 1.0, from_s: float = 0.0, horizon_s: float = 100.0
) -> ScoredForecaster:
    return ScoredForecaster(
        Counting(), horizon_s=horizon_s, every_s=every_s, from_s=from_s
    )


def at(*times_s: float) -> list[PoolEvent]:
    """Return events at which no node comes or leaves."""
    return [pool_event(time_s, (), ()) for time_s in times_s]


EVENTS = [
    pool_event(0.0, (0, 1), ()),
    pool_event(50.0, (), (0,)),
    pool_event(100.0, (0,), (1,)),
    pool_event(400.0, (), (0,)),
    pool_event(500.0, (), ()),
]


BACK = [pool_event(0.0, (0,), ()), EVENTS[1], pool_event(60.0, (0,), ()), *at(100.0)]
SCORED = {
    "nodes left at 50 s and at 100 s": (EVENTS[:3], [(0.1, 0.5)]),
    "a node that left and came back did not stay": (*(BACK, [(0.1, 0.0)]),),
    "nothing is due yet": (EVENTS[:2], []),
}


@pytest.mark.parametrize(("events", "scores"), SCORED.values(), ids=SCORED)
def test_each_forecast_is_scored_by_when_the_node_left(
    events: list[PoolEvent], scores: list[tuple[float, float]]
) -> None:
    rows = watch(events, counting()).deciles

    found = sorted({(round(row.said, 9), round(row.came, 9)) for row in rows})
    assert found == scores


def test_forecasts_are_recorded_at_the_set_times() -> None:
    late = watch(EVENTS, counting(from_s=90.0))
    seldom = watch(EVENTS, counting(every_s=90.0))

    assert [row.said for row in late.deciles] == [pytest.approx(0.3)] * 10
    assert sum(row.count for row in seldom.deciles) == pytest.approx(3)


def test_deciles_are_equal_parts_in_order_of_the_forecasts() -> None:
    # One node, forecast at each second: from 0.1 to 1.
    events = [pool_event(0.0, (0,), ()), *at(*map(float, range(1, 10)))]

    gone = [pool_event(106.5, (), (0,)), *at(200.0)]
    rows = watch([*events, *gone], counting()).deciles

    assert [row.said for row in rows] == pytest.approx([k / 10 for k in range(1, 11)])
    assert [row.came for row in rows] == pytest.approx([1.0] * 7 + [0.0] * 3)
    assert [row.count for row in rows] == pytest.approx([1.0] * 10)


@given(histories())
def test_a_scored_forecaster_answers_as_the_one_it_wraps(
    events: list[PoolEvent],
) -> None:
    idle, plain = idle_after(events), shown(LearnedForecaster(400.0), events)
    scored = shown(ScoredForecaster(LearnedForecaster(400.0)), events)

    assert answers(scored, idle) == answers(plain, idle)


@given(histories(), st.sampled_from([30.0, 600.0]))
def test_each_forecast_that_is_due_counts_once(
    events: list[PoolEvent], horizon_s: float
) -> None:
    scores = watch(events, counting(horizon_s=horizon_s, every_s=0.0))

    due = sum(
        len(idle_after(events[:seen]))
        for seen in range(1, len(events) + 1)
        if events[seen - 1].time_s + horizon_s <= events[-1].time_s
    )
    assert sum(row.count for row in scores.deciles) == pytest.approx(due)
    assert sum(own.part.count for own in scores.by_age) == due
    assert 0.0 <= scores.worst <= 1.0


# By age and by nodes left, with departures


def learned(*, every_s: float = 1.0) -> ScoredForecaster:
    """Return a forecaster for which nodes that come at once are one cluster."""
    forecaster = LearnedForecaster(400.0, knows_pairs=False)
    return ScoredForecaster(forecaster, horizon_s=100.0, every_s=every_s)


PAIR_LEAVES = [
    pool_event(0.0, (0, 1, 2), ()),
    *at(50.0),
    pool_event(60.0, (), (0, 1)),
    *at(300.0),
]


def test_outcomes_are_counted_by_the_age_of_the_forecast() -> None:
    events = [
        pool_event(0.0, (0, 1), ()),
        pool_event(99.0, (), (1,)),
        *at(200.0, 300.0),
    ]

    ages = watch(events, counting()).by_age

    assert [(own.from_s, own.part.came, own.part.count) for own in ages] == [
        (0.0, 0.5, 2.0),
        (70.0, 1.0, 1.0),
        (150.0, 1.0, 1.0),
    ]


def test_nodes_of_a_cluster_that_leave_at_once_are_one_departure() -> None:
    (own,) = watch(PAIR_LEAVES, learned(every_s=1_000.0)).by_age

    assert (own.part.count, own.part.departures) == (3, 1)
    assert own.part.came == pytest.approx(1 / 3)


def test_a_departure_counts_with_the_last_forecast_before_it() -> None:
    alone, three = watch(PAIR_LEAVES, learned()).by_age

    assert [(own.from_nodes, own.to_nodes) for own in (alone, three)] == [
        (1, 1),
        (2, 4),
    ]
    assert (three.part.count, three.part.departures) == (6, 1)
    assert three.part.came == pytest.approx(1 / 3)
    assert (alone.part.count, alone.part.came, alone.part.departures) == (1, 1, 0)


def test_the_oldest_and_the_largest_class_have_no_end() -> None:
    old = [pool_event(0.0, tuple(range(40)), ()), *at(1e5, 2e5, 3e5)]

    *_, last = watch(old, learned()).by_age

    assert (last.to_s, last.from_nodes, last.to_nodes) == (None, 17, None)


@given(histories())
def test_no_departure_counts_twice(events: list[PoolEvent]) -> None:
    scores = watch(events, learned(every_s=0.0))

    losses = sum(len(event.left) for event in events)
    departures = sum(row.part.departures for row in scores.by_age)
    assert departures <= losses
    assert sum(own.departures for own in scores.deciles) == pytest.approx(departures)
    assert all(0 <= row.part.came <= 1 for row in scores.by_age)


# The record


def test_the_record_names_the_nodes_that_left_together() -> None:
    watched = learned()
    seen = watch(PAIR_LEAVES, watched)

    record = watched.record(("a", "b", "c"))

    assert record.affinity is not None
    assert sum(record.affinity.cells, ()) == ("a", "b")
    assert (record.deciles, record.by_age) == (seen.deciles, seen.by_age)
    assert record.horizon_s == 100.0


def test_the_record_has_delays_where_promises_are_known() -> None:
    class Promised(LearnedForecaster):
        def intervals(self) -> tuple[DelayInterval, ...]:
            return (DelayInterval(0.0, 3, 0.0, 1.0, 60.0, 120.0, 300.0),)

    promised = Promised(400.0)

    assert ScoredForecaster(promised).record(()).promises == promised.intervals()
    assert ScoredForecaster(LearnedForecaster(400.0)).record(()).promises == ()
