"""The tables of the state: their rows as records, written and read.

Functions that write (``put_…``, ``add_…``, ``forget_…``) need the caller's transaction
(``database.writing``); those that read raise a ``StoreError`` where the state cannot be
read. ``database.STEPS`` defines the columns.
"""

from __future__ import annotations

import json
from dataclasses import asdict, astuple, dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from freetrain.broker.job_limits import NOTHING_REMEMBERED, LimitMemory
from freetrain.broker.lease import (
    Intent,
    IntentState,
    Lease,
    LeaseEnd,
    LeaseKey,
    LeaseState,
)
from freetrain.broker.limits import Pace
from freetrain.broker.sharing import CallMemory, SeenOwner
from freetrain.broker.yielding import AwaitedPreemption
from freetrain.lookahead.base import Departure
from freetrain.state.database import reading, translated
from slurm.associations import UNKNOWN_LIMITS, AccountingLimits, Association, Qos
from slurm.holes import BackfillPlans, HiddenPlan, PlannedStart

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from dataclasses import Field


# ----------------------------------------------------------------------
# Records to rows and back


class Dataclass(Protocol):
    """A dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


Row = TypeVar("Row", bound=Dataclass)
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class RowTable(Generic[Row]):
    """A table with a column for each field of a record.

    Attributes:
        name: As SQL calls it.
        row: The record, a dataclass.
        key: The columns that tell rows apart.
        columns: Columns by field, where their names differ.
        enums: Enumerations by field; SQLite keeps their texts.
    """

    name: str
    row: type[Row]
    key: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    enums: Mapping[str, type[StrEnum]] = field(default_factory=dict)

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the record's fields, in order."""
        return tuple(part.name for part in fields(self.row))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order of the fields."""
        return tuple(self.columns.get(name, name) for name in self.fields)

    def put(self, connection: sqlite3.Connection, rows: Iterable[Row]) -> None:
        """Insert *rows*, or change those there are with the same key."""
        values = [[getattr(row, name) for name in self.fields] for row in rows]
        put(connection, self.name, self.names, key=self.key, rows=values)

    def read(
        self,
        connection: sqlite3.Connection,
        *,
        where: str = "",
        values: Sequence[object] = (),
    ) -> tuple[Row, ...]:
        """Return rows in the order they came in; ``where`` is ours, never input."""
        rows = select(connection, self.name, self.names, where=where, values=values)
        with reading(self.name):
            return tuple(self._row(row) for row in rows)

    def _row(self, values: tuple[Any, ...]) -> Row:
        found = dict(zip(self.fields, values, strict=True))
        for name, enum in self.enums.items():
            found[name] = enum(found[name])
        return self.row(**found)


def select(
    connection: sqlite3.Connection,
    table: str,
    names: Sequence[str],
    *,
    where: str = "",
    values: Sequence[object] = (),
) -> list[tuple[Any, ...]]:
    """Return columns of *table* in the order its rows came in."""
    order = f"SELECT {', '.join(names)} FROM {table} {where} ORDER BY rowid"  # noqa: S608
    with translated():
        return connection.execute(order, tuple(values)).fetchall()


def put(
    connection: sqlite3.Connection,
    table: str,
    names: Sequence[str],
    *,
    key: Sequence[str],
    rows: Sequence[Sequence[object]],
) -> None:
    """Insert *rows*, or change those there are with the same *key*."""
    marks = ", ".join("?" for _ in names)
    changes = ", ".join(f"{n} = excluded.{n}" for n in names if n not in key)
    connection.executemany(
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks}) "  # noqa: S608
        f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}",
        rows,
    )


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), separators=(",", ":"))


def _learned(text: str) -> Any:  # noqa: ANN401 - what the caller put
    """Return what ``_json`` wrote; empty where it is unreadable: it is learned anew."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# Some tables have one row, which each tick replaces.


def _put_last(
    connection: sqlite3.Connection, table: str, columns: Mapping[str, object]
) -> None:
    """Keep *columns* instead of the last."""
    names, row = ("one", *columns), (1, *columns.values())
    put(connection, table, names, key=("one",), rows=[row])


def _last(
    connection: sqlite3.Connection,
    table: str,
    names: tuple[str, str],
    make: Callable[[Any, Any], Made],
) -> Made | None:
    """Make a record of a time and JSON; None in a new state, and if unreadable."""
    rows = select(connection, table, names)
    try:
        return make(rows[0][0], _learned(rows[0][1])) if rows else None
    except (KeyError, TypeError):
        return None


