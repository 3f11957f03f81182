"""Forecasts against outcomes."""

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from freetrain.lookahead.base import Prospect, Prospects
from freetrain.lookahead.learned import LearnedForecaster
from freetrain.lookahead.promises import DelayInterval
from freetrain.lookahead.reliability import ScoredForecaster
from freetrain.replay.pool import PoolEvent
from tests.lookahead.pools import histories, idle_after, watch


class Counting:
    """A forecaster that says how many events it was shown, in tenths."""

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

    def prospect(self, cluster: int) -> Prospect:
        del cluster
        return Prospect(1.0, 0.0, 1.0)

    def survival(self, node: int, horizon_s: float) -> float:
        del node, horizon_s
        return min(1.0, self._events / 10)

    def affinity(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        return np.ones((len(nodes), len(nodes)))


EVENTS = [
    PoolEvent(0.0, (0, 1), ()),
    PoolEvent(50.0, (), (0,)),
    PoolEvent(100.0, (0,), (1,)),
    PoolEvent(400.0, (), (0,)),
    PoolEvent(500.0, (), ()),
]


def each(events: list[PoolEvent], every_s: float = 1.0) -> list[tuple[float, float]]:
    """Return what was said and what came, by distinct probability."""
    watched = ScoredForecaster(Counting(), horizon_s=100.0, every_s=every_s)
    rows = watch(events, watched).deciles
    return sorted({(round(row.said, 9), round(row.came, 9)) for row in rows})


def test_each_forecast_is_held_against_when_the_node_really_left() -> None:
    assert each(EVENTS[:3]) == [(0.1, 0.5)]  # node 0 left at 50 s, node 1 at 100


def test_who_left_and_came_back_did_not_stay() -> None:
    back = [PoolEvent(0.0, (0,), ()), PoolEvent(50.0, (), (0,))]

    assert each([*back, PoolEvent(60.0, (0,), ()), PoolEvent(100.0, (), ())]) == [
        (0.1, 0.0)
    ]


def test_what_could_not_be_known_when_the_events_ended_is_not_counted() -> None:
    assert each(EVENTS[:2]) == []
    # At 50 and at 100 s one node was asked for, and stayed. Asked at 400 s: none.
    assert watch(
        EVENTS, ScoredForecaster(Counting(), horizon_s=100.0, every_s=1.0)
    ).deciles[-1].said == pytest.approx(0.3)


def test_nobody_is_asked_for_before_it_is_time_to() -> None:
    late = ScoredForecaster(Counting(), horizon_s=100.0, every_s=1.0, from_s=90.0)
    seldom = ScoredForecaster(Counting(), horizon_s=100.0, every_s=90.0)

    assert [row.said for row in watch(EVENTS, late).deciles] == [
        pytest.approx(0.3)
    ] * 10
    assert sum(row.count for row in watch(EVENTS, seldom).deciles) == pytest.approx(3)


def test_deciles_are_equal_parts_in_order_of_what_was_said() -> None:
    # One node, asked for at each second: what is said rises from 0.1 to 1.
    events = [PoolEvent(0.0, (0,), ()), *(PoolEvent(float(t), (), ()) for t in (1, 2))]
    stayed = [PoolEvent(float(t), (), ()) for t in range(3, 10)]
    gone = [PoolEvent(106.5, (), (0,)), PoolEvent(200.0, (), ())]

    rows = watch(
        [*events, *stayed, *gone],
        ScoredForecaster(Counting(), horizon_s=100.0, every_s=1.0),
    ).deciles

    assert [row.said for row in rows] == pytest.approx([k / 10 for k in range(1, 11)])
    assert [row.came for row in rows] == pytest.approx([1.0] * 7 + [0.0] * 3)
    assert [row.count for row in rows] == pytest.approx([1.0] * 10)


def test_what_came_is_told_by_the_age_at_which_a_node_was_asked_for() -> None:
    events = [
        PoolEvent(0.0, (0, 1), ()),
        PoolEvent(99.0, (), (1,)),
        PoolEvent(200.0, (), ()),
        PoolEvent(300.0, (), ()),
    ]

    told = watch(
        events, ScoredForecaster(Counting(), horizon_s=100.0, every_s=1.0)
    ).by_age

    assert [(one.from_s, one.part.came, one.part.count) for one in told] == [
        (0.0, 0.5, 2.0),
        (70.0, 1.0, 1.0),
        (150.0, 1.0, 1.0),
    ]


@given(histories())
def test_who_is_watched_answers_as_ever(events: list[PoolEvent]) -> None:
    def answers(forecaster: Prospects) -> list[object]:
        for event in events:
            forecaster.see(event.time_s, joined=event.joined, left=event.left)
        idle = idle_after(events)
        clusters = [forecaster.cluster(node) for node in idle]
        return [
            *clusters,
            *(sorted(forecaster.members(one)) for one in clusters),
            *map(forecaster.prospect, clusters),
            *(forecaster.survival(node, 600.0) for node in idle),
            forecaster.affinity(idle).tolist(),
        ]

    assert answers(ScoredForecaster(LearnedForecaster(400.0))) == answers(
        LearnedForecaster(400.0)
    )


@given(histories(), st.sampled_from([30.0, 600.0]))
def test_all_that_is_due_is_counted_once(
    events: list[PoolEvent], horizon_s: float
) -> None:
    told = watch(events, ScoredForecaster(Counting(), horizon_s=horizon_s, every_s=0.0))

    idle, due = set[int](), 0
    for event in events:
        idle = (idle - set(event.left)) | set(event.joined)
        due += len(idle) * (event.time_s + horizon_s <= events[-1].time_s)
    assert sum(row.count for row in told.deciles) == pytest.approx(due)
    assert sum(one.part.count for one in told.by_age) == due
    assert 0.0 <= told.worst <= 1.0


def together(*, every_s: float) -> ScoredForecaster:
    """A forecaster for whom all who become idle at once are one cluster."""
    forecaster = LearnedForecaster(400.0, knows_pairs=False)
    return ScoredForecaster(forecaster, horizon_s=100.0, every_s=every_s)


PAIR_LEAVES = [
    PoolEvent(0.0, (0, 1, 2), ()),
    PoolEvent(50.0, (), ()),
    PoolEvent(60.0, (), (0, 1)),
    PoolEvent(300.0, (), ()),
]


def test_who_leaves_at_once_is_one_departure() -> None:
    (one,) = watch(PAIR_LEAVES, together(every_s=1_000.0)).by_age

    assert (one.part.count, one.part.departures) == (3, 1)
    assert one.part.came == pytest.approx(1 / 3)


def test_a_departure_counts_with_the_last_answer_before_it() -> None:
    three, one = (
        row.part for row in reversed(watch(PAIR_LEAVES, together(every_s=1.0)).by_age)
    )

    assert (three.count, three.departures) == (6, 1)
    assert three.came == pytest.approx(1 / 3)
    assert (one.count, one.came, one.departures) == (1, 1, 0)


def test_what_came_is_told_by_the_nodes_that_were_left() -> None:
    rows = watch(PAIR_LEAVES, together(every_s=1.0)).by_age

    assert [(row.from_nodes, row.to_nodes) for row in rows] == [(1, 1), (2, 4)]


def test_the_oldest_and_the_largest_have_no_end() -> None:
    old = [PoolEvent(0.0, tuple(range(40)), ()), PoolEvent(1e5, (), ())]

    *_, last = watch(
        [*old, PoolEvent(2e5, (), ()), PoolEvent(3e5, (), ())], together(every_s=1.0)
    ).by_age

    assert (last.to_s, last.from_nodes, last.to_nodes) == (None, 17, None)


@given(histories())
def test_no_departure_counts_twice(events: list[PoolEvent]) -> None:
    told = watch(events, together(every_s=0.0))

    losses = sum(len(event.left) for event in events)
    departures = sum(row.part.departures for row in told.by_age)
    assert departures <= losses
    assert sum(one.departures for one in told.deciles) == pytest.approx(departures)
    assert all(0 <= row.part.came <= 1 for row in told.by_age)


def test_the_record_names_who_left_together() -> None:
    watched = together(every_s=1.0)
    watch(PAIR_LEAVES, watched)

    record = watched.record(("a", "b", "c"))

    assert record.affinity is not None
    assert sum(record.affinity.cells, ()) == ("a", "b")
    assert record.reliability == watched.reliability()
    assert record.horizon_s == 100.0


class Promised(LearnedForecaster):
    """A forecaster that was told of one plan."""

    def intervals(self) -> tuple[DelayInterval, ...]:
        return (DelayInterval(0.0, 3, 0.0, 1.0, 60.0, 120.0, 300.0),)


def test_the_record_has_what_came_of_promises_where_they_are_known() -> None:
    promised = Promised(400.0)

    assert ScoredForecaster(promised).record(()).promises == promised.intervals()
    assert ScoredForecaster(LearnedForecaster(400.0)).record(()).promises == ()
