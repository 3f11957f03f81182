"""Requests to stop: a signal or a control file. Only flags are set here."""

from __future__ import annotations

import math
import signal
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import FrameType

    from freetrain.elastic.files import Clock


LOOK_EVERY_S = 0.1
"""How often a program looks for its control file: what a request waits at the most."""


class Stop(IntEnum):
    """Why a fragment ends before the training does; ranks agree on the largest."""

    NO = 0
    RESCALE = 1
    FOR_GOOD = 2
    SUPERSEDED = 3


class StopSignals:
    """Notes that a stop signal came; puts the old handlers back when closed.

    The handler only sets a flag: checkpointing inside a handler meets a training in
    the middle of anything (Lightning issue 21406).
    """

    def __init__(self, signals: Sequence[signal.Signals]) -> None:
        self.came = False
        self._old = {one: signal.signal(one, self._note) for one in signals}

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.came = True

    def ignore(self) -> None:
        """Let no such signal do anything any more.

        Python's own end would undo a handler before the process is gone.
        """
        for one in self._old:
            signal.signal(one, signal.SIG_IGN)

    def close(self) -> None:
        """Put the old handlers back."""
        for one, handler in self._old.items():
            signal.signal(one, handler)
        self._old = {}


class StopFile:
    """Looks for the control file, at most once every *every_s*.

    It lists the folder instead of asking for the file: NFS remembers for up to a
    minute that a file was not there, and looks again when a folder is opened.
    """

    def __init__(
        self, path: Path, *, clock: Clock, every_s: float = LOOK_EVERY_S
    ) -> None:
        self._path = path
        self._every_s = every_s
        self._clock = clock
        self._due_s = -math.inf

    def is_there(self) -> bool:
        """Tell whether the file was found; False between two looks."""
        now_s = self._clock.elapsed_s()
        if now_s < self._due_s:
            return False
        self._due_s = now_s + self._every_s
        try:
            return any(p.name == self._path.name for p in self._path.parent.iterdir())
        except OSError:
            return False