# ----------------------------------------------------------------------
# Trainers that users submitted


class TrainerState(StrEnum):
    """The user's wish for a trainer, or how it ended."""

    WANTED = "wanted"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class TrainerRow:
    """A submitted trainer.

    Attributes:
        name: Unique in the state directory.
        job: Its job.toml as submitted.
        run_dir: Absolute path of its run directory.
        changed_s: When its state last changed, Unix time.
        message: Why it is in this state, for people. Hostile text.
        reported_generation: Up to which generation events report its rescales.
    """

    name: str
    job: str
    run_dir: str
    state: TrainerState
    submitted_s: float
    changed_s: float
    message: str = ""
    reported_generation: int = 0


_TRAINERS = RowTable(
    "trainers",
    TrainerRow,
    key=("name",),
    columns={"reported_generation": "told_generation"},
    enums={"state": TrainerState},
)


def put_trainers(connection: sqlite3.Connection, rows: Iterable[TrainerRow]) -> None:
    """Insert or change trainers."""
    _TRAINERS.put(connection, rows)


def trainers(connection: sqlite3.Connection) -> tuple[TrainerRow, ...]:
    """Return all trainers, in order of submission."""
    return _TRAINERS.read(connection)


def end_trainer(
    connection: sqlite3.Connection,
    name: str,
    state: TrainerState,
    *,
    message: str,
    now_s: float,
) -> bool:
    """Write down how a trainer ended.

    One that its user paused meanwhile has finished all the same, but has not failed.

    Returns:
        Whether it was written down; its user may have cancelled it first.
    """
    has_finished = state is TrainerState.FINISHED
    also = TrainerState.PAUSED if has_finished else TrainerState.WANTED
    done = connection.execute(
        "UPDATE trainers SET state = ?, message = ?, changed_s = ? "
        "WHERE name = ? AND state IN (?, ?)",
        (state, message, now_s, name, TrainerState.WANTED, also),
    )
    return done.rowcount == 1


def put_reported_generation(
    connection: sqlite3.Connection, name: str, generation: int
) -> None:
    """Write down up to which generation events report a trainer's rescales."""
    connection.execute(
        "UPDATE trainers SET told_generation = ? WHERE name = ?", (generation, name)
    )


def remove_trainer(connection: sqlite3.Connection, name: str) -> None:
    """Forget a trainer; if the name is used again, the new trainer comes last."""
    connection.execute("DELETE FROM trainers WHERE name = ?", (name,))


# ----------------------------------------------------------------------
# Intents to submit, committed before sbatch is called, and the leases made of them

_INTENTS = RowTable(
    "intents",
    Intent,
    key=("uuid",),
    enums={"state": IntentState},
    columns={"state": "outcome"},
)
_LEASE_FIELDS = tuple(part.name for part in fields(Lease) if part.name != "key")
_LEASE_COLUMNS = ("uuid", "task", *_LEASE_FIELDS)
_IS_OVER = "deadline_s < ? AND uuid NOT IN (SELECT uuid FROM leases)"


def put_intents(connection: sqlite3.Connection, intents: Iterable[Intent]) -> None:
    """Insert or change intents."""
    _INTENTS.put(connection, intents)


def intents(
    connection: sqlite3.Connection, *, ending_after_s: float
) -> tuple[Intent, ...]:
    """Return the intents that may still have jobs, the oldest first.

    Those whose deadline is later than *ending_after_s*, Unix time, or of which a
    lease is still there: Slurm has removed the jobs of all others.
    """
    where = (
        "WHERE deadline_s > ? "
        "OR uuid IN (SELECT uuid FROM leases WHERE leases.state != ?)"
    )
    values = (ending_after_s, LeaseState.GONE)
    return _INTENTS.read(connection, where=where, values=values)


def has_old_intents(connection: sqlite3.Connection, *, before_s: float) -> bool:
    """Tell whether there are intents for ``forget_intents``."""
    with translated():
        order = f"SELECT 1 FROM intents WHERE {_IS_OVER} LIMIT 1"  # noqa: S608 - ours
        return connection.execute(order, (before_s,)).fetchone() is not None


