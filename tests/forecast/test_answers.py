import pytest
from hypothesis import given

from freetrain.lookahead.learned import LearnedForecaster
from freetrain.lookahead.promises import DelayInterval
from freetrain.lookahead.reliability import ScoredForecaster
from freetrain.replay.timeline import PoolEvent
from tests.forecast.pools import histories, watch


def together(*, every_s: float) -> ScoredForecaster:
    """A forecaster for whom all who become idle at once are one cluster."""
    forecaster = LearnedForecaster(400.0, knows_pairs=False)
    return ScoredForecaster(forecaster, horizon_s=100.0, every_s=every_s)


EVENTS = [
    PoolEvent(0.0, (0, 1, 2), ()),
    PoolEvent(50.0, (), ()),
    PoolEvent(60.0, (), (0, 1)),
    PoolEvent(300.0, (), ()),
]


def test_who_leaves_at_once_is_one_departure() -> None:
    (one,) = watch(EVENTS, together(every_s=1_000.0)).by_age

    assert (one.part.count, one.part.departures) == (3, 1)
    assert one.part.came == pytest.approx(1 / 3)


def test_a_departure_counts_with_the_last_answer_before_it() -> None:
    three, one = (
        row.part for row in reversed(watch(EVENTS, together(every_s=1.0)).by_age)
    )

    assert (three.count, three.departures) == (6, 1)
    assert three.came == pytest.approx(1 / 3)
    assert (one.count, one.came, one.departures) == (1, 1, 0)


def test_what_came_is_told_by_the_nodes_that_were_left() -> None:
    rows = watch(EVENTS, together(every_s=1.0)).by_age

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
    watch(EVENTS, watched)

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
