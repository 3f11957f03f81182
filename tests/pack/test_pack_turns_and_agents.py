"""What takes turns is not taken for stuck by the agent of its lease."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from freetrain.agent.environment import MarkedProcess, StoppedWatch, marked_processes
from freetrain.pack.cpu_controllers import DutyCycleController
from freetrain.pack.processes import signal_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SPIN = (sys.executable, "-c", "while True: pass")
PATIENCE_S = 2.0
"""Twenty turns: a busy machine may miss some."""
LOOKS = 20


@pytest.fixture
def spinning() -> Iterator[Callable[[], list[MarkedProcess]]]:
    """Look at two processes with a lease's marks; the first has a small share."""
    lease = f"{uuid4()}-0"
    marks = {"FREETRAIN_LEASE": lease, "FREETRAIN_WORLD": "t/1"}
    both = [subprocess.Popen(SPIN, env=marks) for _ in range(2)]  # noqa: S603
    pids = [process.pid for process in both]

    def look() -> list[MarkedProcess]:
        every = marked_processes(uid=os.geteuid(), own_pid=os.getpid())
        found = {process.pid: process for process in every}
        return [found[pid] for pid in pids]

    yield look
    for process in both:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


@contextmanager
def taking_turns(cycle: DutyCycleController) -> Iterator[None]:
    """Do what a packer does meanwhile, who does not wait for the agent."""
    over = Event()

    def turn() -> None:
        while not over.is_set():
            time.sleep(min(0.1, cycle.turn(time.monotonic())))

    thread = Thread(target=turn)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        cycle.close()


def test_a_member_that_is_stopped_in_every_look_is_not_stuck(
    spinning: Callable[[], list[MarkedProcess]],
) -> None:
    cycle, watch = DutyCycleController(1, signal_all), StoppedWatch(PATIENCE_S)
    for name, process in zip("ab", spinning(), strict=True):
        cycle.admit(name)
        cycle.follow(name, (process.pid,))
    cycle.set_shares({"a": 0.25, "b": 0.75})

    with taking_turns(cycle):
        begun_s, looks, stuck = time.monotonic(), 0, 0
        while looks < LOOKS or time.monotonic() < begun_s + 2 * PATIENCE_S:
            time.sleep(0.02)
            found = spinning()[0]
            if found.is_stopped:  # the agent looks at the wrong moment each time
                looks += 1
                stuck += len(watch.stuck((found,), now_s=time.monotonic()))

    assert stuck == 0