def forget_intents(connection: sqlite3.Connection, *, before_s: float) -> None:
    """Forget intents whose deadline was earlier and that have no lease any more."""
    connection.execute(f"DELETE FROM intents WHERE {_IS_OVER}", (before_s,))  # noqa: S608 - ours


def put_leases(connection: sqlite3.Connection, leases: Iterable[Lease]) -> None:
    """Insert or change leases of stored intents."""
    rows = [
        [
            lease.key.uuid,
            lease.key.task,
            *(getattr(lease, name) for name in _LEASE_FIELDS),
        ]
        for lease in leases
    ]
    put(connection, "leases", _LEASE_COLUMNS, key=("uuid", "task"), rows=rows)


def leases(
    connection: sqlite3.Connection, *, ending_after_s: float
) -> tuple[Lease, ...]:
    """Return live leases, and gone ones that may turn out alive, the oldest first.

    Gone leases only if their deadline is later than *ending_after_s*, Unix time.
    """
    where = "WHERE state != ? OR deadline_s > ?"
    values = (LeaseState.GONE, ending_after_s)
    rows = select(connection, "leases", _LEASE_COLUMNS, where=where, values=values)
    with reading("leases"):
        return tuple(
            _lease(dict(zip(_LEASE_COLUMNS, row, strict=True))) for row in rows
        )


def _lease(row: dict[str, Any]) -> Lease:
    key = LeaseKey(row.pop("uuid"), row.pop("task"))
    state, ended = LeaseState(row.pop("state")), row.pop("ended")
    end = None if ended is None else LeaseEnd(ended)
    return Lease(key=key, state=state, ended=end, **row)


def old_leases(
    connection: sqlite3.Connection, *, before_s: float, most: int
) -> dict[LeaseKey, int | None]:
    """Return up to *most* leases whose jobs Slurm has removed, with their job numbers.

    They are gone, and their deadline was before *before_s*, Unix time; the oldest
    deadline first. The number is None for a job that never had one of its own.
    """
    order = (
        "SELECT uuid, task, job_id FROM leases WHERE state = ? AND deadline_s < ? "
        "ORDER BY deadline_s LIMIT ?"
    )
    with translated():
        rows = connection.execute(order, (LeaseState.GONE, before_s, most)).fetchall()
    return {LeaseKey(uuid, task): job_id for uuid, task, job_id in rows}


def forget_leases(connection: sqlite3.Connection, keys: Iterable[LeaseKey]) -> None:
    """Forget leases."""
    order = "DELETE FROM leases WHERE uuid = ? AND task = ?"
    connection.executemany(order, [(key.uuid, key.task) for key in keys])


# ----------------------------------------------------------------------
# Heartbeats: since when each agent has shown the same number


@dataclass(frozen=True, slots=True)
class SeenHeartbeat:
    """An agent's heartbeat as ticks saw it.

    Attributes:
        key: Its lease.
        beat: The number it showed.
        since_s: When it was first seen to show this number, Unix time.
    """

    key: LeaseKey
    beat: int
    since_s: float


def put_heartbeats(
    connection: sqlite3.Connection, heartbeats: Iterable[SeenHeartbeat]
) -> None:
    """Keep *heartbeats* instead of all that were kept."""
    connection.execute("DELETE FROM beats")
    rows = [
        (seen.key.uuid, seen.key.task, seen.beat, seen.since_s) for seen in heartbeats
    ]
    connection.executemany("INSERT INTO beats VALUES (?, ?, ?, ?)", rows)


def seen_heartbeats(connection: sqlite3.Connection) -> dict[LeaseKey, SeenHeartbeat]:
    """Return the heartbeats that were kept last, by lease."""
    rows = select(connection, "beats", ("uuid", "task", "beat", "since_s"))
    found = (SeenHeartbeat(LeaseKey(uuid, task), *rest) for uuid, task, *rest in rows)
    return {seen.key: seen for seen in found}


# ----------------------------------------------------------------------
# Events, counted by the caps over time, and for people who open the database


class EventKind(StrEnum):
    """A kind of event; the caps count those of churn and of starts."""

    ASKED = "asked for leases"
    GAVE_UP = "gave up leases by choice"
    YIELDED = "gave up leases to others"
    STARTED = "a lease started"
    FAILED_START = "a lease failed to start"
    ENDED = "a lease ended"
    ASSIGNED = "a trainer got a new generation"
    TRAINER_ENDED = "a trainer ended"
    DELIVERED = "a trainer's model was handed over"


