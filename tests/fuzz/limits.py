"""Runs a reader in a child that may use two seconds of CPU and 300 MB, no more."""

from __future__ import annotations

import os
import pickle
import resource
import signal
import sys
import time
import traceback
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_S = 2.0
MOST_BYTES = 300 << 20


@dataclass(frozen=True, slots=True)
class Spent:
    """What a call in a child came to.

    Attributes:
        error: The class of the exception that it raised; None for none.
        message: The exception's text, or its traceback where it was not expected.
        cpu_s: CPU time.
        grown_bytes: By how much its largest resident size was above that before.
        ended: Why the child ended without an answer; empty where it answered.
    """

    error: str | None
    message: str
    cpu_s: float
    grown_bytes: int
    ended: str = ""


def spent(
    call: Callable[[], object], *, cpu_s: float = MOST_S, is_one: bool = True
) -> Spent:
    """Return what *call* costs, in a child of its own that is killed after *cpu_s*.

    Where it is more than one reading, each limits its own memory.
    """
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(read)
            os.write(write, pickle.dumps(_measured(call, cpu_s, is_one=is_one)))
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answers:
        answer = answers.read()
    _, status = os.waitpid(pid, 0)
    if answer:
        found: Spent = pickle.loads(answer)  # noqa: S301 -- our own child's
        return found
    how = os.waitstatus_to_exitcode(status)
    return Spent(None, "", 0.0, 0, ended=f"it ended with {how}")


@contextmanager
def memory_limited() -> Iterator[None]:
    """Let the block use 300 MB more than what is in use now."""
    most, hard = resource.getrlimit(resource.RLIMIT_AS)
    held = int(_field("VmSize")) << 10
    resource.setrlimit(resource.RLIMIT_AS, (held + MOST_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _measured(call: Callable[[], object], cpu_s: float, *, is_one: bool) -> Spent:
    limit_s = int(time.process_time() + cpu_s) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 1))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    before, began_s = int(_field("VmRSS")), time.process_time()
    error, message = None, ""
    try:
        with memory_limited() if is_one else nullcontext():
            call()
    except BaseException as raised:  # noqa: BLE001 -- the parent judges it
        error = type(raised).__name__
        message = traceback.format_exc()[-2_000:]
    took_s = time.process_time() - began_s
    grown = (int(_field("VmHWM")) - before) << 10
    return Spent(error, message, took_s, max(0, grown))


def _field(name: str) -> str:
    with open("/proc/self/status", encoding="ascii") as file:  # noqa: PTH123
        return next(line.split()[1] for line in file if line.startswith(name))


def check_bounded(call: Callable[[], object], *errors: type[Exception]) -> Spent:
    """Fail unless *call* ends within its limits, well or by one of *errors*."""
    found = spent(call)
    known = {error.__name__ for kind in errors for error in (kind, *_below(kind))}
    assert not found.ended, found
    assert found.error is None or found.error in known, found.message
    assert found.cpu_s < MOST_S, found
    assert found.grown_bytes < MOST_BYTES, found
    return found


def _below(kind: type[Exception]) -> list[type[Exception]]:
    found = list(kind.__subclasses__())
    return [error for below in found for error in (below, *_below(below))]


if sys.platform != "linux":
    raise ImportError("limits are read from /proc")
