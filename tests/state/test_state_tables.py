"""What goes into the state comes out of it."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.broker.lease import LeaseKey
from freetrain.state.database import migrate, transaction
from freetrain.state.tables import (
    Delivery,
    Event,
    EventKind,
    HistoryRow,
    LossForecastRow,
    SeenBackfillPlans,
    SeenHeartbeat,
    Stage,
    TrainerRow,
    TrainerState,
    add_events,
    deliveries,
    drop_events,
    end_trainer,
    history_of,
    intents,
    latest_scalings,
    leases,
    loss_forecast_of,
    pace,
    priority_memory_of,
    put_backfill_plans,
    put_delivery,
    put_heartbeats,
    put_histories,
    put_intents,
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

from freetrain.state.database import connect


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


def test_of_heartbeats_only_the_last_look_is_kept() -> None:
    old, new = LeaseKey("u", 0), LeaseKey("u", 1)
    with new_state() as state:
        with transaction(state):
            put_heartbeats(
                state, [SeenHeartbeat(old, 4, 10.0), SeenHeartbeat(new, 1, 12.0)]
            )
            put_heartbeats(state, [SeenHeartbeat(new, 2, 20.0)])

        assert seen_heartbeats(state) == {new: SeenHeartbeat(new, 2, 20.0)}


def test_a_trainer_that_its_user_cancelled_meanwhile_does_not_finish() -> None:
    rows = [
        TrainerRow(name, "", "/r", state, 1.0, 1.0)
        for name, state in (("a", TrainerState.WANTED), ("b", TrainerState.CANCELLED))
    ]
    with new_state() as state:
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


def test_churn_counts_in_its_window_and_failures_since_the_last_good_start() -> None:
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
    with new_state() as state:
        with transaction(state):
            add_events(state, happened)

        lately = pace(state, since_s=45.0)
        with transaction(state):
            drop_events(state, before_s=100.0)
        after = pace(state, since_s=0.0)

    assert (lately.churned, lately.failed_starts, lately.last_failed_s) == (5, 2, 60.0)
    assert (after.churned, after.failed_starts) == (0, 0)


def test_of_each_submission_its_own_past_is_kept() -> None:
    told = {"points": [[1.0, 2.0, float("inf")]]}
    old = HistoryRow("a", 5.0, {"generation": 1}, told, {"seen": {}})
    new = HistoryRow("a", 9.0, {}, {}, {"seen": {"1": []}})
    with new_state() as state:
        with transaction(state):
            put_histories(state, [old])
        kept = history_of(state, "a", submitted_s=5.0)
        with transaction(state):
            put_histories(state, [new])

        assert kept == old
        assert history_of(state, "a", submitted_s=5.0) is None
        assert history_of(state, "b", submitted_s=5.0) is None
        assert latest_scalings(state) == ({"seen": {"1": []}},)


def test_an_outlook_is_kept_until_something_new_is_told() -> None:
    with new_state() as state:
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


def test_a_priority_is_told_what_it_remembered_and_nothing_of_anothers() -> None:
    with new_state() as state:
        assert priority_memory_of(state, "flowcon") == {}
        with transaction(state):
            put_priority_memory(state, "flowcon", {"x": [1, None]})
            put_priority_memory(state, "flowcon", {"y": 0.5})

        assert priority_memory_of(state, "flowcon") == {"y": 0.5}
        assert priority_memory_of(state, "slaq") == {}


def test_a_delivery_comes_back_as_it_was() -> None:
    reached = Delivery(
        trainer="a",
        submitted_s=5.0,
        stage=Stage.REACHED,
        reached_s=7.0,
        step=None,
        value=-0.25,
        changed_s=8.0,
    )
    done = Delivery(
        trainer="a",
        submitted_s=9.0,
        stage=Stage.DELIVERED,
        reached_s=7.0,
        step=3,
        value=1e-3,
        changed_s=9.0,
        checkpoint="x.npz",
        problem="no such program",
    )
    with new_state() as state:
        with transaction(state):
            put_delivery(state, reached)
        first = deliveries(state)
        with transaction(state):
            put_delivery(state, done)

        assert first == {("a", 5.0): reached}
        assert deliveries(state) == {("a", 9.0): done}
