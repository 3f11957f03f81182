"""Ticks on a file system whose locks do not reach other hosts, as a process of one.

Run as ``python -m tests.state.lockless_ticks STATE HOST SEED``. It ticks until it is
killed: takes the turn, writes into the database, and gives the turn back. SQLite is
told to use no locks here.
"""

import os
import random
import sqlite3
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from freetrain.state import database, turn
from freetrain.state.database import StoreBusyError, open_store, turn_in, writing
from freetrain.state.tables import Event, EventKind, add_events
from freetrain.state.turn import TickProcess

SILENT_S = 0.6
_CONNECT = sqlite3.connect


def connect_without_locks(place: str | Path, **options: Any) -> sqlite3.Connection:  # noqa: ANN401
    if str(place) != ":memory:" and not str(place).startswith("file:"):
        options["uri"] = True
        place = f"file:{quote(str(place))}?vfs=unix-none"
    connection: sqlite3.Connection = _CONNECT(place, **options)
    return connection


def main(state: Path, host: str, seed: int) -> None:
    sqlite3.connect = connect_without_locks  # type: ignore[assignment]
    turn.TURN_BEAT_S = 0.1
    database.take_turn = partial(turn.take_turn, silent_s=SILENT_S)  # type: ignore[attr-defined]
    random_ = random.Random(seed)  # noqa: S311
    process = TickProcess(host, os.getpid(), f"boot-of-{host}")
    for number in range(1_000_000):
        with suppress(StoreBusyError):
            tick(state, process, random_, number)
        time.sleep(random_.uniform(0, 0.02))


def tick(
    state: Path, process: TickProcess, random_: random.Random, number: int
) -> None:
    inside = state.parent / "inside"
    with turn_in(state, process) as taken:
        # Two at once would both be in there; one that was killed stays in there.
        other = inside.read_text() if inside.exists() else ""
        if other and Path(f"/proc/{other}").exists():
            (state.parent / f"two-at-once.{other}.{process.pid}").touch()
        inside.write_text(str(process.pid))
        with open_store(state, uid=os.getuid(), turn=taken, allow_wal=False) as store:
            for part in range(random_.randrange(1, 4)):
                with writing(store, taken):
                    name = f"{process.host} {process.pid} {number} {part}"
                    many = [Event(0.0, EventKind.ASKED, name, n) for n in range(40)]
                    add_events(store, many)
                with (state.parent / f"done.{process.pid}").open("a") as done:
                    done.write(f"{name}\n")
        inside.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
