"""Opening the state: its directory, versions and faults."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from freetrain.state.database import (
    DATABASE,
    STEPS,
    JournalMode,
    StoreBusyError,
    StoreDamagedError,
    StoreMissingError,
    StoreUnsafeError,
    StoreUnwritableError,
    connect,
    is_local,
    migrate,
    mount_of,
    open_store,
    prepare_directory,
    read_mounts,
    read_store,
    transaction,
    version,
)
from freetrain.state.tables import (
    Event,
    EventKind,
    TrainerRow,
    TrainerState,
    add_events,
    put_trainers,
    trainers,
)
from tests.state.events import events_of
from tests.state.faulty_connection import DeadError, FaultyConnection

UID = os.getuid()

ROW = TrainerRow("a", "", "/r", TrainerState.WANTED, 1.0, 1.0)
MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /home rw - nfs4 server:/home rw
31 30 0:27 / /home/ada/my\\040disk rw - xfs /dev/vdb rw
32 22 0:28 / /scratch rw,noatime - lustre mds:/scratch rw
33 22 0:29 / /mnt rw - ext4 /dev/vdc rw
34 33 0:30 / /mnt rw - fuse.sshfs server: rw
"""


def state_of(folder: Path) -> Path:
    place = folder / "state"
    with open_store(place, uid=UID) as state, transaction(state):
        put_trainers(state, [ROW])
    return place


@pytest.mark.parametrize("is_writable", [True, False])
def test_a_state_opened_for_reading_can_be_read_and_not_changed(
    tmp_path: Path, *, is_writable: bool
) -> None:
    place = state_of(tmp_path)
    if not is_writable:
        (place / f"{DATABASE}-wal").mkdir()  # SQLite cannot write its side file

    with read_store(place, uid=UID) as state:
        assert trainers(state) == (ROW,)
        with pytest.raises(StoreUnwritableError), transaction(state):
            put_trainers(state, [ROW])


def test_looking_for_a_state_makes_none(tmp_path: Path) -> None:
    place = tmp_path / "state"

    with (
        pytest.raises(StoreMissingError, match="no state in"),
        read_store(place, uid=UID),
    ):
        pass

    assert not place.exists()


def test_an_older_state_can_be_looked_at_and_is_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    old = connect(tmp_path / DATABASE)
    migrate(old, steps=STEPS[:1])
    old.execute("INSERT INTO trainers VALUES ('a', '', '/r', 'wanted', 1.0, 1.0)")
    old.close()

    with read_store(tmp_path, uid=UID) as state:
        assert trainers(state) == (ROW,)

    again = connect(tmp_path / DATABASE)
    assert again.execute("PRAGMA user_version").fetchone() == (1,)
    again.close()


def test_a_newer_state_and_one_that_others_can_reach_are_refused(
    tmp_path: Path,
) -> None:
    place = state_of(tmp_path)
    newer = connect(place / DATABASE)
    newer.execute("PRAGMA user_version = 99")

    with pytest.raises(StoreDamagedError, match="use the newer"):
        migrate(newer)
    with pytest.raises(StoreDamagedError), read_store(place, uid=UID):
        pass
    assert version(newer) == 99
    newer.close()
    place.chmod(0o755)
    with pytest.raises(StoreUnsafeError), read_store(place, uid=UID):
        pass


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("/var/lib", True),
        ("/home", False),
        ("/home/ada/.freetrain", False),
        ("/home/ada/my disk/state", True),
        ("/home/ada/my diskette", False),
        ("/scratch/x", False),
        ("/mnt/state", False),
        ("/", True),
    ],
)
def test_only_what_is_certainly_local_counts_as_local(
    folder: str, *, expected: bool
) -> None:
    assert is_local(mount_of(Path(folder), mounts=MOUNTS)) is expected


def test_without_a_list_of_mounts_nothing_is_local_and_junk_lines_are_ignored(
    tmp_path: Path,
) -> None:
    assert not is_local(mount_of(Path("/"), mounts=read_mounts(tmp_path / "none")))
    assert is_local(mount_of(Path("/"), mounts=f"x\n - \n1 2 3 4\n{MOUNTS}"))


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


@pytest.mark.parametrize("found", range(1, len(STEPS) + 1))
def test_every_earlier_version_is_brought_up_to_date_with_its_rows(
    tmp_path: Path, found: int
) -> None:
    state = connect(tmp_path / "state")
    migrate(state, steps=STEPS[:found])
    state.execute(
        "INSERT INTO trainers (name, job, run_dir, state, submitted_s, changed_s) "
        "VALUES ('a', '', '/r', 'wanted', 1.0, 1.0)"
    )

    migrate(state)

    assert version(state) == len(STEPS)
    assert trainers(state) == (ROW,)
    state.close()


