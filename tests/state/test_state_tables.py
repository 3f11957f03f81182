"""What goes into the tables comes out of them, and old rows go."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.broker.lease import LeaseKey
from freetrain.lookahead.base import Departure
from freetrain.state.database import connect, migrate, transaction
from freetrain.state.tables import (
    MOST_OTHERS,
    Delivery,
    DeliveryStage,
    Event,
    EventKind,
    HistoryRow,
    LeaseForecast,
    LossForecastRow,
    SeenBackfillPlans,
    SeenHeartbeat,
    TrainerRow,
    TrainerState,
    add_departures,
    add_events,
    add_node_names,
    deliveries,
    departures,
    drop_events,
    drop_lease_forecasts,
    end_trainer,
    ended_lease_forecasts,
    forecast_state,
    forget_forecasts,
    forget_histories,
    has_old_histories,
    history_of,
    intents,
    latest_scalings,
    leases,
    loss_forecast_of,
    node_names,
    pace,
    pending_lease_forecasts,
    priority_memory_of,
    put_backfill_plans,
    put_delivery,
    put_forecast,
    put_heartbeats,
    put_histories,
    put_intents,
    put_lease_forecasts,
    put_leases,
    put_loss_forecasts,
    put_priority_memory,
    put_reported_generation,
    put_trainers,
    seen_backfill_plans,
    seen_heartbeats,
    trainers,
)
from tests.state.events import events_of
from tests.state.state_records import (
    EVENTS,
    INTENTS,
    SEEN,
    TRAINERS,
    leases_of,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from freetrain.broker.lease import Intent


@contextmanager
def new_state() -> Iterator[sqlite3.Connection]:
    with tempfile.TemporaryDirectory() as folder:
        connection = connect(Path(folder) / "state.sqlite")
        migrate(connection)
        yield connection
        connection.close()


@settings(max_examples=20)
@given(rows=st.lists(TRAINERS, unique_by=lambda row: row.name))
def test_trainers_come_back_as_they_were(rows: list[TrainerRow]) -> None:
    with new_state() as state:
        with transaction(state):
            put_trainers(state, rows)
            put_trainers(state, rows)

        assert trainers(state) == tuple(rows)


@settings(max_examples=20)
@given(data=st.data(), rows=st.lists(INTENTS, unique_by=lambda one: one.uuid))
def test_intents_and_their_leases_come_back_as_they_were(
    data: st.DataObject, rows: list[Intent]
) -> None:
    mine = [data.draw(leases_of(intent)) for intent in rows]
    with new_state() as state:
        with transaction(state):
            put_intents(state, rows)
            put_leases(state, mine)
            put_leases(state, mine)

        assert intents(state, ending_after_s=0.0) == tuple(rows)
        assert leases(state, ending_after_s=0.0) == tuple(mine)


@settings(max_examples=20)
@given(seen=SEEN, event=EVENTS)
def test_plans_and_events_come_back_as_they_were(
    seen: SeenBackfillPlans, event: Event
) -> None:
    with new_state() as state:
        with transaction(state):
            put_backfill_plans(state, SeenBackfillPlans())
            put_backfill_plans(state, seen)
            add_events(state, [event])

        assert seen_backfill_plans(state) == seen
        assert events_of(state, event.subject) == (event,)


def test_only_the_heartbeats_of_the_last_tick_are_kept(
    state: sqlite3.Connection,
) -> None:
    old, new = LeaseKey("u", 0), LeaseKey("u", 1)
    with transaction(state):
        put_heartbeats(
            state, [SeenHeartbeat(old, 4, 10.0), SeenHeartbeat(new, 1, 12.0)]
        )
        put_heartbeats(state, [SeenHeartbeat(new, 2, 20.0)])

    assert seen_heartbeats(state) == {new: SeenHeartbeat(new, 2, 20.0)}


def test_a_trainer_that_its_user_cancelled_meanwhile_does_not_finish(
    state: sqlite3.Connection,
) -> None:
    rows = [
        TrainerRow(name, "", "/r", state, 1.0, 1.0)
        for name, state in (("a", TrainerState.WANTED), ("b", TrainerState.CANCELLED))
    ]
    with transaction(state):
        put_trainers(state, rows)
        ended = [
            end_trainer(
                state, row.name, TrainerState.FINISHED, message="done", now_s=5.0
            )
            for row in rows
        ]
        put_reported_generation(state, "a", 7)
    after = trainers(state)

    assert ended == [True, False]
    done = TrainerRow("a", "", "/r", TrainerState.FINISHED, 1.0, 5.0, "done", 7)
    assert after == (done, rows[1])


def test_churn_counts_in_its_window_and_failures_since_the_last_good_start(
    state: sqlite3.Connection,
) -> None:
    happened = [
        Event(10.0, EventKind.ASKED, "", 8),
        Event(20.0, EventKind.FAILED_START, "x"),
        Event(30.0, EventKind.STARTED, "x"),
        Event(40.0, EventKind.FAILED_START, "x"),
        Event(50.0, EventKind.GAVE_UP, "", 2),
        Event(55.0, EventKind.YIELDED, "", 7),
        Event(60.0, EventKind.FAILED_START, "x"),
        Event(70.0, EventKind.ASKED, "", 3),
    ]
    with transaction(state):
        add_events(state, happened)

    lately = pace(state, since_s=45.0)
    with transaction(state):
        drop_events(state, before_s=100.0)
    after = pace(state, since_s=0.0)

    assert (lately.churned, lately.failed_starts, lately.last_failed_s) == (5, 2, 60.0)
    assert (after.churned, after.failed_starts) == (0, 0)


def test_each_submission_has_its_own_history(state: sqlite3.Connection) -> None:
    told = {"points": [[1.0, 2.0, float("inf")]]}
    old = HistoryRow("a", 5.0, {"generation": 1}, told, {"seen": {}})
    new = HistoryRow("a", 9.0, {}, {}, {"seen": {"1": []}})
    with transaction(state):
        put_histories(state, [old])
    kept = history_of(state, "a", submitted_s=5.0)
    with transaction(state):
        put_histories(state, [new])

    assert kept == old
    assert history_of(state, "a", submitted_s=5.0) is None
    assert history_of(state, "b", submitted_s=5.0) is None
    assert latest_scalings(state) == ({"seen": {"1": []}},)


def test_a_loss_forecast_is_kept_until_something_new_is_reported(
    state: sqlite3.Connection,
) -> None:
    assert loss_forecast_of(state, "a", fitted_to="x") is None
    with transaction(state):
        put_loss_forecasts(state, [LossForecastRow("a", "x", {"gain": 0.5})])
    first = loss_forecast_of(state, "a", fitted_to="x")
    other = loss_forecast_of(state, "b", fitted_to="x")
    with transaction(state):
        put_loss_forecasts(state, [LossForecastRow("a", "y", {"gain": 0.25})])

    assert (first, other) == ({"gain": 0.5}, None)
    assert loss_forecast_of(state, "a", fitted_to="x") is None
    assert loss_forecast_of(state, "a", fitted_to="y") == {"gain": 0.25}


def test_a_priority_gets_its_own_memory_and_nothing_of_anothers(
    state: sqlite3.Connection,
) -> None:
    assert priority_memory_of(state, "flowcon") == {}
    with transaction(state):
        put_priority_memory(state, "flowcon", {"x": [1, None]})
        put_priority_memory(state, "flowcon", {"y": 0.5})

    assert priority_memory_of(state, "flowcon") == {"y": 0.5}
    assert priority_memory_of(state, "slaq") == {}


def test_a_delivery_comes_back_as_it_was(state: sqlite3.Connection) -> None:
    reached = Delivery(
        trainer="a",
        submitted_s=5.0,
        stage=DeliveryStage.REACHED,
        reached_s=7.0,
        step=None,
        value=-0.25,
        changed_s=8.0,
    )
    done = Delivery(
        trainer="a",
        submitted_s=9.0,
        stage=DeliveryStage.DELIVERED,
        reached_s=7.0,
        step=3,
        value=1e-3,
        changed_s=9.0,
        checkpoint="x.npz",
        problem="no such program",
    )
    with transaction(state):
        put_delivery(state, reached)
    first = deliveries(state)
    with transaction(state):
        put_delivery(state, done)

    assert first == {("a", 5.0): reached}
    assert deliveries(state) == {("a", 9.0): done}


# ----------------------------------------------------------------------
# Node forecasts and forecasts of leases

ONE = LeaseForecast("u", 0, "n1", 100.0, 400.0, 0.25, 1_200.0, promised_s=5_000.0)


def test_the_last_state_and_all_names_are_kept_in_order(
    state: sqlite3.Connection,
) -> None:
    with transaction(state):
        put_forecast(state, '{"a":1}')
        put_forecast(state, '{"a":2}')
        add_node_names(state, ["n1", "n0"], known=0)
        add_node_names(state, ["n1", "n0", "n7"], known=2)

        assert forecast_state(state) == '{"a":2}'
        assert node_names(state) == ("n1", "n0", "n7")


def test_only_the_latest_departures_are_kept_the_oldest_first(
    state: sqlite3.Connection,
) -> None:
    with transaction(state):
        for k in range(5):
            add_departures(state, [Departure(bytes([k]), b"\xff")], keep=3)
        add_departures(state, [], keep=1)

        assert [one.left[0] for one in departures(state)] == [2, 3, 4]


def test_what_was_learned_can_be_dropped_and_what_was_expected_stays(
    state: sqlite3.Connection,
) -> None:
    with transaction(state):
        put_forecast(state, "{}")
        add_node_names(state, ["n1"], known=0)
        add_departures(state, [Departure(b"\x80", b"\x80")], keep=3)
        put_lease_forecasts(state, [ONE])
        forget_forecasts(state)

        assert forecast_state(state) is None
        assert node_names(state) == ()
        assert departures(state) == ()
        assert pending_lease_forecasts(state) == (ONE,)


def test_what_was_expected_of_leases_is_kept_until_long_after_they_ended(
    state: sqlite3.Connection,
) -> None:
    ended = replace(ONE, task=1, ended_s=300.0, outcome="preempted")
    with transaction(state):
        put_lease_forecasts(state, [ONE, replace(ended, ended_s=None, outcome="")])
        put_lease_forecasts(state, [ended])

        assert pending_lease_forecasts(state) == (ONE,)
        assert ended_lease_forecasts(state, most=2) == (ended,)
        drop_lease_forecasts(state, before_s=100.5)
        assert (
            pending_lease_forecasts(state) == ended_lease_forecasts(state, most=2) == ()
        )


def test_the_leases_that_ended_last_come_first_and_no_more_than_asked_for(
    state: sqlite3.Connection,
) -> None:
    ends_s = (300.0, 500.0, 400.0, 500.0)
    every = [replace(ONE, task=k, ended_s=end_s) for k, end_s in enumerate(ends_s)]
    with transaction(state):
        put_lease_forecasts(state, [*every, replace(ONE, task=9)])

        tasks = [one.task for one in ended_lease_forecasts(state, most=3)]

    assert tasks == [1, 3, 2]


# ----------------------------------------------------------------------
# Histories of trainers that ended long ago

LONG_AGO_S, LATELY_S = 100.0, 900.0
BEFORE_S = 500.0


def told(state: sqlite3.Connection, name: str, *, submitted_s: float = 1.0) -> None:
    with transaction(state):
        put_histories(state, [HistoryRow(name, submitted_s, {}, {}, {})])
        put_loss_forecasts(state, [LossForecastRow(name, "x", {})])


def became(
    state: sqlite3.Connection, name: str, end: TrainerState, changed_s: float
) -> None:
    row = TrainerRow(name, "", "/run", end, 1.0, changed_s)
    with transaction(state):
        put_trainers(state, [row])


def latest(state: sqlite3.Connection, count: int) -> None:
    """Let *count* trainers be younger than all others."""
    for number in range(count):
        told(state, f"young{number}", submitted_s=1_000.0)


def kept(state: sqlite3.Connection, name: str) -> tuple[bool, bool]:
    """Tell whether history and loss forecast of *name* are there."""
    past = history_of(state, name, submitted_s=1.0)
    return past is not None, loss_forecast_of(state, name, fitted_to="x") is not None


def forget(state: sqlite3.Connection) -> None:
    with transaction(state):
        forget_histories(state, before_s=BEFORE_S)


def test_only_what_ended_long_ago_is_forgotten(state: sqlite3.Connection) -> None:
    ends = {
        "done": (TrainerState.FINISHED, LONG_AGO_S),
        "failed": (TrainerState.FAILED, LONG_AGO_S),
        "lately": (TrainerState.FINISHED, LATELY_S),
        "wanted": (TrainerState.WANTED, LONG_AGO_S),
        "paused": (TrainerState.PAUSED, LONG_AGO_S),
    }
    latest(state, MOST_OTHERS)
    for name, end in ends.items():
        told(state, name)
        became(state, name, *end)
    told(state, "removed")
    forget(state)

    left = {name for name in (*ends, "removed") if any(kept(state, name))}
    assert left == {"lately", "wanted", "paused"}
    assert all(all(kept(state, name)) for name in left)


def test_the_latest_histories_stay_for_the_speeds_they_showed(
    state: sqlite3.Connection,
) -> None:
    latest(state, MOST_OTHERS - 1)
    told(state, "done")
    became(state, "done", TrainerState.FINISHED, LONG_AGO_S)
    forget(state)

    assert kept(state, "done") == (True, False)


def test_there_is_something_to_forget_until_it_is_forgotten(
    state: sqlite3.Connection,
) -> None:
    before = has_old_histories(state, before_s=BEFORE_S)
    told(state, "done")
    became(state, "done", TrainerState.FINISHED, LONG_AGO_S)
    then = has_old_histories(state, before_s=BEFORE_S)
    forget(state)

    assert (before, then) == (False, True)
    assert not has_old_histories(state, before_s=BEFORE_S)
