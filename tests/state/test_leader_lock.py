"""One tick at a time: on one host, and on several."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from freetrain.state.database import (
    LeaderLock,
    Locking,
    StoreBusyError,
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
from freetrain.state.database import local_lock
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


def lock_for(
    state: sqlite3.Connection, process: TickProcess, now_s: float, *, alive: bool = True
) -> LeaderLock:
    return take_leader_lock(
        state, process, now_s=now_s, for_s=60.0, is_alive=lambda _: alive
    )


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
def test_the_leader_lock_is_taken_over_only_from_the_dead_and_the_late(
    state: sqlite3.Connection,
    other: TickProcess,
    now_s: float,
    *,
    alive: bool,
    gets_it: bool,
) -> None:
    assert lock_for(state, MINE, 0.0).fence == 1

    if gets_it:
        assert lock_for(state, other, now_s, alive=alive).fence == 2
    else:
        with pytest.raises(StoreBusyError, match="is ticking"):
            lock_for(state, other, now_s, alive=alive)


def test_a_tick_that_slept_until_its_lock_expired_writes_nothing(
    state: sqlite3.Connection,
) -> None:
    slow = lock_for(state, MINE, 0.0)
    lock_for(state, TickProcess("login2", 11, "boot-b"), 61.0)

    with pytest.raises(StoreBusyError, match="took over"), writing(state, slow):
        add_events(state, [Event(1.0, EventKind.ASKED, "x")])

    assert events_of(state, "x") == ()


def test_a_released_lock_is_free_and_its_fence_is_never_used_again(
    state: sqlite3.Connection,
) -> None:
    lock = lock_for(state, MINE, 0.0)
    with writing(state, lock):
        add_events(state, [Event(1.0, EventKind.ASKED, "x")])

    release_leader_lock(state, lock)

    assert lock_for(state, TickProcess("login2", 11, "boot-b"), 1.0).fence == 2
    assert len(events_of(state, "x")) == 1