def test_each_step_changes_tables_so_that_they_show_their_version(
    tmp_path: Path,
) -> None:
    found = set()
    with closing(connect(tmp_path / "state")) as state:
        for number in range(1, len(STEPS) + 1):
            migrate(state, steps=STEPS[:number])
            rows = state.execute("SELECT name, sql FROM sqlite_schema ORDER BY name")
            found.add(tuple(rows))

    assert len(found) == len(STEPS)


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


@pytest.mark.parametrize(
    ("pragma", "said"),
    [("max_page_count = 1", "make room"), ("query_only = ON", "training goes on")],
    ids=["a full disk", "a state that became read-only"],
)
def test_a_write_that_fails_says_so_and_changes_nothing(
    state: sqlite3.Connection, pragma: str, said: str
) -> None:
    state.execute(f"PRAGMA {pragma}")
    many = [Event(1.0, EventKind.ASKED, "x" * 10_000)] * 100

    with pytest.raises(StoreUnwritableError, match=said), transaction(state):
        add_events(state, many)

    assert events_of(state, "x" * 10_000) == ()


def test_an_error_inside_a_transaction_undoes_all_of_it(
    state: sqlite3.Connection,
) -> None:
    event = Event(1.0, EventKind.ASKED, "x")
    with suppress(ZeroDivisionError), transaction(state):
        add_events(state, [event])
        raise ZeroDivisionError

    assert events_of(state, "x") == ()
    with transaction(state):
        add_events(state, [event])
    assert events_of(state, "x") == (event,)


@pytest.mark.skipif(UID == 0, reason="root may write everywhere")
def test_a_read_only_directory_says_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)

    with pytest.raises(StoreUnwritableError, match="cannot write"):
        connect(tmp_path / "state")

    tmp_path.chmod(0o700)


def test_a_file_that_is_no_database_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("not a database, but long enough to look at" * 100)

    with pytest.raises(StoreDamagedError, match="move the file away"):
        connect(path)

    assert path.read_text().startswith("not a database")


def test_the_directory_and_all_in_it_are_closed_to_others(tmp_path: Path) -> None:
    place = tmp_path / "state"

    with open_store(place, uid=UID):
        modes = [place, *place.iterdir()]
        assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in modes)


def test_what_others_own_or_can_reach_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "state"
    place.mkdir(mode=0o700)

    with pytest.raises(StoreUnsafeError, match="another user's"):
        prepare_directory(place, uid=UID + 1)
    (place / DATABASE).symlink_to("/dev/null")
    with pytest.raises(StoreUnsafeError, match="is a link"):
        prepare_directory(place, uid=UID)
    (place / DATABASE).unlink()
    place.chmod(0o750)
    with pytest.raises(StoreUnsafeError, match="chmod 700"):
        prepare_directory(place, uid=UID)


@pytest.mark.parametrize("allow_wal", [True, False])
def test_the_journal_is_wal_only_where_it_is_allowed(
    tmp_path: Path, *, allow_wal: bool
) -> None:
    state = connect(tmp_path / "state", allow_wal=allow_wal)

    (journal,) = state.execute("PRAGMA journal_mode").fetchone()

    assert journal == (JournalMode.WAL if allow_wal else JournalMode.DELETE)
    assert state.execute("PRAGMA synchronous").fetchone() == (2,)
    state.close()


class NoWalConnection(sqlite3.Connection):
    """The first write with WAL fails, as where processes cannot share memory."""

    code = 0

    def execute(self, *args: Any) -> sqlite3.Cursor:  # noqa: ANN401
        if args[0] == "BEGIN IMMEDIATE":
            (journal,) = super().execute("PRAGMA journal_mode").fetchone()
            if journal == JournalMode.WAL:
                error = sqlite3.OperationalError("made up here")
                error.sqlite_errorcode = self.code
                raise error
        return super().execute(*args)


@pytest.mark.parametrize(
    "code",
    [sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR_SHMMAP, sqlite3.SQLITE_PROTOCOL],
)
def test_where_wal_fails_at_the_first_write_the_other_journal_is_taken(
    tmp_path: Path, code: int
) -> None:
    kind = type("Connection", (NoWalConnection,), {"code": code})

    state = connect(tmp_path / "state", factory=kind)

    assert state.execute("PRAGMA journal_mode").fetchone() == (JournalMode.DELETE,)
    state.close()


def test_a_state_that_is_busy_when_it_is_opened_keeps_its_journal(
    tmp_path: Path,
) -> None:
    kind = type("Connection", (NoWalConnection,), {"code": sqlite3.SQLITE_BUSY})

    with pytest.raises(StoreBusyError):
        connect(tmp_path / "state", factory=kind)

    state = connect(tmp_path / "state")
    assert state.execute("PRAGMA journal_mode").fetchone() == (JournalMode.WAL,)
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