@dataclass(frozen=True, slots=True)
class Event:
    """An event.

    Attributes:
        at_s: Unix time.
        subject: The trainer or the lease that it is about, by name; of a submission its
            uuid.
        leases: How many leases it is about.
        detail: For people. May hold hostile text.
    """

    at_s: float
    kind: EventKind
    subject: str
    leases: int = 0
    detail: str = ""


_EVENTS = RowTable("events", Event)


def add_events(connection: sqlite3.Connection, events: Iterable[Event]) -> None:
    """Add events."""
    names = _EVENTS.names
    connection.executemany(
        f"INSERT INTO events ({', '.join(names)}) VALUES (?, ?, ?, ?, ?)",  # noqa: S608
        [[getattr(event, name) for name in names] for event in events],
    )


def latest_events(
    connection: sqlite3.Connection,
    kinds: Sequence[EventKind],
    *,
    since_s: float,
    most: int,
) -> tuple[Event, ...]:
    """Return the last *most* events of *kinds* since *since_s*, the oldest first."""
    marks = ", ".join("?" for _ in kinds)
    order = (
        f"SELECT {', '.join(_EVENTS.names)} FROM events WHERE at_s >= ? "  # noqa: S608
        f"AND kind IN ({marks}) ORDER BY at_s DESC, number DESC LIMIT ?"
    )
    with translated():
        rows = connection.execute(order, (since_s, *kinds, most)).fetchall()
    with reading(_EVENTS.name):
        return tuple(
            Event(at_s, EventKind(kind), *rest) for at_s, kind, *rest in reversed(rows)
        )


def drop_events(connection: sqlite3.Connection, *, before_s: float) -> None:
    """Forget events that are older than *before_s*."""
    connection.execute("DELETE FROM events WHERE at_s < ?", (before_s,))


def pace(connection: sqlite3.Connection, *, since_s: float) -> Pace:
    """Return how many leases came and went lately, as the caps count them.

    Churn counts from *since_s*, Unix time; failed starts since the last start that
    worked.
    """
    churn = (since_s, EventKind.ASKED, EventKind.GAVE_UP)
    failed = (EventKind.FAILED_START, EventKind.STARTED)
    with translated():
        churned = connection.execute(
            "SELECT total(leases) FROM events WHERE at_s >= ? AND kind IN (?, ?)", churn
        ).fetchone()[0]
        count, last_s = connection.execute(
            "SELECT count(*), max(at_s) FROM events WHERE kind = ? AND number > "
            "coalesce((SELECT max(number) FROM events WHERE kind = ?), 0)",
            failed,
        ).fetchone()
    return Pace(int(churned), count, last_s or 0.0)


# ----------------------------------------------------------------------
# Sums over all ticks, for the metrics file


class TickCounter(StrEnum):
    """A sum over all ticks."""

    TICKS = "ticks"
    FAILED_TICKS = "failed ticks"
    REQUESTS = "requests"
    LEASES_ASKED = "leases asked for"
    GENERATIONS = "generations"
    IDLE_NODE_S = "idle node seconds"
    LEASED_NODE_S = "leased node seconds"
    TRAINING_NODE_S = "training node seconds"
    KEPT_PLANS = "plans kept"
    LOOKED_S = "seconds until the last look"
    GIVEN_UP = "leases given up to others"


def add_to_counters(
    connection: sqlite3.Connection, more: dict[TickCounter, float]
) -> None:
    """Add to the sums."""
    connection.executemany(
        "INSERT INTO counters (name, value) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
        list(more.items()),
    )


def counters(connection: sqlite3.Connection) -> dict[TickCounter, float]:
    """Return all sums; those that were never added to are 0."""
    found = dict(select(connection, "counters", ("name", "value")))
    return {counter: float(found.get(counter, 0.0)) for counter in TickCounter}


# ----------------------------------------------------------------------
# Models that are handed over


