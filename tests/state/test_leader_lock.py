"""One tick at a time: on one host, and on several."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from freetrain.state.database import StoreBusyError, connect, migrate
from freetrain.state.leader import (
    Locking,
    TickProcess,
    local_lock,
    release_leader_lock,
    take_leader_lock,
    writing,
)
from freetrain.state.tables import Event, EventKind, add_events
from tests.state.events import events_of

if TYPE_CHECKING:
    import sqlite3

ROOT = Path(__file__).resolve().parents[2]
MINE = TickProcess("login1", 10, "boot-a")

LOCKER = """
import sys
from pathlib import Path
from freetrain.state.database import StoreBusyError
from freetrain.state.leader import local_lock
try:
    with local_lock(Path(sys.argv[1])):
        print("mine", flush=True)
        sys.stdin.read()
except StoreBusyError:
    print("busy", flush=True)
"""


def test_of_two_processes_one_gets_the_lock_and_a_killed_one_lets_go(
    tmp_path: Path,
) -> None:
    path = tmp_path / "lock"
    argv = [sys.executable, "-c", LOCKER, str(path)]
    racers = [
        subprocess.Popen(  # noqa: S603
            argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [racer.stdout.readline().strip() for racer in racers if racer.stdout]

    with pytest.raises(StoreBusyError, match="next tick"), local_lock(path):
        pass
    for racer in racers:
        racer.kill()
        racer.communicate()
    with local_lock(path) as locking:
        pass

    assert sorted(said) == ["busy", "mine"]
    assert locking is Locking.LOCKED


@pytest.fixture
def state(tmp_path: Path) -> sqlite3.Connection:
    connection = connect(tmp_path / "state")
    migrate(connection)
    return connection


def turn_of(
    state: sqlite3.Connection, ticker: TickProcess, now_s: float, *, alive: bool = True
) -> int:
    turn = take_leader_lock(
        state, ticker, now_s=now_s, for_s=60.0, is_alive=lambda _: alive
    )
    return turn.fence


@pytest.mark.parametrize(
    ("other", "now_s", "alive", "gets_it"),
    [
        (TickProcess("login2", 11, "boot-b"), 59.0, False, False),
        (TickProcess("login2", 11, "boot-b"), 60.0, True, True),
        (TickProcess("login1", 11, "boot-a"), 1.0, True, False),
        (TickProcess("login1", 11, "boot-a"), 1.0, False, True),
        (TickProcess("login1", 11, "boot-c"), 1.0, True, True),
    ],
)
def test_a_turn_is_taken_over_only_from_the_dead_and_the_late(
    state: sqlite3.Connection,
    other: TickProcess,
    now_s: float,
    *,
    alive: bool,
    gets_it: bool,
) -> None:
    assert turn_of(state, MINE, 0.0) == 1

    if gets_it:
        assert turn_of(state, other, now_s, alive=alive) == 2
    else:
        with pytest.raises(StoreBusyError, match="is ticking"):
            turn_of(state, other, now_s, alive=alive)
    state.close()


def test_whoever_slept_through_the_turn_writes_nothing(
    state: sqlite3.Connection,
) -> None:
    slow = take_leader_lock(state, MINE, now_s=0.0, for_s=60.0, is_alive=lambda _: True)
    turn_of(state, TickProcess("login2", 11, "boot-b"), 61.0)

    with pytest.raises(StoreBusyError, match="took over"), writing(state, slow):
        add_events(state, [Event(1.0, EventKind.ASKED, "x")])

    assert events_of(state, "x") == ()
    state.close()


def test_an_ended_turn_is_free_and_its_number_is_never_used_again(
    state: sqlite3.Connection,
) -> None:
    turn = take_leader_lock(state, MINE, now_s=0.0, for_s=60.0, is_alive=lambda _: True)
    with writing(state, turn):
        add_events(state, [Event(1.0, EventKind.ASKED, "x")])

    release_leader_lock(state, turn)

    assert turn_of(state, TickProcess("login2", 11, "boot-b"), 1.0) == 2
    assert len(events_of(state, "x")) == 1
    state.close()
