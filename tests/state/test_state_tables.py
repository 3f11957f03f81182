"""Rows come back from the tables as they were put, and old rows go."""

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.broker.lease import (
    Intent,
    IntentState,
    Lease,
    LeaseEnd,
    LeaseKey,
    LeaseState,
)
from freetrain.lookahead.base import Departure
from freetrain.state import tables
from freetrain.state.database import connect, migrate, transaction
from freetrain.state.tables import (
    MOST_OTHERS,
    Delivery,
    DeliveryStage,
    Event,
    EventKind,
    HistoryRow,
    KnownLimits,
    LeaseForecast,
    LossForecastRow,
    SeenBackfillPlans,
    SeenHeartbeat,
    TrainerRow,
    TrainerState,
)
from slurm.associations import AccountingLimits, Association, Qos
from slurm.holes import BackfillPlans, HiddenPlan, PlannedStart
from tests.state.events import events_of

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
TIMES = st.floats(1, 4e9)
COUNTS = st.integers(1, 2**31)
VALUES = {
    "str": TEXT,
    "float": TIMES,
    "int": COUNTS,
    "float | None": st.none() | TIMES,
    "int | None": st.none() | COUNTS,
    "LeaseEnd | None": st.none() | st.sampled_from(LeaseEnd),
} | {
    kind.__name__: st.sampled_from(kind)
    for kind in (DeliveryStage, EventKind, IntentState, LeaseState, TrainerState)
}


