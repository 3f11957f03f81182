"""Looking at the state without touching it, and which file systems are local."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from freetrain.state.database import (
    DATABASE,
    STEPS,
    StoreDamagedError,
    StoreMissingError,
    StoreUnsafeError,
    StoreUnwritableError,
    connect,
    is_local,
    migrate,
    open_store,
    read_mounts,
    read_store,
    transaction,
)
from freetrain.state.tables import TrainerRow, TrainerState, put_trainers, trainers

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


def test_what_was_kept_can_be_read(tmp_path: Path) -> None:
    place = state_of(tmp_path)

    with read_store(place, uid=UID) as state:
        assert trainers(state) == (ROW,)


def test_a_state_opened_for_reading_cannot_be_changed(tmp_path: Path) -> None:
    place = state_of(tmp_path)

    with (
        read_store(place, uid=UID) as state,
        pytest.raises(StoreUnwritableError),
        transaction(state),
    ):
        put_trainers(state, [ROW])


def test_where_nothing_can_be_written_the_state_can_still_be_read(
    tmp_path: Path,
) -> None:
    place = state_of(tmp_path)
    (place / f"{DATABASE}-wal").mkdir()  # what SQLite wants to write is not writable

    with read_store(place, uid=UID) as state:
        assert trainers(state) == (ROW,)


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
    newer.close()

    with pytest.raises(StoreDamagedError), read_store(place, uid=UID):
        pass
    place.chmod(0o755)
    with pytest.raises(StoreUnsafeError), read_store(place, uid=UID):
        pass


def test_a_state_of_the_second_version_comes_along(tmp_path: Path) -> None:
    old = connect(tmp_path / DATABASE)
    migrate(old, steps=STEPS[:2])
    old.execute("INSERT INTO trainers VALUES ('a', '', '/r', 'wanted', 1.0, 1.0)")
    migrate(old)

    assert trainers(old) == (ROW,)
    old.close()


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
    assert is_local(Path(folder), mounts=MOUNTS) is expected


def test_without_a_list_of_mounts_nothing_is_local(tmp_path: Path) -> None:
    assert not is_local(Path("/"), mounts=read_mounts(tmp_path / "none"))


def test_lines_of_mounts_that_make_no_sense_are_ignored() -> None:
    assert is_local(Path("/"), mounts=f"x\n - \n1 2 3 4\n{MOUNTS}") is True