class DeliveryStage(StrEnum):
    """How far a delivery is; each stage is written down before the next begins."""

    REACHED = "reached"  # the target; the checkpoint is yet to be published
    PUBLISHED = "published"  # the checkpoint is there; the hook is yet to be called
    CALLING = "calling"  # the hook is about to be called, or was when a tick died
    DELIVERED = "delivered"  # all is done, however the hook ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One trainer's model, from the moment that its target was reached.

    Attributes:
        trainer: Its name.
        submitted_s: Which of its submissions; each is delivered once.
        reached_s: When the value was reported, Unix time.
        step: Steps done then; None where its program does not count them.
        value: The value that was reported.
        changed_s: When the stage last changed, Unix time.
        checkpoint: Name of the checkpoint that was published; empty for none.
        problem: What went wrong last, for people; empty for nothing. Hostile text.
    """

    trainer: str
    submitted_s: float
    stage: DeliveryStage
    reached_s: float
    step: int | None
    value: float
    changed_s: float
    checkpoint: str = ""
    problem: str = ""


_DELIVERIES = RowTable(
    "deliveries", Delivery, key=("trainer",), enums={"stage": DeliveryStage}
)


def put_delivery(connection: sqlite3.Connection, delivery: Delivery) -> None:
    """Insert or change *delivery*."""
    _DELIVERIES.put(connection, [delivery])


def deliveries(connection: sqlite3.Connection) -> dict[tuple[str, float], Delivery]:
    """Return all deliveries, by trainer and submission."""
    found = _DELIVERIES.read(connection)
    return {(delivery.trainer, delivery.submitted_s): delivery for delivery in found}


# ----------------------------------------------------------------------
# Histories of trainers: their reports, kept short, and how far they were read

MOST_OTHERS = 50
"""How many of the latest trainers say how a new one may scale."""

LATEST = "SELECT trainer FROM pasts ORDER BY submitted_s DESC LIMIT ?"
"""Names those."""

_LIVE = "SELECT name FROM trainers WHERE state IN (?, ?) OR changed_s >= ?"
_ENDED_LONG_AGO = f"trainer NOT IN ({_LIVE})"


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """Progress and speed of a trainer that outlive a tick. Its parts are JSON values.

    Attributes:
        trainer: Its name.
        submitted_s: Which of its submissions it belongs to.
        bookmark: How far its progress was read (``progress.Bookmark``).
        history: Its reports (``tick.trainers``).
        scaling: Its measured speeds (``scaling``).
    """

    trainer: str
    submitted_s: float
    bookmark: Mapping[str, Any]
    history: Mapping[str, Any]
    scaling: Mapping[str, Any]


_HISTORY_COLUMNS = ("trainer", "submitted_s", "bookmark", "past", "scaling")


def put_histories(connection: sqlite3.Connection, rows: Iterable[HistoryRow]) -> None:
    """Insert or change histories of trainers."""
    values = [
        [
            row.trainer,
            row.submitted_s,
            *map(_json, (row.bookmark, row.history, row.scaling)),
        ]
        for row in rows
    ]
    put(connection, "pasts", _HISTORY_COLUMNS, key=("trainer",), rows=values)


def history_of(
    connection: sqlite3.Connection, trainer: str, *, submitted_s: float
) -> HistoryRow | None:
    """Return the history of a submission of *trainer*; None for none."""
    where, values = "WHERE trainer = ? AND submitted_s = ?", (trainer, submitted_s)
    rows = select(connection, "pasts", _HISTORY_COLUMNS, where=where, values=values)
    if not rows:
        return None
    trainer, submitted_s, *texts = rows[0]
    return HistoryRow(trainer, submitted_s, *map(_learned, texts))


def latest_scalings(connection: sqlite3.Connection) -> tuple[Mapping[str, Any], ...]:
    """Return the measured speeds of the trainers that were submitted last."""
    where = f"WHERE trainer IN ({LATEST})"
    rows = select(connection, "pasts", ("scaling",), where=where, values=(MOST_OTHERS,))
    return tuple(_learned(text) for (text,) in rows)


def has_old_histories(connection: sqlite3.Connection, *, before_s: float) -> bool:
    """Tell whether there is anything for ``forget_histories``."""
    with translated():
        return any(
            connection.execute(
                f"SELECT 1 FROM {table} WHERE {which} LIMIT 1",  # noqa: S608 - ours
                values,
            ).fetchone()
            for table, which, values in _old_histories(before_s)
        )


def forget_histories(connection: sqlite3.Connection, *, before_s: float) -> None:
    """Forget histories and loss forecasts of trainers that ended before *before_s*.

    The latest of all keep their histories, however old: new trainers are expected
    to scale alike.
    """
    for table, which, values in _old_histories(before_s):
        connection.execute(f"DELETE FROM {table} WHERE {which}", values)  # noqa: S608 - ours


def _old_histories(before_s: float) -> tuple[tuple[str, str, tuple[object, ...]], ...]:
    """Return table, condition and values of rows that are not used any more."""
    live = (TrainerState.WANTED, TrainerState.PAUSED, before_s)
    old = f"{_ENDED_LONG_AGO} AND trainer NOT IN ({LATEST})"
    return (
        ("outlooks", _ENDED_LONG_AGO, live),
        ("pasts", old, (*live, MOST_OTHERS)),
    )


# ----------------------------------------------------------------------
# Forecasts of trainers' losses, until they report something new


@dataclass(frozen=True, slots=True)
class LossForecastRow:
    """The forecast of a trainer's loss.

    Attributes:
        fitted_to: Identifies the points it was fitted to (``losscurve.recorded``).
        forecast: The forecast, as JSON has it.
    """

    trainer: str
    fitted_to: str
    forecast: Mapping[str, Any]


def put_loss_forecasts(
    connection: sqlite3.Connection, rows: Iterable[LossForecastRow]
) -> None:
    """Keep forecasts instead of earlier ones."""
    names = ("trainer", "told", "outlook")
    values = [(row.trainer, row.fitted_to, _json(row.forecast)) for row in rows]
    put(connection, "outlooks", names, key=("trainer",), rows=values)


def loss_forecast_of(
    connection: sqlite3.Connection, trainer: str, *, fitted_to: str | None
) -> Mapping[str, Any] | None:
    """Return the forecast kept for *trainer*, if it was fitted to these points.

    With None for *fitted_to* whatever it was fitted to.
    """
    where, values = (
        "WHERE trainer = ? AND told = coalesce(?, told)",
        (trainer, fitted_to),
    )
    rows = select(connection, "outlooks", ("outlook",), where=where, values=values)
    kept: dict[str, Any] | None = _learned(rows[0][0]) if rows else None
    return kept


# ----------------------------------------------------------------------
# The memory of the priority until the next tick


def put_priority_memory(
    connection: sqlite3.Connection, priority: str, memory: Mapping[str, object]
) -> None:
    """Keep *memory* instead of the last."""
    columns = {"priority": priority, "memory": _json(memory)}
    _put_last(connection, "memory", columns)


def priority_memory_of(
    connection: sqlite3.Connection, priority: str
) -> Mapping[str, Any]:
    """Return the memory of *priority*; empty if the last tick had another one."""
    where, values = "WHERE priority = ?", (priority,)
    rows = select(connection, "memory", ("memory",), where=where, values=values)
    kept: dict[str, Any] = _learned(rows[0][0]) if rows else {}
    return kept


# ----------------------------------------------------------------------
# Backfill's plans as last seen, for polls that a backfill cycle tore


@dataclass(frozen=True, slots=True)
class SeenBackfillPlans:
    """Backfill's plans as earlier polls showed them.

    Attributes:
        plans: ``plans_of`` the last poll.
        whole_s: When the last poll that was not torn was taken, Unix time; None
            for never.
    """

    plans: BackfillPlans = BackfillPlans()  # noqa: RUF009 - frozen
    whole_s: float | None = None


def put_backfill_plans(connection: sqlite3.Connection, seen: SeenBackfillPlans) -> None:
    """Keep *seen* instead of the last."""
    columns = {"whole_s": seen.whole_s, "plans": _json(asdict(seen.plans))}
    _put_last(connection, "plans", columns)


def seen_backfill_plans(connection: sqlite3.Connection) -> SeenBackfillPlans:
    """Return the plans that were kept last; none in a new state."""
    kept = _last(connection, "plans", ("whole_s", "plans"), _seen_plans)
    return kept or SeenBackfillPlans()


def _seen_plans(whole_s: float | None, kept: Any) -> SeenBackfillPlans:  # noqa: ANN401 - JSON
    plans = BackfillPlans(
        starts=tuple(PlannedStart(**start) for start in kept["starts"]),
        hidden=tuple(HiddenPlan(**plan) for plan in kept["hidden"]),
    )
    return SeenBackfillPlans(plans, whole_s)


# ----------------------------------------------------------------------
# Other users' leases that jobs wait for, and which brokers answer


_OWNER_COLUMNS = ("uid", *(field.name for field in fields(SeenOwner)))


def put_call_memory(connection: sqlite3.Connection, memory: CallMemory) -> None:
    """Keep *memory* instead of the last."""
    connection.execute("DELETE FROM calls")
    connection.execute("DELETE FROM owners")
    calls = list(memory.called_s.items())
    connection.executemany("INSERT INTO calls VALUES (?, ?)", calls)
    owners = [(uid, *astuple(seen)) for uid, seen in memory.owners.items()]
    put(connection, "owners", _OWNER_COLUMNS, key=("uid",), rows=owners)


def call_memory(connection: sqlite3.Connection) -> CallMemory:
    """Return the memory that was kept last; an empty one in a new state."""
    calls = select(connection, "calls", ("job_id", "called_s"))
    owners = select(connection, "owners", _OWNER_COLUMNS)
    return CallMemory(
        called_s=dict(calls),
        owners={uid: SeenOwner(*rest) for uid, *rest in owners},
    )


# ----------------------------------------------------------------------
# Limits of accounts, QOS and users: jobs that they blocked lately, and what was learned


def put_limit_memory(connection: sqlite3.Connection, memory: LimitMemory) -> None:
    """Keep *memory* instead of the last."""
    columns = {
        "held_s": _json({str(job): at_s for job, at_s in memory.blocked_s.items()}),
        "most_leases": memory.most_leases,
        "learned_s": memory.learned_s,
    }
    _put_last(connection, "limit_memory", columns)


def limit_memory(connection: sqlite3.Connection) -> LimitMemory:
    """Return the memory that was kept last; nothing remembered in a new state."""
    names = ("held_s", "most_leases", "learned_s")
    rows = select(connection, "limit_memory", names)
    if not rows:
        return NOTHING_REMEMBERED
    blocked, most_leases, learned_s = rows[0]
    blocked_s = {int(job): at_s for job, at_s in json.loads(blocked).items()}
    return LimitMemory(blocked_s, most_leases, learned_s)


@dataclass(frozen=True, slots=True)
class KnownLimits:
    """Limits as Slurm's accounting showed them last.

    Attributes:
        limits: What it showed.
        read_s: When it was asked, Unix time; 0 for never.
    """

    limits: AccountingLimits = UNKNOWN_LIMITS
    read_s: float = 0.0


def put_known_limits(connection: sqlite3.Connection, known: KnownLimits) -> None:
    """Keep *known* instead of the last."""
    columns = {"read_s": known.read_s, "limits": _json(asdict(known.limits))}
    _put_last(connection, "known_limits", columns)


def known_limits(connection: sqlite3.Connection) -> KnownLimits:
    """Return the limits that were kept last; none in a new state."""
    kept = _last(connection, "known_limits", ("read_s", "limits"), _limits)
    return kept or KnownLimits()


def _limits(read_s: float, kept: Any) -> KnownLimits:  # noqa: ANN401 - JSON
    limits = AccountingLimits(
        associations=tuple(Association(**each) for each in kept["associations"]),
        qos=tuple(Qos(**each) for each in kept["qos"]),
    )
    return KnownLimits(limits, read_s)


# ----------------------------------------------------------------------
# Jobs that Slurm should preempt leases for


def put_awaited_preemptions(
    connection: sqlite3.Connection, awaited: Mapping[int, AwaitedPreemption]
) -> None:
    """Keep *awaited* instead of the last."""
    connection.execute("DELETE FROM awaited_preemptions")
    rows = [(job, seen.since_s, seen.given_s) for job, seen in awaited.items()]
    connection.executemany("INSERT INTO awaited_preemptions VALUES (?, ?, ?)", rows)


def awaited_preemptions(
    connection: sqlite3.Connection,
) -> dict[int, AwaitedPreemption]:
    """Return those that were kept last, by the number of the job."""
    names = ("job_id", "since_s", "given_s")
    rows = select(connection, "awaited_preemptions", names)
    return {job: AwaitedPreemption(*rest) for job, *rest in rows}


# ----------------------------------------------------------------------
# The node forecast: the state of the forecaster, and nodes that departed together


def forecast_state(connection: sqlite3.Connection) -> str | None:
    """Return the forecaster's state as it was put; None for nothing."""
    rows = select(connection, "forecast", ("state",))
    return str(rows[0][0]) if rows else None


