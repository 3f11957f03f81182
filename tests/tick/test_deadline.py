"""A tick that hangs ends, with room made and the exit code for "try again"."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from freetrain.cli.context import error_line, exit_code
from freetrain.errors import FreeTrainError
from freetrain.tick.environment import deadline
from freetrain.tick.tick import tick
from tests.tick.test_room import crowd, told
from tests.tick.tick_worlds import TickWorld

_LONG_S = 600.0


def soon(_: float) -> AbstractContextManager[None]:
    return deadline(0.0, limit_s=2.0, cleaning_up_s=3.0)


def hanging(world: TickWorld, hang: Callable[[], None]) -> int:
    """Tick in a child that hangs after it was recorded; return its exit code."""

    def reached(point: str) -> None:
        if point == "before writing what was observed":
            hang()

    environment = replace(world.environment, reached=reached, deadline=soon)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            tick(world.site, environment)
        except FreeTrainError as error:
            code = exit_code(error) if "was not over after 2 s" in str(error) else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def sleep_on() -> None:
    time.sleep(_LONG_S)


def hear_no_signal() -> None:
    """Hang as in a call of the kernel that no signal interrupts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    time.sleep(_LONG_S)


@pytest.mark.parametrize("hang", [sleep_on, hear_no_signal])
def test_a_tick_that_hangs_ends_with_room_made(
    world: TickWorld, hang: Callable[[], None]
) -> None:
    crowd(world)
    began_s = time.monotonic()
    assert hanging(world, hang) == 75
    assert time.monotonic() - began_s < 60.0
    assert len(told(world)) == 3
    assert world.status().done["leases asked for"] == 0


def test_a_tick_in_time_leaves_no_alarm(world: TickWorld) -> None:
    tick(world.site, replace(world.environment, deadline=soon))
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_an_overdue_tick_says_what_to_do(world: TickWorld) -> None:
    environment = replace(
        world.environment,
        deadline=lambda more_s: deadline(more_s, limit_s=0.2 - more_s),
        reached=lambda _: time.sleep(1.0),
    )
    with pytest.raises(FreeTrainError) as caught:
        tick(world.site, environment)
    assert exit_code(caught.value) == 75
    assert "see whether Slurm answers" in error_line(caught.value)