def records(kind: type[Any], **fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Make up records of a dataclass by the types of its fields."""
    drawn = {f.name: VALUES[str(f.type)] for f in fields(kind) if f.name not in fixed}
    return st.builds(kind, **drawn, **fixed)


@contextmanager
def new_state() -> Iterator[sqlite3.Connection]:
    with tempfile.TemporaryDirectory() as folder:
        connection = connect(Path(folder) / "state.sqlite")
        migrate(connection)
        yield connection
        connection.close()


def put_deliveries(state: sqlite3.Connection, rows: list[Delivery]) -> None:
    for row in rows:
        tables.put_delivery(state, row)


@pytest.mark.parametrize(
    ("rows_of", "key", "put", "read"),
    [
        (records(TrainerRow), "name", tables.put_trainers, tables.trainers),
        (
            records(Intent),
            "uuid",
            tables.put_intents,
            lambda state: tables.intents(state, ending_after_s=0.0),
        ),
        (
            records(Delivery),
            "trainer",
            put_deliveries,
            lambda state: tuple(tables.deliveries(state).values()),
        ),
        (
            records(LeaseForecast, task=st.just(0), ended_s=st.none()),
            "uuid",
            tables.put_lease_forecasts,
            tables.pending_lease_forecasts,
        ),
    ],
    ids=["trainers", "intents", "deliveries", "forecasts of leases"],
)
@settings(max_examples=20)
@given(data=st.data())
def test_rows_come_back_as_they_were_put_last(
    data: st.DataObject,
    rows_of: st.SearchStrategy[Any],
    key: str,
    put: Callable[..., None],
    read: Callable[[sqlite3.Connection], tuple[Any, ...]],
) -> None:
    lists = st.lists(rows_of, unique_by=lambda row: getattr(row, key))
    first, rows = data.draw(lists), data.draw(lists)
    again = {getattr(row, key): row for row in first + rows}
    with new_state() as state:
        with transaction(state):
            put(state, first)
            put(state, rows)

        # By repr: a member of a StrEnum equals its text.
        assert repr(read(state)) == repr(tuple(again.values()))


def test_columns_whose_names_differ_from_their_fields_keep_their_meaning(
    state: sqlite3.Connection,
) -> None:
    trainer_columns = "name, job, run_dir, state, submitted_s, changed_s"
    forecast_columns = "uuid, task, node, at_s, horizon_s, leaves, even_s, came"
    written = {
        f"trainers ({trainer_columns}, told_generation)": (
            *("a", "", "/r", "wanted", 1.0, 1.0, 7),
        ),
        "pasts (trainer, submitted_s, bookmark, past, scaling)": (
            *("a", 1.0, '{"b": 1}', '{"p": 1}', '{"s": 1}'),
        ),
        "outlooks (trainer, told, outlook)": ("a", "x", '{"gain": 1}'),
        f"foreseen ({forecast_columns})": (
            *("u", 0, "n1", 1.0, 400.0, 0.25, 1_200.0, "preempted"),
        ),
    }
    for into, row in written.items():
        marks = ", ".join("?" for _ in row)
        state.execute(f"INSERT INTO {into} VALUES ({marks})", row)  # noqa: S608

    (trainer,) = tables.trainers(state)
    history = tables.history_of(state, "a", submitted_s=1.0)
    (forecast,) = tables.pending_lease_forecasts(state)
    assert trainer.reported_generation == 7
    assert history == HistoryRow("a", 1.0, {"b": 1}, {"p": 1}, {"s": 1})
    assert tables.loss_forecast_of(state, "a", fitted_to="x") == {"gain": 1}
    assert (forecast.departure_probability, forecast.median_s) == (0.25, 1_200.0)
    assert forecast.outcome == "preempted"


@settings(max_examples=20)
@given(data=st.data(), rows=st.lists(records(Intent), unique_by=lambda row: row.uuid))
def test_leases_of_intents_come_back_as_they_were(
    data: st.DataObject, rows: list[Intent]
) -> None:
    keys = [st.builds(LeaseKey, st.just(row.uuid), COUNTS) for row in rows]
    mine = [data.draw(records(Lease, key=key)) for key in keys]
    with new_state() as state:
        with transaction(state):
            tables.put_intents(state, rows)
            tables.put_leases(state, mine)
            tables.put_leases(state, mine)

        assert tables.leases(state, ending_after_s=0.0) == tuple(mine)


@settings(max_examples=20)
@given(
    starts=st.lists(st.builds(PlannedStart, COUNTS, TIMES, TEXT, TIMES)).map(tuple),
    hidden=st.lists(st.builds(HiddenPlan, TEXT, TIMES)).map(tuple),
    whole_s=st.none() | TIMES,
    event=records(Event),
)
def test_plans_and_events_come_back_as_they_were(
    starts: tuple[PlannedStart, ...],
    hidden: tuple[HiddenPlan, ...],
    whole_s: float | None,
    event: Event,
) -> None:
    seen = SeenBackfillPlans(BackfillPlans(starts, hidden), whole_s)
    with new_state() as state:
        with transaction(state):
            tables.put_backfill_plans(state, SeenBackfillPlans())
            tables.put_backfill_plans(state, seen)
            tables.add_events(state, [event])

        assert tables.seen_backfill_plans(state) == seen
        assert events_of(state, event.subject) == (event,)


LIMITS = AccountingLimits(
    (Association("physics", "ada", is_default=True, limits={"GrpTRES=node": 6}),),
    (Qos("long", {"MaxJobsPU": 3}),),
)


@pytest.mark.parametrize("kept", ["{}", "[1", '{"qos": 3}', '{"qos": [{"nam": ""}]}'])
def test_what_slurm_showed_last_is_kept_and_counts_as_unseen_where_it_is_spoilt(
    state: sqlite3.Connection, kept: str
) -> None:
    known = KnownLimits(LIMITS, read_s=5.0)
    with transaction(state):
        tables.put_known_limits(state, KnownLimits())
        tables.put_known_limits(state, known)
        tables.put_backfill_plans(state, SeenBackfillPlans(whole_s=5.0))
    assert tables.known_limits(state) == known

    with transaction(state):
        state.execute("UPDATE known_limits SET limits = ?", (kept,))
        state.execute("UPDATE plans SET plans = ?", (kept,))

    assert tables.known_limits(state) == KnownLimits()
    assert tables.seen_backfill_plans(state) == SeenBackfillPlans()


def test_only_the_heartbeats_of_the_last_tick_are_kept(
    state: sqlite3.Connection,
) -> None:
    old, new = LeaseKey("u", 0), LeaseKey("u", 1)
    with transaction(state):
        tables.put_heartbeats(
            state, [SeenHeartbeat(old, 4, 10.0), SeenHeartbeat(new, 1, 12.0)]
        )
        tables.put_heartbeats(state, [SeenHeartbeat(new, 2, 20.0)])

    assert tables.seen_heartbeats(state) == {new: SeenHeartbeat(new, 2, 20.0)}


@pytest.mark.parametrize(
    ("before", "becomes", "is_written"),
    [
        (TrainerState.WANTED, TrainerState.FINISHED, True),
        (TrainerState.WANTED, TrainerState.FAILED, True),
        (TrainerState.PAUSED, TrainerState.FINISHED, True),
        (TrainerState.PAUSED, TrainerState.FAILED, False),
        (TrainerState.CANCELLED, TrainerState.FINISHED, False),
    ],
)
def test_a_trainer_that_its_user_cancelled_meanwhile_does_not_finish(
    state: sqlite3.Connection,
    before: TrainerState,
    becomes: TrainerState,
    is_written: bool,  # noqa: FBT001
) -> None:
    row = TrainerRow("a", "", "/r", before, 1.0, 1.0)
    with transaction(state):
        tables.put_trainers(state, [row])
        ended = tables.end_trainer(state, "a", becomes, message="done", now_s=5.0)
        tables.put_reported_generation(state, "a", 7)

    assert ended == is_written
    done = TrainerRow("a", "", "/r", becomes, 1.0, 5.0, "done", 7)
    assert tables.trainers(state) == (
        done if is_written else replace(row, reported_generation=7),
    )


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
        tables.add_events(state, happened)

    lately = tables.pace(state, since_s=45.0)
    with transaction(state):
        tables.drop_events(state, before_s=100.0)
    after = tables.pace(state, since_s=0.0)

    assert (lately.churned, lately.failed_starts, lately.last_failed_s) == (5, 2, 60.0)
    assert (after.churned, after.failed_starts) == (0, 0)


def test_each_submission_has_its_own_history(state: sqlite3.Connection) -> None:
    told = {"points": [[1.0, 2.0, float("inf")]]}
    old = HistoryRow("a", 5.0, {"generation": 1}, told, {"seen": {}})
    new = HistoryRow("a", 9.0, {}, {}, {"seen": {"1": []}})
    with transaction(state):
        tables.put_histories(state, [old])
    kept = tables.history_of(state, "a", submitted_s=5.0)
    with transaction(state):
        tables.put_histories(state, [new])

    assert kept == old
    assert tables.history_of(state, "a", submitted_s=5.0) is None
    assert tables.history_of(state, "b", submitted_s=5.0) is None
    assert tables.latest_scalings(state) == ({"seen": {"1": []}},)


def test_a_loss_forecast_is_kept_until_something_new_is_reported(
    state: sqlite3.Connection,
) -> None:
    assert tables.loss_forecast_of(state, "a", fitted_to="x") is None
    with transaction(state):
        tables.put_loss_forecasts(state, [LossForecastRow("a", "x", {"gain": 0.5})])
    first = tables.loss_forecast_of(state, "a", fitted_to="x")
    other = tables.loss_forecast_of(state, "b", fitted_to="x")
    with transaction(state):
        tables.put_loss_forecasts(state, [LossForecastRow("a", "y", {"gain": 0.25})])

    assert (first, other) == ({"gain": 0.5}, None)
    assert tables.loss_forecast_of(state, "a", fitted_to="x") is None
    assert tables.loss_forecast_of(state, "a", fitted_to="y") == {"gain": 0.25}


def test_a_priority_gets_its_own_memory_and_nothing_of_anothers(
    state: sqlite3.Connection,
) -> None:
    assert tables.priority_memory_of(state, "flowcon") == {}
    with transaction(state):
        tables.put_priority_memory(state, "flowcon", {"x": [1, None]})
        tables.put_priority_memory(state, "flowcon", {"y": 0.5})

    assert tables.priority_memory_of(state, "flowcon") == {"y": 0.5}
    assert tables.priority_memory_of(state, "slaq") == {}


# ----------------------------------------------------------------------
# Node forecasts and forecasts of leases

ONE = LeaseForecast("u", 0, "n1", 100.0, 400.0, 0.25, 1_200.0, promised_s=5_000.0)


def test_the_last_state_and_all_names_are_kept_in_order(
    state: sqlite3.Connection,
) -> None:
    with transaction(state):
        tables.put_forecast(state, '{"a":1}')
        tables.put_forecast(state, '{"a":2}')
        tables.add_node_names(state, ["n1", "n0"], known=0)
        tables.add_node_names(state, ["n1", "n0", "n7"], known=2)

        assert tables.forecast_state(state) == '{"a":2}'
        assert tables.node_names(state) == ("n1", "n0", "n7")


def test_only_the_latest_departures_are_kept_the_oldest_first(
    state: sqlite3.Connection,
) -> None:
    with transaction(state):
        for k in range(5):
            tables.add_departures(state, [Departure(bytes([k]), b"\xff")], keep=3)
        tables.add_departures(state, [], keep=1)

        assert [one.left[0] for one in tables.departures(state)] == [2, 3, 4]


def test_what_was_learned_can_be_dropped_and_what_was_expected_stays(
    state: sqlite3.Connection,
) -> None:
    with transaction(state):
        tables.put_forecast(state, "{}")
        tables.add_node_names(state, ["n1"], known=0)
        tables.add_departures(state, [Departure(b"\x80", b"\x80")], keep=3)
        tables.put_lease_forecasts(state, [ONE])
        tables.forget_forecasts(state)

        assert tables.forecast_state(state) is None
        assert tables.node_names(state) == ()
        assert tables.departures(state) == ()
        assert tables.pending_lease_forecasts(state) == (ONE,)


def test_what_was_expected_of_leases_is_kept_until_long_after_they_ended(
    state: sqlite3.Connection,
) -> None:
    ended = replace(ONE, task=1, ended_s=300.0, outcome="preempted")
    with transaction(state):
        tables.put_lease_forecasts(
            state, [ONE, replace(ended, ended_s=None, outcome="")]
        )
        tables.put_lease_forecasts(state, [ended])

        assert tables.pending_lease_forecasts(state) == (ONE,)
        assert tables.ended_lease_forecasts(state, most=2) == (ended,)
        tables.drop_lease_forecasts(state, before_s=100.5)
        assert (
            tables.pending_lease_forecasts(state)
            == tables.ended_lease_forecasts(state, most=2)
            == ()
        )


def test_the_leases_that_ended_last_come_first_and_no_more_than_asked_for(
    state: sqlite3.Connection,
) -> None:
    ends_s = (300.0, 500.0, 400.0, 500.0)
    every = [replace(ONE, task=k, ended_s=end_s) for k, end_s in enumerate(ends_s)]
    with transaction(state):
        tables.put_lease_forecasts(state, [*every, replace(ONE, task=9)])

        tasks = [one.task for one in tables.ended_lease_forecasts(state, most=3)]

    assert tasks == [1, 3, 2]


# ----------------------------------------------------------------------
# Histories of trainers that ended long ago

LONG_AGO_S, LATELY_S = 100.0, 900.0
BEFORE_S = 500.0


def told(state: sqlite3.Connection, name: str, *, submitted_s: float = 1.0) -> None:
    with transaction(state):
        tables.put_histories(state, [HistoryRow(name, submitted_s, {}, {}, {})])
        tables.put_loss_forecasts(state, [LossForecastRow(name, "x", {})])


def became(
    state: sqlite3.Connection, name: str, end: TrainerState, changed_s: float
) -> None:
    row = TrainerRow(name, "", "/run", end, 1.0, changed_s)
    with transaction(state):
        tables.put_trainers(state, [row])


def latest(state: sqlite3.Connection, count: int) -> None:
    """Let *count* trainers be younger than all others."""
    for number in range(count):
        told(state, f"young{number}", submitted_s=1_000.0)


def kept(state: sqlite3.Connection, name: str) -> tuple[bool, bool]:
    """Tell whether history and loss forecast of *name* are there."""
    past = tables.history_of(state, name, submitted_s=1.0)
    return past is not None, tables.loss_forecast_of(
        state, name, fitted_to="x"
    ) is not None


def forget(state: sqlite3.Connection) -> None:
    with transaction(state):
        tables.forget_histories(state, before_s=BEFORE_S)


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
    before = tables.has_old_histories(state, before_s=BEFORE_S)
    told(state, "done")
    became(state, "done", TrainerState.FINISHED, LONG_AGO_S)
    then = tables.has_old_histories(state, before_s=BEFORE_S)
    forget(state)

    assert (before, then) == (False, True)
    assert not tables.has_old_histories(state, before_s=BEFORE_S)
