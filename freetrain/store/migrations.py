"""The tables, version by version; each step in one transaction with its record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.store.database import transaction, translated
from freetrain.store.errors import StoreDamagedError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

STEPS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE trainers (
            name TEXT PRIMARY KEY,
            job TEXT NOT NULL,
            run_dir TEXT NOT NULL,
            state TEXT NOT NULL,
            submitted_s REAL NOT NULL,
            changed_s REAL NOT NULL
        ) STRICT""",
        """CREATE TABLE intents (
            uuid TEXT PRIMARY KEY,
            shape TEXT NOT NULL,
            limit_min INTEGER NOT NULL,
            deadline_s REAL NOT NULL,
            tasks INTEGER NOT NULL CHECK (tasks >= 1),
            created_s REAL NOT NULL,
            outcome TEXT NOT NULL,
            job_id INTEGER,
            missed INTEGER NOT NULL,
            detail TEXT NOT NULL
        ) STRICT""",
        """CREATE TABLE leases (
            uuid TEXT NOT NULL REFERENCES intents (uuid),
            task INTEGER NOT NULL,
            job_id INTEGER,
            display_id TEXT NOT NULL,
            shape TEXT NOT NULL,
            limit_min INTEGER NOT NULL,
            deadline_s REAL NOT NULL,
            state TEXT NOT NULL,
            node TEXT NOT NULL,
            start_s REAL,
            end_s REAL,
            ended TEXT,
            missed INTEGER NOT NULL,
            missed_s REAL,
            notice_s REAL,
            cancel_s REAL,
            PRIMARY KEY (uuid, task)
        ) STRICT""",
        """CREATE TABLE assignments (
            trainer TEXT NOT NULL,
            generation INTEGER NOT NULL CHECK (generation >= 1),
            leases TEXT NOT NULL,
            created_s REAL NOT NULL,
            PRIMARY KEY (trainer, generation)
        ) STRICT""",
        """CREATE TABLE turn (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            host TEXT NOT NULL,
            pid INTEGER NOT NULL,
            boot_id TEXT NOT NULL,
            expires_s REAL NOT NULL,
            fence INTEGER NOT NULL
        ) STRICT""",
    ),
    (
        """CREATE TABLE plans (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            whole_s REAL,
            plans TEXT NOT NULL
        ) STRICT""",
        """CREATE TABLE events (
            number INTEGER PRIMARY KEY,
            at_s REAL NOT NULL,
            kind TEXT NOT NULL,
            subject TEXT NOT NULL,
            leases INTEGER NOT NULL,
            detail TEXT NOT NULL
        ) STRICT""",
        "CREATE INDEX events_by_subject ON events (subject, number)",
        "CREATE INDEX events_by_time ON events (at_s)",
    ),
    (
        # Files say which generations there are; a second opinion can only be wrong.
        "DROP TABLE assignments",
        "ALTER TABLE trainers ADD COLUMN message TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE trainers ADD COLUMN told_generation INTEGER NOT NULL DEFAULT 0",
        """CREATE TABLE beats (
            uuid TEXT NOT NULL,
            task INTEGER NOT NULL,
            beat INTEGER NOT NULL,
            since_s REAL NOT NULL,
            PRIMARY KEY (uuid, task)
        ) STRICT""",
        """CREATE TABLE counters (
            name TEXT PRIMARY KEY,
            value REAL NOT NULL
        ) STRICT""",
    ),
    (
        # Of the submission at submitted_s: a trainer's name may be used again.
        """CREATE TABLE pasts (
            trainer TEXT PRIMARY KEY,
            submitted_s REAL NOT NULL,
            bookmark TEXT NOT NULL,
            past TEXT NOT NULL,
            scaling TEXT NOT NULL
        ) STRICT""",
        """CREATE TABLE deliveries (
            trainer TEXT PRIMARY KEY,
            submitted_s REAL NOT NULL,
            stage TEXT NOT NULL,
            reached_s REAL NOT NULL,
            step INTEGER,
            value REAL NOT NULL,
            changed_s REAL NOT NULL,
            checkpoint TEXT NOT NULL,
            problem TEXT NOT NULL
        ) STRICT""",
        """CREATE TABLE memory (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            priority TEXT NOT NULL,
            memory TEXT NOT NULL
        ) STRICT""",
    ),
    (
        """CREATE TABLE outlooks (
            trainer TEXT PRIMARY KEY,
            told TEXT NOT NULL,
            outlook TEXT NOT NULL
        ) STRICT""",
    ),
    (
        """CREATE TABLE forecast (
            one INTEGER PRIMARY KEY CHECK (one = 1),
            state TEXT NOT NULL
        ) STRICT""",
        """CREATE TABLE forecast_nodes (
            number INTEGER PRIMARY KEY,
            name TEXT NOT NULL UNIQUE
        ) STRICT""",
        # A bit for each node by number; counts of all pairs would be 400 MB.
        """CREATE TABLE departures (
            number INTEGER PRIMARY KEY,
            gone BLOB NOT NULL,
            idle BLOB NOT NULL
        ) STRICT""",
        """CREATE TABLE foreseen (
            uuid TEXT NOT NULL,
            task INTEGER NOT NULL,
            node TEXT NOT NULL,
            at_s REAL NOT NULL,
            horizon_s REAL NOT NULL,
            leaves REAL NOT NULL,
            even_s REAL NOT NULL,
            promised_s REAL,
            ended_s REAL,
            came TEXT NOT NULL,
            PRIMARY KEY (uuid, task)
        ) STRICT""",
    ),
)
"""What takes a state from version i to i + 1. Never change one; add another."""


def version(connection: sqlite3.Connection) -> int:
    """Return the version of the state, 0 for a new file."""
    with translated():
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(
    connection: sqlite3.Connection,
    *,
    steps: Sequence[Sequence[str]] = STEPS,
) -> None:
    """Bring the state to the newest version; another process may be doing the same.

    The version is SQLite's ``user_version``: it is part of the transaction.

    Raises:
        StoreDamagedError: A newer version made it.
        StoreError: A step could not be done; the state is as the step before left it.
    """
    while (found := version(connection)) < len(steps):
        with transaction(connection):
            if version(connection) != found:
                continue
            for statement in steps[found]:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {found + 1}")
    check_version(connection, known=len(steps))


def check_version(connection: sqlite3.Connection, *, known: int = len(STEPS)) -> None:
    """Refuse a state that is newer than we are.

    Raises:
        StoreDamagedError: It is.
    """
    found = version(connection)
    if found > known:
        raise StoreDamagedError(
            f"the state is of version {found}, and this FreeTrain knows only "
            f"{known}. Nothing was changed; use the newer FreeTrain."
        )
