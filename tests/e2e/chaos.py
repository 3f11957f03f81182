"""A series of kills and freezes, and what was safe before each of them."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from freetrain.state.files import generations
from tests.e2e.faults import Fault, strike, wake
from tests.e2e.outcome import check_nothing_committed_was_lost, committed_step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from tests.e2e.stage import Stage

_FREEZE_EVERY = 3


class Chaos:
    """Strikes at random, and remembers."""

    def __init__(self, stage: Stage, trainers: Sequence[str], random: Random) -> None:
        self.faults: list[Fault] = []
        self._stage = stage
        self._random = random
        self._seen: dict[str, dict[int, tuple[int, ...]]] = {t: {} for t in trainers}

    @property
    def kills(self) -> list[Fault]:
        """Those that killed."""
        return [f for f in self.faults if f.number is signal.SIGKILL]

    def strike(self) -> bool:
        """Kill something, or freeze it every third time; tell whether there was any."""
        self._note_commits()
        freezes = len(self.faults) % _FREEZE_EVERY == _FREEZE_EVERY - 1
        fault = strike(self._stage, self._random, freezes=freezes)
        if fault is not None:
            self.faults.append(fault)
        return fault is not None

    def wake(self) -> None:
        """Let all that was frozen go on."""
        wake(self.faults)

    def check_nothing_committed_was_lost(self) -> None:
        """After each strike, worlds went on from the last commit before it."""
        for name, seen in self._seen.items():
            check_nothing_committed_was_lost(self._stage.trainer(name)[1], seen)

    def _note_commits(self) -> None:
        for name, seen in self._seen.items():
            folder, run = self._stage.trainer(name)
            newest = max(generations(folder.assignments), default=0)
            seen[newest] = (*seen.get(newest, (0,)), committed_step(run))
