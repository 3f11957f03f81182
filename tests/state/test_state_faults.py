"""Kills, full disks, foreign owners, older and newer versions, two at a time."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from freetrain.state.database import (
    DATABASE,
    STEPS,
    JournalMode,
    StoreBusyError,
    StoreDamagedError,
    StoreUnsafeError,
    StoreUnwritableError,
    connect,
    migrate,
    open_store,
    prepare_directory,
    transaction,
    version,
)
from freetrain.state.tables import Event, EventKind, add_events
from tests.state.events import events_of
from tests.state.faulty_connection import DeadError, FaultyConnection

if TYPE_CHECKING:
    import sqlite3

ROOT = Path(__file__).resolve().parents[2]


def schema(connection: sqlite3.Connection) -> set[str]:
    return {row[0] for row in connection.execute("SELECT sql FROM sqlite_master")}


@pytest.mark.parametrize("allow_wal", [True, False])
def test_a_migration_killed_before_any_statement_is_whole_the_next_time(
    tmp_path: Path, *, allow_wal: bool
) -> None:
    fresh = connect(tmp_path / "fresh", allow_wal=allow_wal)
    migrate(fresh)

    for statements in range(100):
        path = tmp_path / f"{statements}"
        state = connect(path, factory=FaultyConnection, allow_wal=allow_wal)
        assert isinstance(state, FaultyConnection)
        state.left = statements
        is_dead = True
        with suppress(DeadError):
            migrate(state)
            is_dead = False
        state.close()
        again = connect(path, allow_wal=allow_wal)
        found = version(again)
        tables = schema(again)
        migrate(again)
        assert (found > 0) == bool(tables)
        assert schema(again) == schema(fresh)
        again.close()
        if not is_dead:
            break
    fresh.close()

    assert not is_dead


@pytest.mark.parametrize("found", range(len(STEPS) + 1))
def test_every_earlier_version_is_brought_up_to_date(
    tmp_path: Path, found: int
) -> None:
    state = connect(tmp_path / "state")
    migrate(state, steps=STEPS[:found])

    migrate(state)

    assert version(state) == len(STEPS)
    state.close()


def test_a_newer_version_is_refused_and_kept(tmp_path: Path) -> None:
    state = connect(tmp_path / "state")
    state.execute("PRAGMA user_version = 99")

    with pytest.raises(StoreDamagedError, match="use the newer"):
        migrate(state)

    assert version(state) == 99
    state.close()


PROGRAM = """
import sys
from pathlib import Path
from freetrain.state.database import (connect, transaction)
from freetrain.state.tables import Event, EventKind, add_events
from tests.state.faulty_connection import FaultyConnection
state = connect(Path(sys.argv[1]), factory=FaultyConnection)
state.is_killing, state.left = True, int(sys.argv[2])
for number in range(2):
    with transaction(state):
        add_events(state, [Event(number, EventKind.ASKED, "a")])
        add_events(state, [Event(number, EventKind.ASKED, "b")])
"""


@pytest.mark.parametrize("statements", [2, 3, 4, 7])
def test_a_process_killed_in_a_transaction_leaves_all_or_nothing_of_it(
    tmp_path: Path, statements: int
) -> None:
    path = tmp_path / "state"
    state = connect(path)
    migrate(state)
    state.close()

    argv = [sys.executable, "-c", PROGRAM, str(path), str(statements)]
    ended = subprocess.run(argv, cwd=ROOT, check=False)  # noqa: S603

    again = connect(path)
    assert ended.returncode == -signal.SIGKILL
    assert len(events_of(again, "a")) == len(events_of(again, "b")) == statements // 4
    again.close()


def test_a_full_disk_says_so_and_changes_nothing(state: sqlite3.Connection) -> None:
    state.execute("PRAGMA max_page_count = 1")  # SQLite's own way of being full
    many = [Event(1.0, EventKind.ASKED, "x" * 10_000)] * 100

    with (
        pytest.raises(StoreUnwritableError, match="make room"),
        transaction(state),
    ):
        add_events(state, many)

    assert events_of(state, "x" * 10_000) == ()


def test_a_state_that_became_read_only_says_so(state: sqlite3.Connection) -> None:
    state.execute("PRAGMA query_only = ON")

    with (
        pytest.raises(StoreUnwritableError, match="training goes on"),
        transaction(state),
    ):
        add_events(state, [Event(1.0, EventKind.ASKED, "x")])


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_read_only_directory_says_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)

    with pytest.raises(StoreUnwritableError, match="cannot write"):
        connect(tmp_path / "state")

    tmp_path.chmod(0o700)


def test_a_file_that_is_no_database_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("not a database, but long enough to look at" * 100)

    with pytest.raises(StoreDamagedError, match="move it away"):
        connect(path)

    assert path.read_text().startswith("not a database")


def test_the_directory_and_all_in_it_are_closed_to_others(tmp_path: Path) -> None:
    place = tmp_path / "state"

    with open_store(place, uid=os.getuid()):
        modes = [place, *place.iterdir()]
        assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in modes)


def test_what_others_own_or_can_reach_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "state"
    place.mkdir(mode=0o700)

    with pytest.raises(StoreUnsafeError, match="another user's"):
        prepare_directory(place, uid=os.getuid() + 1)
    (place / DATABASE).symlink_to("/dev/null")
    with pytest.raises(StoreUnsafeError, match="is a link"):
        prepare_directory(place, uid=os.getuid())
    (place / DATABASE).unlink()
    place.chmod(0o750)
    with pytest.raises(StoreUnsafeError, match="chmod 700"):
        prepare_directory(place, uid=os.getuid())


@pytest.mark.parametrize("allow_wal", [True, False])
def test_the_journal_is_wal_only_where_it_is_allowed(
    tmp_path: Path, *, allow_wal: bool
) -> None:
    state = connect(tmp_path / "state", allow_wal=allow_wal)

    (journal,) = state.execute("PRAGMA journal_mode").fetchone()

    assert journal == (JournalMode.WAL if allow_wal else JournalMode.DELETE)
    assert state.execute("PRAGMA synchronous").fetchone() == (2,)
    state.close()


def test_a_writer_that_waits_too_long_is_told_to_try_again(tmp_path: Path) -> None:
    one = connect(tmp_path / "state")
    two = connect(tmp_path / "state", wait_s=0.0)

    with (
        transaction(one),
        pytest.raises(StoreBusyError, match="try again"),
        transaction(two),
    ):
        pass

    one.close()
    two.close()
