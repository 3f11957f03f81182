"""CPU controllers with real processes, and the agent that sees their turns."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from freetrain.agent.environment import MarkedProcess, StoppedWatch, marked_processes
from freetrain.errors import BadConfigurationError
from freetrain.pack.cpu_controllers import (
    DutyCycleController,
    KernelCgroups,
    choose_controller,
    own_cgroups,
    pin_process,
    signal_all,
    this_packer,
    used_s,
)
from freetrain.pack.pack import ControllerName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from freetrain.pack.cpu_controllers import CpuController

SPIN = (sys.executable, "-c", "while True: pass")
NAMES = set(ControllerName) - {ControllerName.AUTO, ControllerName.AFFINITY}


@pytest.fixture(params=sorted(NAMES))
def controller(request: pytest.FixtureRequest) -> Iterator[CpuController]:
    """A controller of all of one CPU."""
    before = os.sched_getaffinity(0)
    first = sorted(before)[:1]
    os.sched_setaffinity(0, first)
    try:
        found = choose_controller(
            request.param,
            parents=own_cgroups(),
            cgroups=KernelCgroups(),
            packer=this_packer(f"test{os.getpid()}"),
            cpus=first,
        )
    except BadConfigurationError as error:
        os.sched_setaffinity(0, before)
        pytest.skip(str(error))
    yield found
    found.close()
    os.sched_setaffinity(0, before)


@pytest.mark.long
def test_two_that_want_all_get_it_in_proportion(controller: CpuController) -> None:
    spinning = {
        name: subprocess.Popen((*controller.admit(name), *SPIN))  # noqa: S603
        for name in ("a", "b")
    }
    try:
        for name, process in spinning.items():
            controller.follow(name, (process.pid,))
        controller.set_shares({"a": 0.75, "b": 0.25})
        pids = [process.pid for process in spinning.values()]
        begun = [used_s((pid,)) for pid in pids]
        while True:  # until there is enough to compare, however busy the machine
            time.sleep(min(0.05, controller.turn(time.monotonic())))
            a, b = (used_s((p,)) - s for p, s in zip(pids, begun, strict=True))
            if a + b > 1.5:
                break
    finally:
        for process in spinning.values():
            process.kill()
            process.wait()
    assert a / b == pytest.approx(3, rel=0.35)


def test_all_threads_of_a_process_are_pinned() -> None:
    before = os.sched_getaffinity(0)
    gate = threading.Event()
    thread = threading.Thread(target=gate.wait)
    thread.start()
    assert thread.native_id is not None
    try:
        last = sorted(before)[-1:]
        pin_process(os.getpid(), last)
        pinned = [os.sched_getaffinity(task) for task in (0, thread.native_id)]
    finally:
        pin_process(os.getpid(), sorted(before))
        gate.set()
        thread.join()
    assert pinned == [set(last), set(last)]


def test_pinning_a_process_that_is_gone_is_no_error() -> None:
    pin_process(2**22 + 1, [0])


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
    """Do what a packer does meanwhile, which does not wait for the agent."""
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
