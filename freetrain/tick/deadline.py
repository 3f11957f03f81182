"""The deadline of a tick: one that hangs must not keep the next ticks from their work.

Everything that a tick does is recorded before, so that it can be cut off anywhere.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from freetrain.errors import TryLaterError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import NoReturn


TICK_S = 120.0
"""A tick lasts seconds; a hook may take a minute of it, and each of Slurm's commands up
to 30 s. Two of cron's ticks find it at work then, and the third goes on."""

CLEANING_UP_S = 45.0
"""For what a tick does after its deadline: two commands of Slurm show which leases
stayed, and cancel them. It may also hang where no signal is heard."""


class TickOverdueError(TryLaterError):
    """The tick hangs, or Slurm and the file system are slower than it can wait."""


@contextmanager
def deadline(
    more_s: float, *, limit_s: float = TICK_S, cleaning_up_s: float = CLEANING_UP_S
) -> Iterator[None]:
    """End what is done inside after ``limit_s`` and *more_s*, both in seconds.

    An error is raised in the main thread, where this must be called. Where that hangs
    in a call that no signal interrupts, such as on a dead file server, the process ends
    after *cleaning_up_s* more with the same exit code.

    Raises:
        TickOverdueError: It took longer.
    """
    limit_s += more_s

    def raise_overdue(_: int, __: FrameType | None) -> NoReturn:
        raise TickOverdueError(
            f"the tick was not over after {limit_s:.0f} s, and was ended. What it did "
            f"not come to, the next tick does; if that hangs too, see whether Slurm "
            f"answers, and whether files of the state directory and of trainers can be "
            f"read."
        )

    end = threading.Timer(limit_s + cleaning_up_s, _end_process)
    end.daemon = True
    end.start()
    before = signal.signal(signal.SIGALRM, raise_overdue)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
        end.cancel()


def _end_process() -> None:
    os.write(2, b"error: the tick hangs in a call; its process was ended.\n")
    os._exit(TryLaterError.exit_code)
