"""The turn: one process at a time, whatever locks do, and no dead one keeps it."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from freetrain.state.database import (
    DATABASE,
    StoreBusyError,
    open_store,
    prepare_directory,
    transaction,
    turn_in,
    writing,
)
from freetrain.state.tables import Event, EventKind, add_events
from freetrain.state.turn import (
    TURN_SILENT_S,
    TURNS,
    StateTurn,
    TickProcess,
    TurnHolder,
    newest_turn,
    take_turn,
    turn_file,
)
from tests.state.events import events_of

UID = os.getuid()
ROOT = Path(__file__).resolve().parents[2]
HERE = TickProcess("login1", 10, "boot-a")
THERE = TickProcess("login2", 20, "boot-b")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    place = tmp_path / "state"
    prepare_directory(place, uid=UID)
    return place


def taken(state: Path, process: TickProcess, *, alive: bool = True) -> StateTurn:
    found = take_turn(state, process, is_alive=lambda _: alive)
    assert isinstance(found, StateTurn)
    return found


def later(state: Path, seconds: float) -> None:
    """Let so much time pass since the files were written, for all of them."""
    for path in (state / TURNS).iterdir():
        then_s = path.stat().st_mtime - seconds
        os.utime(path, (then_s, then_s))


def test_one_process_has_the_turn_until_it_gives_it_back(state: Path) -> None:
    first = taken(state, HERE)

    holder = take_turn(state, THERE)
    assert isinstance(holder, TurnHolder)
    assert (holder.host, holder.pid) == ("login1", 10)
    assert first.is_held()

    first.release()
    second = taken(state, THERE)
    assert second.number == first.number + 1
    assert not first.is_held()
    second.release()


def test_the_turn_of_a_process_that_is_gone_from_this_host_is_over_at_once(
    state: Path,
) -> None:
    first = taken(state, HERE)
    neighbour = TickProcess("login1", 11, "boot-a")

    assert isinstance(take_turn(state, neighbour, is_alive=lambda _: True), TurnHolder)
    taken(state, neighbour, alive=False).release()

    assert not first.is_held()
    first.release()


def test_a_dead_login_node_costs_the_others_one_tick(state: Path) -> None:
    first = taken(state, HERE)
    first._ended.set()  # noqa: SLF001 - its beats end, and nothing is given back

    assert isinstance(take_turn(state, THERE), TurnHolder)
    later(state, TURN_SILENT_S)
    second = take_turn(state, THERE)

    assert isinstance(second, StateTurn)
    assert not first.is_held()
    second.release()


def test_a_tick_that_still_beats_keeps_its_turn_however_long_it_takes(
    state: Path,
) -> None:
    first = taken(state, HERE)

    for beat in range(5):
        first._rewrite(TurnHolder("login1", 10, "boot-a", beat))  # noqa: SLF001
        assert isinstance(take_turn(state, THERE), TurnHolder)
        later(state, TURN_SILENT_S)

    assert first.is_held()
    first.release()


@pytest.mark.parametrize("ahead_s", [-86_400.0, 86_400.0])
def test_the_clock_of_another_host_means_nothing(state: Path, ahead_s: float) -> None:
    first = taken(state, HERE)
    at_s = time.time() + ahead_s  # noqa: TID251
    os.utime(turn_file(state / TURNS, first.number), (at_s, at_s))

    assert isinstance(take_turn(state, THERE), TurnHolder)
    assert isinstance(take_turn(state, THERE), TurnHolder)
    first.release()


def test_two_who_find_a_holder_dead_do_not_both_follow_it(state: Path) -> None:
    first = taken(state, HERE)
    first._ended.set()  # noqa: SLF001
    assert isinstance(take_turn(state, THERE), TurnHolder)
    third = TickProcess("login3", 30, "boot-c")
    assert isinstance(take_turn(state, third), TurnHolder)
    later(state, TURN_SILENT_S)

    found = [take_turn(state, process) for process in (THERE, third)]

    assert [type(each) for each in found] == [StateTurn, TurnHolder]
    assert newest_turn(state / TURNS) == 2


def test_an_unreadable_turn_is_waited_for_and_then_over(state: Path) -> None:
    first = taken(state, HERE)
    first._ended.set()  # noqa: SLF001
    turn_file(state / TURNS, 1).write_bytes(b"{torn")

    assert isinstance(take_turn(state, THERE), TurnHolder)
    later(state, TURN_SILENT_S)
    taken(state, THERE).release()


def test_old_turns_are_removed(state: Path) -> None:
    for _ in range(20):
        taken(state, HERE).release()

    assert len(list((state / TURNS).iterdir())) <= 5


def test_a_busy_turn_is_an_error_that_says_who_has_it(state: Path) -> None:
    first = taken(state, HERE)

    with (
        pytest.raises(StoreBusyError, match="process 10 on login1 has the turn"),
        turn_in(state, THERE),
    ):
        pass
    first.release()


@pytest.mark.parametrize("seed", [1, 2])
def test_without_any_locks_two_login_nodes_never_tick_at_once_and_kills_break_nothing(
    tmp_path: Path, seed: int
) -> None:
    state = tmp_path / "state"
    with open_store(state, uid=UID, allow_wal=False):
        pass
    random_ = random.Random(seed)  # noqa: S311
    hosts = ["login1", "login2"]
    begun = 0

    def start(host: str) -> subprocess.Popen[bytes]:
        nonlocal begun
        begun += 1
        command = [sys.executable, "-m", "tests.state.lockless_ticks"]
        arguments = [str(state), host, str(1000 * seed + begun)]
        return subprocess.Popen([*command, *arguments], cwd=ROOT)  # noqa: S603

    def done() -> list[str]:
        texts = [path.read_text() for path in tmp_path.glob("done.*")]
        return [name for text in texts for name in text.split("\n") if name]

    workers = [start(host) for host in hosts]
    try:
        kills, until_s = 0, time.monotonic() + 120
        while (kills < 12 or len(done()) <= 30) and time.monotonic() < until_s:
            time.sleep(random_.uniform(0.3, 0.8))
            if kills < 12:
                kills += 1
                victim = random_.randrange(2)
                workers[victim].send_signal(signal.SIGKILL)
                workers[victim].wait()
                workers[victim] = start(hosts[victim])
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()

    assert not list(tmp_path.glob("two-at-once.*"))
    with closing(sqlite3.connect(state / DATABASE)) as store:
        assert store.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        rows = dict(store.execute("SELECT subject, count(*) FROM events GROUP BY 1"))
    names = done()
    assert len(names) > 30
    assert {rows.get(name) for name in names} == {40}
    assert set(rows.values()) == {40}


def test_a_turn_writes_nothing_once_a_later_one_began_that_the_folder_hides_yet(
    state: Path,
) -> None:
    with (
        turn_in(state, HERE) as turn,
        open_store(state, uid=UID, turn=turn) as store,
    ):
        with writing(store, turn):
            add_events(store, [Event(1.0, EventKind.ASKED, "before")])
        with transaction(store):
            store.execute("UPDATE turn SET number = number + 1")

        assert turn.is_held()
        with pytest.raises(StoreBusyError, match="took its turn"), writing(store, turn):
            add_events(store, [Event(2.0, EventKind.ASKED, "after")])

        assert len(events_of(store, "before")) == 1
        assert events_of(store, "after") == ()


def test_a_turn_does_not_begin_once_a_later_one_has(state: Path) -> None:
    with (
        turn_in(state, HERE) as turn,
        open_store(state, uid=UID, turn=turn) as store,
    ):
        with transaction(store):
            store.execute("UPDATE turn SET number = ?", (turn.number + 1,))
        with open_store(state, uid=UID, turn=turn):
            pass  # of a folder that was made anew
        with transaction(store):
            store.execute("UPDATE turn SET number = ?", (turn.number + 1,))
        turn_file(state / TURNS, turn.number + 1).touch()
        turn.is_held = lambda: True  # type: ignore[method-assign]  # an old list
        with (
            pytest.raises(StoreBusyError, match="took its turn"),
            open_store(state, uid=UID, turn=turn),
        ):
            pass
