"""What a trainer told so far, kept short from tick to tick; pure.

Work is counted in samples where the program tells them, else in its steps or epochs:
priorities only ever compare a trainer's work with its own.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from freetrain.quality.outlook import ABSURD, Point
from freetrain.tick.sieve import Sieve, sieve_from
from freetrain.tick.stretch import Stretch, stretch_from

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from freetrain.jobfile.aims import Quality, Target
    from freetrain.jobfile.job import TrainerJob
    from freetrain.progress.record import Record

    Grown = tuple[Stretch, Stretch | None]

MOST_POINTS = 400
"""Of a metric; fits thin them further. JSON of them takes 20 KB."""

_COUNTED = ("samples", "step", "epoch")

_Told = TypeVar("_Told", int, float)


@dataclass(frozen=True, slots=True)
class Reached:
    """A target's value, told.

    Attributes:
        t_s: When, Unix time.
        step: Steps done then; None where the program does not count them.
        value: What was told.
    """

    t_s: float
    step: int | None
    value: float


@dataclass(slots=True)
class Past:
    """What a trainer told.

    Attributes:
        points: Time, work and value of its metric.
        work: Work done; None before the first word of it.
        told_s: When it told something last; None where no time was told.
        step: Steps done; None where it does not count them.
        epoch: Epoch of the last step, likewise.
        stretch: The generation under way, or the last one; None before the first.
        before: The one before that.
        deliver: The first value that reached ``[target]``'s first tier.
        final: The same for the second.
    """

    points: Sieve = field(default_factory=lambda: Sieve(MOST_POINTS))
    work: float | None = None
    told_s: float | None = None
    step: int | None = None
    epoch: float | None = None
    stretch: Stretch | None = None
    before: Stretch | None = None
    deliver: Reached | None = None
    final: Reached | None = None

    def take(self, records: Iterable[Record], job: TrainerJob) -> list[Grown]:
        """Take in what was told since, in order.

        Returns:
            The stretches that it belongs to, each with the one before it.
        """
        unit = unit_of(job)
        grown: dict[int, Grown] = {}
        for record in records:
            self._take(record, job, getattr(record, unit))
            if self.stretch is not None:
                grown[self.stretch.generation] = (self.stretch, self.before)
        return list(grown.values())

    def told(self) -> list[Point]:
        """Return the points of the metric, in the order in which they were told."""
        return [Point(*row) for row in self.points.rows]

    def _take(self, record: Record, job: TrainerJob, work: float | None) -> None:
        self.work = _newer(work, self.work)
        self.told_s = _newer(record.t, self.told_s)
        self.step = _newer(record.step, self.step)
        self.epoch = _newer(record.epoch, self.epoch)
        # What an elastic program tells before its first step has no metrics.
        if record.generation is not None and (record.metrics or not job.elastic):
            self._measure(record.generation, record, work)
        value = record.metrics.get(job.measure.metric)
        if value is None or self.work is None:
            return
        self.points.add([self.told_s or 0.0, self.work, value])
        if job.target is not None and abs(value) <= ABSURD:
            self._compare(value, job.target, job.measure)

    def _measure(self, generation: int, record: Record, work: float | None) -> None:
        if self.stretch is None or generation > self.stretch.generation:
            self.before, self.stretch = self.stretch, Stretch(generation)
        if generation == self.stretch.generation and record.t is not None:
            self.stretch.take(record.t, work, record.step)

    def _compare(self, value: float, target: Target, measure: Quality) -> None:
        reached = Reached(self.told_s or 0.0, self.step, value)
        if measure.is_reached(target.deliver, value):
            self.deliver = self.deliver or reached
        if target.final is not None and measure.is_reached(target.final, value):
            self.final = self.final or reached

    def to_state(self) -> dict[str, Any]:
        """Return it as JSON has it, nan and infinities included."""
        return {
            "points": self.points.to_state(),
            "work": self.work,
            "told_s": self.told_s,
            "step": self.step,
            "epoch": self.epoch,
            "stretch": None if self.stretch is None else self.stretch.to_state(),
            "before": None if self.before is None else self.before.to_state(),
            "deliver": None if self.deliver is None else asdict(self.deliver),
            "final": None if self.final is None else asdict(self.final),
        }


def past_from(state: Mapping[str, Any]) -> Past:
    """Return what ``to_state`` made *state* of."""
    stretch, before = state["stretch"], state["before"]
    deliver, final = state["deliver"], state["final"]
    return Past(
        points=sieve_from(state["points"], most=MOST_POINTS),
        work=state["work"],
        told_s=state["told_s"],
        step=state["step"],
        epoch=state["epoch"],
        stretch=None if stretch is None else stretch_from(stretch),
        before=None if before is None else stretch_from(before),
        deliver=None if deliver is None else Reached(**deliver),
        final=None if final is None else Reached(**final),
    )


def _newer(told: _Told | None, known: _Told | None) -> _Told | None:
    return known if told is None else told


def unit_of(job: TrainerJob) -> str:
    """Return what *job*'s work is counted in: ``samples``, ``step`` or ``epoch``."""
    if job.elastic or job.progress is None:
        return _COUNTED[0]
    told = job.progress.told
    return next((name for name in _COUNTED if name in told), _COUNTED[0])


def total_of(job: TrainerJob, past: Past) -> float | None:
    """Return the work after which *job* is finished; None where nobody knows.

    Epochs are turned into samples or steps by what the epochs so far took.
    """
    unit, work = unit_of(job), job.work
    if work.samples is not None:
        return work.samples if unit == "samples" else None
    if work.epochs is None:
        return None
    if unit == "epoch":
        return float(work.epochs)
    if past.work is None or past.epoch is None or past.epoch < 1:
        return None
    return max(past.work, past.work / past.epoch * work.epochs)
