"""From records, where a trainer is now and how quick its generation has been."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from freetrain.progress.record import Progress

if TYPE_CHECKING:
    from freetrain.progress.record import Record


@dataclass(slots=True)
class Standing:
    """Takes records in the order they were written; remembers only what counts.

    Numbers that a line leaves out stay as they were, so that a line with only a
    validation metric does not hide the step. A restart that rewinds goes back: the
    last line counts, not the largest number.
    """

    _last: dict[str, float | None] = field(default_factory=dict)
    _metrics: dict[str, float] = field(default_factory=dict)
    _first_timed: tuple[float, float] | None = None
    _last_timed: tuple[float, float] | None = None

    def take(self, record: Record) -> None:
        """Add *record*, the newest."""
        self._measure(record)
        self._metrics.update(record.metrics)
        for name in ("t", "step", "samples", "epoch", "generation", "world_size"):
            value = getattr(record, name)
            if value is not None:
                self._last[name] = value

    def progress(self) -> Progress | None:
        """Return where the trainer is; None before the first record."""
        if not self._last and not self._metrics:
            return None
        return Progress(
            t=self._last.get("t"),
            step=self._whole("step"),
            samples=self._last.get("samples"),
            epoch=self._last.get("epoch"),
            generation=self._whole("generation"),
            world_size=self._whole("world_size"),
            metrics=dict(self._metrics),
            samples_per_s=self._rate(),
        )

    def _whole(self, name: str) -> int | None:
        value = self._last.get(name)
        return None if value is None else int(value)

    def _measure(self, record: Record) -> None:
        last_generation = self._last.get("generation")
        if record.generation is not None and record.generation != last_generation:
            self._first_timed = self._last_timed = None
        if record.t is None or record.samples is None:
            return
        now = (record.t, record.samples)
        # Fewer samples than before: the program started over without saying so.
        if self._last_timed is None or record.samples < self._last_timed[1]:
            self._first_timed = now
        self._last_timed = now

    def _rate(self) -> float | None:
        if self._first_timed is None or self._last_timed is None:
            return None
        seconds = self._last_timed[0] - self._first_timed[0]
        samples = self._last_timed[1] - self._first_timed[1]
        return samples / seconds if seconds > 0 else None
