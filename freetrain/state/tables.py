"""Typed records to rows and back, for tables whose columns are a record's fields."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from freetrain.broker.lease import (
    Intent,
    IntentOutcome,
    Lease,
    LeaseEnd,
    LeaseKey,
    LeaseState,
)
from freetrain.broker.limits import Pace
from freetrain.lookahead.base import Departure
from freetrain.state.database import translated
from slurm.snapshot import HiddenPlan, PlannedStart, Plans

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence
    from dataclasses import Field


# ----------------------------------------------------------------------
# Typed records to rows and back, for tables whose columns are a record's fields.


class Record(Protocol):
    """A dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


def columns(record: type[Record], *, without: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the names of the fields of *record*, in order."""
    return tuple(f.name for f in fields(record) if f.name not in without)


def select(
    connection: sqlite3.Connection,
    table: str,
    names: Sequence[str],
    *,
    where: str = "",
    values: Sequence[object] = (),
) -> list[tuple[Any, ...]]:
    """Return rows of *table* in the order they came in; ``where`` is ours, never input.

    Raises:
        StoreError: They could not be read.
    """
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


# ----------------------------------------------------------------------
# Heartbeats as ticks saw them: since when each agent tells the same number.


@dataclass(frozen=True, slots=True)
class SeenBeat:
    """What was last seen of an agent's heartbeat.

    Attributes:
        key: Its lease.
        beat: The number it told.
        since_s: When it was first seen telling it, Unix time.
    """

    key: LeaseKey
    beat: int
    since_s: float


def put_beats(connection: sqlite3.Connection, beats: Iterable[SeenBeat]) -> None:
    """Keep *beats* instead of all that were kept, in the caller's transaction."""
    connection.execute("DELETE FROM beats")
    rows = [(one.key.uuid, one.key.task, one.beat, one.since_s) for one in beats]
    connection.executemany("INSERT INTO beats VALUES (?, ?, ?, ?)", rows)


def seen_beats(connection: sqlite3.Connection) -> dict[LeaseKey, SeenBeat]:
    """Return what was kept last, by lease.

    Raises:
        StoreError: They could not be read.
    """
    rows = select(connection, "beats", ("uuid", "task", "beat", "since_s"))
    seen = (SeenBeat(LeaseKey(uuid, task), *rest) for uuid, task, *rest in rows)
    return {one.key: one for one in seen}


# ----------------------------------------------------------------------
# Sums over all ticks, for the metrics file.


class Counter(StrEnum):
    """What is summed up."""

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


def add_to_counters(connection: sqlite3.Connection, more: dict[Counter, float]) -> None:
    """Add to the sums, inside the caller's transaction."""
    connection.executemany(
        "INSERT INTO counters (name, value) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
        list(more.items()),
    )


def counters(connection: sqlite3.Connection) -> dict[Counter, float]:
    """Return all sums; those that nobody added to are 0.

    Raises:
        StoreError: They could not be read.
    """
    found = dict(select(connection, "counters", ("name", "value")))
    return {one: float(found.get(one, 0.0)) for one in Counter}


# ----------------------------------------------------------------------
# Models that are handed over: written down before anything is done about them.


class Stage(StrEnum):
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
        stage: How far it is.
        reached_s: When the value was told, Unix time.
        step: Steps done then; None where its program does not count them.
        value: The value that was told.
        changed_s: When the stage last changed, Unix time.
        checkpoint: Name of the checkpoint that was published; empty for none.
        problem: What went wrong last, for people; empty for nothing. Hostile text.
    """

    trainer: str
    submitted_s: float
    stage: Stage
    reached_s: float
    step: int | None
    value: float
    changed_s: float
    checkpoint: str = ""
    problem: str = ""


_COLUMNS_deliveries = columns(Delivery)


def put_delivery(connection: sqlite3.Connection, delivery: Delivery) -> None:
    """Insert or change *delivery*, inside the caller's transaction."""
    row = [getattr(delivery, name) for name in _COLUMNS_deliveries]
    put(connection, "deliveries", _COLUMNS_deliveries, key=("trainer",), rows=[row])


def deliveries(connection: sqlite3.Connection) -> dict[tuple[str, float], Delivery]:
    """Return all deliveries, by trainer and submission.

    Raises:
        StoreError: They could not be read.
    """
    rows = select(connection, "deliveries", _COLUMNS_deliveries)
    read = (
        Delivery(**dict(zip(_COLUMNS_deliveries, row, strict=True))) for row in rows
    )
    found = (replace(one, stage=Stage(one.stage)) for one in read)
    return {(one.trainer, one.submitted_s): one for one in found}


# ----------------------------------------------------------------------
# What happened, for the caps over time and for whoever opens the store.


class EventKind(StrEnum):
    """What happened; those of churn and of starts are counted by the caps."""

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
    """Something that happened.

    Attributes:
        at_s: When, Unix time.
        kind: What.
        subject: The trainer, lease or hole it happened to.
        leases: How many leases it was about.
        detail: More, for people. May hold hostile text.
    """

    at_s: float
    kind: EventKind
    subject: str
    leases: int = 0
    detail: str = ""


_COLUMNS_events = columns(Event)


def add_events(connection: sqlite3.Connection, events: Iterable[Event]) -> None:
    """Add events, inside the caller's transaction."""
    connection.executemany(
        f"INSERT INTO events ({', '.join(_COLUMNS_events)}) VALUES (?, ?, ?, ?, ?)",  # noqa: S608
        [[getattr(event, name) for name in _COLUMNS_events] for event in events],
    )


def drop_events(connection: sqlite3.Connection, *, before_s: float) -> None:
    """Forget what is older than *before_s*, inside the caller's transaction."""
    connection.execute("DELETE FROM events WHERE at_s < ?", (before_s,))


def pace(connection: sqlite3.Connection, *, since_s: float) -> Pace:
    """Return what happened lately, as the caps count it.

    Args:
        connection: The state.
        since_s: Churn counts from then on, Unix time; failed starts since the last
            start that worked.

    Raises:
        StoreError: It could not be read.
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
# What was learned of nodes, and what was expected of leases, from tick to tick.


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What was expected of a lease's node when it was seen to run, and what came.

    Attributes:
        uuid: The lease's submission.
        task: Its task.
        node: Its node.
        at_s: When it was seen to run first, Unix time.
        horizon_s: How far ``leaves`` reaches, seconds.
        leaves: Probability that the node leaves within the horizon.
        even_s: It stays so long with a probability of a half or more.
        promised_s: When it was promised to somebody, Unix time; None for never.
        ended_s: When it was over, as far as looks tell, Unix time; None until then.
        came: How it ended; empty until then.
    """

    uuid: str
    task: int
    node: str
    at_s: float
    horizon_s: float
    leaves: float
    even_s: float
    promised_s: float | None = None
    ended_s: float | None = None
    came: str = ""


def forecast_state(connection: sqlite3.Connection) -> str | None:
    """Return what was kept last, as it was put; None for nothing.

    Raises:
        StoreError: It could not be read.
    """
    rows = select(connection, "forecast", ("state",))
    return str(rows[0][0]) if rows else None


def node_names(connection: sqlite3.Connection) -> tuple[str, ...]:
    """Return the names of nodes by number.

    Raises:
        StoreError: They could not be read.
    """
    return tuple(name for (name,) in select(connection, "forecast_nodes", ("name",)))


def departures(connection: sqlite3.Connection) -> tuple[Departure, ...]:
    """Return the departures that are kept, the oldest first.

    Raises:
        StoreError: They could not be read.
    """
    rows = select(connection, "departures", ("gone", "idle"))
    return tuple(Departure(bytes(gone), bytes(idle)) for gone, idle in rows)


def put_forecast(connection: sqlite3.Connection, state: str) -> None:
    """Keep *state* instead of what was kept, inside the caller's transaction."""
    put(connection, "forecast", ("one", "state"), key=("one",), rows=[(1, state)])


def add_node_names(
    connection: sqlite3.Connection, names: Sequence[str], *, known: int
) -> None:
    """Add what comes after the first *known* of *names*, inside a transaction."""
    rows = list(enumerate(names))[known:]
    put(connection, "forecast_nodes", ("number", "name"), key=("number",), rows=rows)


def add_departures(
    connection: sqlite3.Connection, fresh: Iterable[Departure], *, keep: int
) -> None:
    """Add departures and drop all but the last *keep*, inside a transaction."""
    rows = [(one.left, one.idle) for one in fresh]
    if not rows:
        return
    add = "INSERT INTO departures (gone, idle) VALUES (?, ?)"
    connection.executemany(add, rows)
    drop = "DELETE FROM departures WHERE number <= (SELECT max(number) FROM departures)"
    connection.execute(f"{drop} - ?", (keep,))


def forget_forecasts(connection: sqlite3.Connection) -> None:
    """Drop all that was learned of nodes, inside the caller's transaction."""
    for table in ("forecast", "forecast_nodes", "departures"):
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - ours


_COLUMNS_forecasts = columns(Foreseen)


def put_foreseen(connection: sqlite3.Connection, rows: Iterable[Foreseen]) -> None:
    """Insert or change what was expected of leases, inside a transaction."""
    values = [[getattr(row, field.name) for field in fields(row)] for row in rows]
    put(connection, "foreseen", _COLUMNS_forecasts, key=("uuid", "task"), rows=values)


def foreseen_running(connection: sqlite3.Connection) -> tuple[Foreseen, ...]:
    """Return what was expected of leases that were not seen to be over.

    Raises:
        StoreError: It could not be read.
    """
    rows = select(
        connection, "foreseen", _COLUMNS_forecasts, where="WHERE ended_s IS NULL"
    )
    return tuple(Foreseen(*row) for row in rows)


def foreseen_ended(
    connection: sqlite3.Connection, *, most: int
) -> tuple[Foreseen, ...]:
    """Return what was expected of the *most* leases that ended last, newest first.

    Raises:
        StoreError: It could not be read.
    """
    last = "SELECT rowid FROM foreseen WHERE ended_s IS NOT NULL"
    where = f"WHERE rowid IN ({last} ORDER BY ended_s DESC, rowid LIMIT ?)"
    rows = select(
        connection, "foreseen", _COLUMNS_forecasts, where=where, values=(most,)
    )
    found = [Foreseen(*row) for row in rows]
    return tuple(sorted(found, key=lambda one: -(one.ended_s or 0.0)))


def drop_foreseen(connection: sqlite3.Connection, *, before_s: float) -> None:
    """Forget leases that were seen before *before_s*, inside a transaction."""
    with translated():
        connection.execute("DELETE FROM foreseen WHERE at_s < ?", (before_s,))


# ----------------------------------------------------------------------
# Intents to submit; committed before sbatch is called.

_COLUMNS_intents = columns(Intent)


def put_intents(connection: sqlite3.Connection, intents: Iterable[Intent]) -> None:
    """Insert or change intents, inside the caller's transaction."""
    rows = [[getattr(intent, name) for name in _COLUMNS_intents] for intent in intents]
    put(connection, "intents", _COLUMNS_intents, key=("uuid",), rows=rows)


def intents(
    connection: sqlite3.Connection, *, ending_after_s: float
) -> tuple[Intent, ...]:
    """Return the intents that may still have jobs, the oldest first.

    Args:
        connection: The state.
        ending_after_s: Only those whose deadline is later, or of which a lease is
            still there: all others' jobs Slurm has removed. Unix time.

    Raises:
        StoreError: They could not be read.
    """
    where = (
        "WHERE deadline_s > ? "
        "OR uuid IN (SELECT uuid FROM leases WHERE leases.state != ?)"
    )
    values = (ending_after_s, LeaseState.GONE)
    rows = select(connection, "intents", _COLUMNS_intents, where=where, values=values)
    read = (Intent(**dict(zip(_COLUMNS_intents, row, strict=True))) for row in rows)
    return tuple(replace(one, outcome=IntentOutcome(one.outcome)) for one in read)


# ----------------------------------------------------------------------
# Leases: what is believed of them.

_FIELDS = columns(Lease, without=("key",))
_COLUMNS_leases = ("uuid", "task", *_FIELDS)


def put_leases(connection: sqlite3.Connection, leases: Iterable[Lease]) -> None:
    """Insert or change leases of stored intents, inside the caller's transaction."""
    rows = [
        [lease.key.uuid, lease.key.task, *(getattr(lease, name) for name in _FIELDS)]
        for lease in leases
    ]
    put(connection, "leases", _COLUMNS_leases, key=("uuid", "task"), rows=rows)


def leases(
    connection: sqlite3.Connection, *, ending_after_s: float
) -> tuple[Lease, ...]:
    """Return live leases, and gone ones that may turn out alive, the oldest first.

    Args:
        connection: The state.
        ending_after_s: Gone ones only if their deadline is later. Unix time.

    Raises:
        StoreError: They could not be read.
    """
    where = "WHERE state != ? OR deadline_s > ?"
    values = (LeaseState.GONE, ending_after_s)
    rows = select(connection, "leases", _COLUMNS_leases, where=where, values=values)
    return tuple(_lease(dict(zip(_COLUMNS_leases, row, strict=True))) for row in rows)


def _lease(row: dict[str, Any]) -> Lease:
    key = LeaseKey(row.pop("uuid"), row.pop("task"))
    state, ended = LeaseState(row.pop("state")), row.pop("ended")
    end = None if ended is None else LeaseEnd(ended)
    return Lease(key=key, state=state, ended=end, **row)


# ----------------------------------------------------------------------
# What the priority told itself to remember until the next tick.


def put_memory(
    connection: sqlite3.Connection, priority: str, memory: Mapping[str, object]
) -> None:
    """Keep *memory* instead of what was kept, inside the caller's transaction."""
    names = ("one", "priority", "memory")
    row = (1, priority, json.dumps(dict(memory), separators=(",", ":")))
    put(connection, "memory", names, key=("one",), rows=[row])


def memory_of(connection: sqlite3.Connection, priority: str) -> Mapping[str, Any]:
    """Return what *priority* is to be told; nothing where another one was at work.

    Raises:
        StoreError: It could not be read.
    """
    rows = select(
        connection,
        "memory",
        ("memory",),
        where="WHERE priority = ?",
        values=(priority,),
    )
    kept: dict[str, Any] = json.loads(rows[0][0]) if rows else {}
    return kept


# ----------------------------------------------------------------------
# What trainers told so far, kept short, and how far it was read.

_COLUMNS_pasts = ("trainer", "submitted_s", "bookmark", "past", "scaling")
MOST_OTHERS = 50
"""Trainers whose scaling tells what to expect of a new one: the latest."""


LATEST = "SELECT trainer FROM pasts ORDER BY submitted_s DESC LIMIT ?"
"""Names those."""


@dataclass(frozen=True, slots=True)
class PastRow:
    """What is kept of a trainer. Its parts are as JSON has them.

    Attributes:
        trainer: Its name.
        submitted_s: Which of its submissions it belongs to.
        bookmark: How far was read (``progress.bookmark``).
        past: What was told (``tick.past``).
        scaling: What it showed of its speed (``scaling.state``).
    """

    trainer: str
    submitted_s: float
    bookmark: Mapping[str, Any]
    past: Mapping[str, Any]
    scaling: Mapping[str, Any]


def put_pasts(connection: sqlite3.Connection, rows: Iterable[PastRow]) -> None:
    """Insert or change what is kept of trainers, inside the caller's transaction."""
    values = [
        [
            row.trainer,
            row.submitted_s,
            *map(_text, (row.bookmark, row.past, row.scaling)),
        ]
        for row in rows
    ]
    put(connection, "pasts", _COLUMNS_pasts, key=("trainer",), rows=values)


def past_of(
    connection: sqlite3.Connection, trainer: str, *, submitted_s: float
) -> PastRow | None:
    """Return what is kept of a submission of *trainer*; None for nothing.

    Raises:
        StoreError: It could not be read.
    """
    where = "WHERE trainer = ? AND submitted_s = ?"
    rows = select(
        connection, "pasts", _COLUMNS_pasts, where=where, values=(trainer, submitted_s)
    )
    return _row(rows[0]) if rows else None


def latest_scalings(connection: sqlite3.Connection) -> tuple[Mapping[str, Any], ...]:
    """Return what the trainers submitted last showed of their speed.

    Raises:
        StoreError: It could not be read.
    """
    where = f"WHERE trainer IN ({LATEST})"
    rows = select(connection, "pasts", ("scaling",), where=where, values=(MOST_OTHERS,))
    return tuple(json.loads(text) for (text,) in rows)


def _row(row: tuple[Any, ...]) -> PastRow:
    trainer, submitted_s, *texts = row
    return PastRow(trainer, submitted_s, *map(json.loads, texts))


def _text(part: Mapping[str, Any]) -> str:
    return json.dumps(part, separators=(",", ":"))


# ----------------------------------------------------------------------
# Trainers that users submitted.


class TrainerState(StrEnum):
    """What is to become of a trainer, or became of it."""

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
        state: What is to become of it.
        submitted_s: When it was submitted, Unix time.
        changed_s: When its state last changed, Unix time.
        message: Why it is in this state, for people. Hostile text.
        told_generation: Up to which generation events tell of its rescales.
    """

    name: str
    job: str
    run_dir: str
    state: TrainerState
    submitted_s: float
    changed_s: float
    message: str = ""
    told_generation: int = 0


_COLUMNS_trainers = columns(TrainerRow)


def put_trainers(connection: sqlite3.Connection, rows: Iterable[TrainerRow]) -> None:
    """Insert or change trainers, inside the caller's transaction."""
    values = [[getattr(row, name) for name in _COLUMNS_trainers] for row in rows]
    put(connection, "trainers", _COLUMNS_trainers, key=("name",), rows=values)


def end_trainer(
    connection: sqlite3.Connection,
    name: str,
    state: TrainerState,
    *,
    message: str,
    now_s: float,
) -> bool:
    """Write down how a trainer that was wanted ended, in the caller's transaction.

    Returns:
        Whether it was wanted still; its user may have been first.
    """
    done = connection.execute(
        "UPDATE trainers SET state = ?, message = ?, changed_s = ? "
        "WHERE name = ? AND state = ?",
        (state, message, now_s, name, TrainerState.WANTED),
    )
    return done.rowcount == 1


def remove_trainer(connection: sqlite3.Connection, name: str) -> None:
    """Forget a trainer; one of its name that comes then is the youngest of all."""
    connection.execute("DELETE FROM trainers WHERE name = ?", (name,))


def put_told_generation(
    connection: sqlite3.Connection, name: str, generation: int
) -> None:
    """Write down up to where events tell of rescales, likewise."""
    connection.execute(
        "UPDATE trainers SET told_generation = ? WHERE name = ?", (generation, name)
    )


def trainers(connection: sqlite3.Connection) -> tuple[TrainerRow, ...]:
    """Return all trainers, in order of submission.

    Raises:
        StoreError: They could not be read.
    """
    rows = (
        TrainerRow(*row) for row in select(connection, "trainers", _COLUMNS_trainers)
    )
    return tuple(replace(row, state=TrainerState(row.state)) for row in rows)


# ----------------------------------------------------------------------
# Submissions, leases and trainers that are long over: found, and forgotten.


@dataclass(frozen=True, slots=True)
class OldLease:
    """A lease of which nobody will hear again.

    Attributes:
        key: Its identity.
        job_id: Raw number of its job; None where it never had one of its own.
    """

    key: LeaseKey
    job_id: int | None


def old_leases(
    connection: sqlite3.Connection, *, before_s: float, most: int
) -> tuple[OldLease, ...]:
    """Return leases that are gone and whose deadline is past, the oldest first.

    Args:
        connection: The state.
        before_s: When their deadlines must have been, Unix time.
        most: No more than these.

    Raises:
        StoreError: They could not be read.
    """
    order = (
        "SELECT uuid, task, job_id FROM leases WHERE state = ? AND deadline_s < ? "
        "ORDER BY deadline_s LIMIT ?"
    )
    with translated():
        rows = connection.execute(order, (LeaseState.GONE, before_s, most)).fetchall()
    return tuple(OldLease(LeaseKey(uuid, task), job_id) for uuid, task, job_id in rows)


def has_old_intents(connection: sqlite3.Connection, *, before_s: float) -> bool:
    """Tell whether there are submissions to forget.

    Raises:
        StoreError: They could not be read.
    """
    with translated():
        order = f"SELECT 1 FROM intents WHERE {_IS_OVER} LIMIT 1"  # noqa: S608 - ours
        return connection.execute(order, (before_s,)).fetchone() is not None


def forget_leases(connection: sqlite3.Connection, keys: Iterable[LeaseKey]) -> None:
    """Forget leases, inside the caller's transaction."""
    order = "DELETE FROM leases WHERE uuid = ? AND task = ?"
    connection.executemany(order, [(key.uuid, key.task) for key in keys])


def forget_intents(connection: sqlite3.Connection, *, before_s: float) -> None:
    """Forget submissions whose deadline was earlier and that have no lease any more.

    Inside the caller's transaction.
    """
    connection.execute(f"DELETE FROM intents WHERE {_IS_OVER}", (before_s,))  # noqa: S608 - ours


def has_old_pasts(connection: sqlite3.Connection, *, before_s: float) -> bool:
    """Tell whether there is anything for ``forget_pasts``.

    Raises:
        StoreError: It could not be read.
    """
    with translated():
        return any(
            connection.execute(
                f"SELECT 1 FROM {table} WHERE {which} LIMIT 1",  # noqa: S608 - ours
                values,
            ).fetchone()
            for table, which, values in _old_pasts(before_s)
        )


def forget_pasts(connection: sqlite3.Connection, *, before_s: float) -> None:
    """Forget what trainers told that ended before *before_s*, and what was made of it.

    What the latest of all showed of their speed says what to expect of new ones; these
    keep their pasts, however old. Inside the caller's transaction.
    """
    for table, which, values in _old_pasts(before_s):
        connection.execute(f"DELETE FROM {table} WHERE {which}", values)  # noqa: S608 - ours


def _old_pasts(before_s: float) -> tuple[tuple[str, str, tuple[object, ...]], ...]:
    """Return table, condition and values of rows that nobody uses any more."""
    live = (TrainerState.WANTED, TrainerState.PAUSED, before_s)
    return (
        ("outlooks", _OF_NOBODY, live),
        ("pasts", f"{_OF_NOBODY} AND trainer NOT IN ({LATEST})", (*live, MOST_OTHERS)),
    )


_IS_OVER = "deadline_s < ? AND uuid NOT IN (SELECT uuid FROM leases)"
_LIVE = "SELECT name FROM trainers WHERE state IN (?, ?) OR changed_s >= ?"
_OF_NOBODY = f"trainer NOT IN ({_LIVE})"

# ----------------------------------------------------------------------
# What was fitted to trainers' losses, until they tell something new.


@dataclass(frozen=True, slots=True)
class OutlookRow:
    """What is kept of a trainer's outlook.

    Attributes:
        trainer: Its name.
        told: What says which points it was fitted to (``quality.kept``).
        outlook: The outlook, as JSON has it.
    """

    trainer: str
    told: str
    outlook: Mapping[str, Any]


def put_outlooks(connection: sqlite3.Connection, rows: Iterable[OutlookRow]) -> None:
    """Keep outlooks instead of earlier ones, inside the caller's transaction."""
    names = ("trainer", "told", "outlook")
    values = [
        (row.trainer, row.told, json.dumps(dict(row.outlook), separators=(",", ":")))
        for row in rows
    ]
    put(connection, "outlooks", names, key=("trainer",), rows=values)


def outlook_kept(
    connection: sqlite3.Connection, trainer: str, *, told: str
) -> Mapping[str, Any] | None:
    """Return the outlook of *trainer* where it was fitted to what is *told* now.

    Raises:
        StoreError: It could not be read.
    """
    rows = select(
        connection,
        "outlooks",
        ("outlook",),
        where="WHERE trainer = ? AND told = ?",
        values=(trainer, told),
    )
    kept: dict[str, Any] | None = json.loads(rows[0][0]) if rows else None
    return kept


# ----------------------------------------------------------------------
# Backfill's plans as last seen, for looks that are torn.


@dataclass(frozen=True, slots=True)
class SeenPlans:
    """What earlier looks told of backfill's plans.

    Attributes:
        plans: ``plans_of`` the last look.
        whole_s: When the last look that was not torn was taken, Unix time; None
            for never.
    """

    plans: Plans = Plans()  # noqa: RUF009 - frozen
    whole_s: float | None = None


def put_plans(connection: sqlite3.Connection, seen: SeenPlans) -> None:
    """Keep *seen* instead of what was kept, inside the caller's transaction."""
    names = ("one", "whole_s", "plans")
    row = (1, seen.whole_s, json.dumps(asdict(seen.plans)))
    put(connection, "plans", names, key=("one",), rows=[row])


def seen_plans(connection: sqlite3.Connection) -> SeenPlans:
    """Return what was kept last; nothing in a new state.

    Raises:
        StoreError: It could not be read.
    """
    rows = select(connection, "plans", ("whole_s", "plans"))
    if not rows:
        return SeenPlans()
    whole_s, text = rows[0]
    kept = json.loads(text)
    plans = Plans(
        starts=tuple(PlannedStart(**one) for one in kept["starts"]),
        hidden=tuple(HiddenPlan(**one) for one in kept["hidden"]),
    )
    return SeenPlans(plans, whole_s)
