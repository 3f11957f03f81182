"""Who waits for admission."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from freetrain.replay.runs import Run, usable_rates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.trainers.spec import Scaling, TrainerSpec


class Queue:
    """Trainers that are not under way: still to arrive, or waiting.

    Attributes:
        waiting: Runs that have arrived and are not admitted, in order of arrival.
        runs: Every run there ever was, in order of arrival.
    """

    def __init__(self, trainers: Sequence[TrainerSpec]) -> None:
        self.waiting: deque[Run] = deque()
        self.runs: list[Run] = []
        self._to_come = deque(sorted(trainers, key=lambda spec: spec.arrival_s))
        self._rates: dict[Scaling, list[float]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether nobody waits and nobody will arrive."""
        return not self.waiting and not self._to_come

    @property
    def next_arrival_s(self) -> float:
        """When the next trainer arrives, ``inf`` for never."""
        return self._to_come[0].arrival_s if self._to_come else math.inf

    def arrive_until(self, now_s: float) -> None:
        """Let everybody wait who is submitted by *now_s*."""
        while self.next_arrival_s <= now_s:
            spec = self._to_come.popleft()
            self.join(spec, spec.arrival_s)

    def join(self, spec: TrainerSpec, arrival_s: float) -> None:
        """Put a new run of *spec* at the end of those who wait."""
        rates = self._rates.get(spec.scaling)
        if rates is None:
            rates = self._rates[spec.scaling] = usable_rates(spec.scaling)
        run = Run(len(self.runs), spec, rates, arrival_s)
        self.runs.append(run)
        self.waiting.append(run)
