"""What the means do to real processes on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from freetrain.errors import BadConfigurationError
from freetrain.pack.cpu_controllers import (
    ControllerName,
    KernelCgroups,
    choose_controller,
    own_cgroups,
    pin_process,
)
from freetrain.pack.processes import this_packer, used_s

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.pack.cpu_controllers import CpuController

SPIN = (sys.executable, "-c", "while True: pass")
PINNED = [ControllerName.CGROUP_V2, ControllerName.CGROUP_V1, ControllerName.DUTY_CYCLE]


@pytest.fixture(params=PINNED)
def means(request: pytest.FixtureRequest) -> Iterator[CpuController]:
    """A means for all of one CPU."""
    before = os.sched_getaffinity(0)
    one = sorted(before)[:1]
    os.sched_setaffinity(0, one)
    try:
        found = choose_controller(
            request.param,
            parents=own_cgroups(),
            cgroups=KernelCgroups(),
            packer=this_packer(f"test{os.getpid()}"),
            cpus=one,
        )
    except BadConfigurationError as error:
        os.sched_setaffinity(0, before)
        pytest.skip(str(error))
    yield found
    found.close()
    os.sched_setaffinity(0, before)


@pytest.mark.long
def test_two_that_want_all_get_it_in_proportion(means: CpuController) -> None:
    spinning = {
        name: subprocess.Popen((*means.admit(name), *SPIN))  # noqa: S603
        for name in ("a", "b")
    }
    try:
        for name, process in spinning.items():
            means.follow(name, (process.pid,))
        means.set_shares({"a": 0.75, "b": 0.25})
        pids = [process.pid for process in spinning.values()]
        begun = [used_s((pid,)) for pid in pids]
        while True:  # until there is enough to compare, however busy the machine
            time.sleep(min(0.05, means.turn(time.monotonic())))
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
        one = sorted(before)[-1:]
        pin_process(os.getpid(), one)
        pinned = [os.sched_getaffinity(task) for task in (0, thread.native_id)]
    finally:
        pin_process(os.getpid(), sorted(before))
        gate.set()
        thread.join()
    assert pinned == [set(one), set(one)]


def test_pinning_what_is_gone_is_no_error() -> None:
    pin_process(2**22 + 1, [0])
