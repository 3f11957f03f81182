"""CPU controllers with real processes, and the agent that sees their turns."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from uuid import uuid4

import pytest

from freetrain.agent.environment import MarkedProcess, StoppedWatch, marked_processes
from freetrain.errors import BadConfigurationError
from freetrain.pack.cpu_controllers import (
    CpuController,
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

SPIN = (sys.executable, "-c", "while True: pass")
NAMES = set(ControllerName) - {ControllerName.AUTO, ControllerName.AFFINITY}


@contextmanager
def ended(*processes: subprocess.Popen[bytes]) -> Iterator[None]:
    """End *processes* at last, also where they are stopped."""
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


@pytest.fixture
def cpus() -> Iterator[list[int]]:
    """The CPUs of this process, which it has again after the test."""
    before = sorted(os.sched_getaffinity(0))
    yield before
    pin_process(os.getpid(), before)


@pytest.fixture(params=sorted(NAMES))
def controller(
    request: pytest.FixtureRequest, cpus: list[int]
) -> Iterator[CpuController]:
    """A controller of all of one CPU."""
    os.sched_setaffinity(0, cpus[:1])
    try:
        found = choose_controller(
            request.param,
            parents=own_cgroups(),
            cgroups=KernelCgroups(),
            packer=this_packer(f"test{os.getpid()}"),
            cpus=cpus[:1],
        )
    except BadConfigurationError as error:
        pytest.skip(str(error))
    yield found
    found.close()


@pytest.mark.long
def test_two_that_want_all_get_it_in_proportion(controller: CpuController) -> None:
    spinning = [
        subprocess.Popen((*controller.admit(name), *SPIN))  # noqa: S603
        for name in ("a", "b")
    ]
    with ended(*spinning):
        pids = [process.pid for process in spinning]
        for name, pid in zip("ab", pids, strict=True):
            controller.follow(name, (pid,))
        controller.set_shares({"a": 0.75, "b": 0.25})
        begun = [used_s((pid,)) for pid in pids]
        a = b = 0.0
        while a + b <= 1.5:  # enough to compare, however busy the machine
            time.sleep(min(0.05, controller.turn(time.monotonic())))
            a, b = (used_s((p,)) - s for p, s in zip(pids, begun, strict=True))
    assert a / b == pytest.approx(3, rel=0.35)


def test_all_threads_of_a_process_are_pinned(cpus: list[int]) -> None:
    gate = Event()
    thread = Thread(target=gate.wait)
    thread.start()
    assert thread.native_id is not None
    try:
        pin_process(os.getpid(), cpus[-1:])
        pinned = [os.sched_getaffinity(task) for task in (0, thread.native_id)]
    finally:
        gate.set()
        thread.join()
    assert pinned == [{cpus[-1]}] * 2


def test_pinning_a_process_that_is_gone_is_no_error() -> None:
    pin_process(2**22 + 1, [0])


PATIENCE_S = 2.0
"""Twenty turns: a busy machine may miss some."""
LOOKS = 20


@contextmanager
def taking_turns(cycle: DutyCycleController) -> Iterator[None]:
    """Do a packer's work meanwhile, which does not wait for the agent."""
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


def test_a_member_that_is_stopped_in_every_look_is_not_stuck() -> None:
    marks = {"FREETRAIN_LEASE": f"{uuid4()}-0", "FREETRAIN_WORLD": "t/1"}
    both = [subprocess.Popen(SPIN, env=marks) for _ in range(2)]  # noqa: S603
    cycle, watch = DutyCycleController(1, signal_all), StoppedWatch(PATIENCE_S)

    def first() -> MarkedProcess:
        every = marked_processes(uid=os.geteuid(), own_pid=os.getpid())
        return next(process for process in every if process.pid == both[0].pid)

    for name, process in zip("ab", both, strict=True):
        cycle.admit(name)
        cycle.follow(name, (process.pid,))
    cycle.set_shares({"a": 0.25, "b": 0.75})

    with ended(*both), taking_turns(cycle):
        begun_s, looks, stuck = time.monotonic(), 0, 0
        while looks < LOOKS or time.monotonic() < begun_s + 2 * PATIENCE_S:
            time.sleep(0.02)
            found = first()
            if found.is_stopped:  # the agent looks at the wrong moment each time
                looks += 1
                stuck += len(watch.stuck((found,), now_s=time.monotonic()))

    assert stuck == 0