def put_forecast(connection: sqlite3.Connection, state: str) -> None:
    """Keep *state* instead of the last."""
    put(connection, "forecast", ("one", "state"), key=("one",), rows=[(1, state)])


def node_names(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Return the names of nodes, in order of the bits that departures have for them."""
    return tuple(name for (name,) in select(connection, "forecast_nodes", ("name",)))


def add_node_names(
    connection: sqlite3.Connection, names: Sequence[str], *, known: int
) -> None:
    """Add those of *names* that come after the first *known*."""
    rows = list(enumerate(names))[known:]
    put(connection, "forecast_nodes", ("number", "name"), key=("number",), rows=rows)


def departures(connection: sqlite3.Connection) -> tuple[Departure, ...]:
    """Return the departures that are kept, the oldest first."""
    rows = select(connection, "departures", ("gone", "idle"))
    return tuple(Departure(bytes(gone), bytes(idle)) for gone, idle in rows)


def add_departures(
    connection: sqlite3.Connection, fresh: Iterable[Departure], *, keep: int
) -> None:
    """Add departures and drop all but the last *keep*."""
    rows = [(departure.left, departure.idle) for departure in fresh]
    if not rows:
        return
    add = "INSERT INTO departures (gone, idle) VALUES (?, ?)"
    connection.executemany(add, rows)
    drop = "DELETE FROM departures WHERE number <= (SELECT max(number) FROM departures)"
    connection.execute(f"{drop} - ?", (keep,))


def forget_forecasts(connection: sqlite3.Connection) -> None:
    """Drop the forecaster's state and the departures."""
    for table in ("forecast", "forecast_nodes", "departures"):
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - ours


# ----------------------------------------------------------------------
# Forecasts of leases, and how the leases ended


@dataclass(frozen=True, slots=True)
class LeaseForecast:
    """The forecast for a lease's node, made when the lease was seen to run.

    Attributes:
        uuid: The lease's submission; ``task`` its task.
        at_s: When it was first seen to run, Unix time.
        horizon_s: How far the departure probability reaches, seconds.
        departure_probability: That the node leaves within the horizon.
        median_s: The node stays so long with a probability of a half or more.
        promised_s: When a job was planned to start on the node, Unix time; None
            for never.
        ended_s: When the lease was seen to be over, Unix time; None until then.
        outcome: How it ended; empty until then.
    """

    uuid: str
    task: int
    node: str
    at_s: float
    horizon_s: float
    departure_probability: float
    median_s: float
    promised_s: float | None = None
    ended_s: float | None = None
    outcome: str = ""


_LEASE_FORECASTS = RowTable(
    "foreseen",
    LeaseForecast,
    key=("uuid", "task"),
    columns={
        "departure_probability": "leaves",
        "median_s": "even_s",
        "outcome": "came",
    },
)


def put_lease_forecasts(
    connection: sqlite3.Connection, rows: Iterable[LeaseForecast]
) -> None:
    """Insert or change forecasts of leases."""
    _LEASE_FORECASTS.put(connection, rows)


def pending_lease_forecasts(
    connection: sqlite3.Connection,
) -> tuple[LeaseForecast, ...]:
    """Return forecasts of leases that were not seen to be over."""
    return _LEASE_FORECASTS.read(connection, where="WHERE ended_s IS NULL")


def ended_lease_forecasts(
    connection: sqlite3.Connection, *, most: int
) -> tuple[LeaseForecast, ...]:
    """Return forecasts of the *most* leases that ended last, newest first."""
    last = "SELECT rowid FROM foreseen WHERE ended_s IS NOT NULL"
    where = f"WHERE rowid IN ({last} ORDER BY ended_s DESC, rowid LIMIT ?)"
    found = _LEASE_FORECASTS.read(connection, where=where, values=(most,))
    return tuple(sorted(found, key=lambda forecast: -(forecast.ended_s or 0.0)))


def drop_lease_forecasts(connection: sqlite3.Connection, *, before_s: float) -> None:
    """Forget leases that were seen before *before_s*."""
    with translated():
        connection.execute("DELETE FROM foreseen WHERE at_s < ?", (before_s,))
