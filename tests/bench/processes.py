"""How long an agent's look at the processes of a node takes, where there are 2,000.

``python -m tests.bench processes``
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from freetrain.launch.base import LEASE_MARK
from freetrain.processes import environments, process_ids

PROCESSES = 2_000
FORKING = 4
LOOKS = 30


def lines(shared: Path) -> Iterator[str]:
    """Yield the times of looks, where the others sleep and where some fork."""
    del shared
    group: list[int] = []
    try:
        for _ in range(PROCESSES - len(process_ids())):
            _start(signal.pause, group)
        yield f"{len(process_ids())} processes: {_looks()}"
        for _ in range(FORKING):
            _start(_fork_for_ever, group)
        yield f"{FORKING} of them fork and wait without a pause: {_looks()}"
    finally:
        for pid in group:
            os.kill(pid, signal.SIGKILL)
        for pid in group:
            os.waitpid(pid, 0)


def _start(program: Callable[[], object], group: list[int]) -> None:
    pid = os.fork()
    if not pid:
        program()
        os._exit(0)
    group.append(pid)


def _fork_for_ever() -> None:
    until_s = time.monotonic() + 60.0  # should this be killed
    while time.monotonic() < until_s:
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)


def _looks() -> str:
    took_s, failed = [], 0
    for _ in range(LOOKS):
        began_s = time.process_time()
        try:
            for _ in environments(LEASE_MARK.encode()):
                pass
        except OSError:
            failed += 1
        took_s.append(time.process_time() - began_s)
    return (
        f"one look takes {1e3 * median(took_s):.1f} ms of CPU (median of {LOOKS}), "
        f"{1e3 * max(took_s):.1f} ms at most; {failed} did not see all"
    )
