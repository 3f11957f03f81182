"""What a trainer has reported so far, kept short from tick to tick; pure.

A tick adds the progress records that came since the last one. What is kept stays small
however long the training: of each series at most a fixed number of rows, evenly spread.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from freetrain.errors import BadDataError
from freetrain.losscurve.curve import LossHistory, downsample, quality_scale
from freetrain.losscurve.fit import is_diverging as is_fitted_diverging
from freetrain.losscurve.forecast import LARGEST_VALUE, Point
from freetrain.scaling import LearnedScaling, from_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from freetrain.config.job import QualitySettings, TargetSettings, TrainerJob
    from freetrain.losscurve.forecast import Better
    from freetrain.progress import ProgressRecord

Row = list[float]

MOST_MARKS = 60
"""Rows kept of a segment's speed."""

MOST_POINTS = 400
"""Points kept of a metric; fits thin them further. JSON of them takes 20 KB."""


@dataclass(slots=True)
class Downsampler:
    """Keeps every n-th row, and always the newest; n doubles when too many are kept.

    Attributes:
        most: Rows that are kept at most, beside the newest.
        every: n.
        count: Rows added so far.
        kept: Every n-th of them, the first included.
        newest: The last row added, unless it is in ``kept``; else None.
    """

    most: int
    every: int = 1
    count: int = 0
    kept: list[Row] = field(default_factory=list)
    newest: Row | None = None

    def add(self, row: Row) -> None:
        """Add the next row."""
        self.newest = None
        if self.count % self.every:
            self.newest = row
        else:
            self.kept.append(row)
        self.count += 1
        if len(self.kept) > self.most:
            last = self.kept[-1]
            self.kept, self.every = self.kept[::2], 2 * self.every
            if self.kept[-1] is not last and self.newest is None:
                self.newest = last

    @property
    def rows(self) -> list[Row]:
        """The kept rows and the newest, in the order in which they were added."""
        return self.kept if self.newest is None else [*self.kept, self.newest]

    def to_state(self) -> dict[str, Any]:
        """Return it as JSON has it, without ``most``."""
        return {
            "every": self.every,
            "count": self.count,
            "kept": self.kept,
            "newest": self.newest,
        }


def downsampler_from(state: Mapping[str, Any], *, most: int) -> Downsampler:
    """Return what ``to_state`` wrote."""
    return Downsampler(
        most, state["every"], state["count"], state["kept"], state["newest"]
    )


@dataclass(slots=True)
class TrainingSegment:
    """The progress of one generation of a trainer.

    Attributes:
        generation: Its number.
        marks: Time, work and steps of its records; steps are counted here where the
            program does not report them.
    """

    generation: int
    marks: Downsampler = field(default_factory=lambda: Downsampler(MOST_MARKS))

    def add(self, t_s: float, work: float | None, step: int | None) -> None:
        """Add that *work* and *step* were done at *t_s*.

        Work that goes back is of a program that started over without saying so: its
        earlier records no longer tell its speed.
        """
        if work is None:
            return
        rows = self.marks.rows
        if rows and work < rows[-1][1]:
            self.marks = Downsampler(MOST_MARKS)
        counted = float(self.marks.count) if step is None else float(step)
        self.marks.add([t_s, work, counted])

    @property
    def last_s(self) -> float | None:
        """When its last step was reported; None before the first."""
        rows = self.marks.rows
        return rows[-1][0] if rows else None

    def to_state(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"generation": self.generation, "marks": self.marks.to_state()}


def _segment_from(state: Mapping[str, Any] | None) -> TrainingSegment | None:
    if state is None:
        return None
    marks = downsampler_from(state["marks"], most=MOST_MARKS)
    return TrainingSegment(state["generation"], marks)


@dataclass(frozen=True, slots=True)
class TargetReached:
    """The first value that reached a target.

    Attributes:
        t_s: When it was reported, Unix time.
        step: Steps done then; None where the program does not count them.
        value: The metric's value.
    """

    t_s: float
    step: int | None
    value: float


@dataclass(slots=True)
class TrainerHistory:
    """What a trainer has reported since it was submitted.

    Attributes:
        points: Time, work and value of its metric.
        work: Work done; None before its first report.
        told_s: When it reported last; None where no time was given.
        step: Steps done; None where the program does not count them.
        epoch: Epoch of the last step, likewise.
        segment: The progress of the newest generation that reported.
        previous: The progress of the generation before that one.
        deliver: The first value that reached ``[target]``'s first tier.
        final: The same for the second tier.
    """

    points: Downsampler = field(default_factory=lambda: Downsampler(MOST_POINTS))
    work: float | None = None
    told_s: float | None = None
    step: int | None = None
    epoch: float | None = None
    segment: TrainingSegment | None = None
    previous: TrainingSegment | None = None
    deliver: TargetReached | None = None
    final: TargetReached | None = None

    def add(
        self, records: Iterable[ProgressRecord], job: TrainerJob
    ) -> list[tuple[TrainingSegment, TrainingSegment | None]]:
        """Add new records, in order.

        Returns:
            The segments they belong to, each with the one before it.
        """
        unit = unit_of(job)
        grown: dict[int, tuple[TrainingSegment, TrainingSegment | None]] = {}
        for record in records:
            self._add(record, job, getattr(record, unit))
            if self.segment is not None:
                grown[self.segment.generation] = (self.segment, self.previous)
        return list(grown.values())

    def metric_points(self) -> list[Point]:
        """Return the points of the metric, in the order in which they came."""
        return [Point(*row) for row in self.points.rows]

    def _add(self, record: ProgressRecord, job: TrainerJob, work: float | None) -> None:
        self.work = _newer(work, self.work)
        self.told_s = _newer(record.t, self.told_s)
        self.step = _newer(record.step, self.step)
        self.epoch = _newer(record.epoch, self.epoch)
        # What an elastic program reports before its first step has no metrics.
        if record.generation is not None and (record.metrics or not job.elastic):
            self._add_to_segment(record.generation, record, work)
        value = record.metrics.get(job.measure.metric)
        if value is None or self.work is None:
            return
        self.points.add([self.told_s or 0.0, self.work, value])
        if job.target is not None and abs(value) <= LARGEST_VALUE:
            self._compare(value, job.target, job.measure)

    def _add_to_segment(
        self, generation: int, record: ProgressRecord, work: float | None
    ) -> None:
        if self.segment is None or generation > self.segment.generation:
            self.previous, self.segment = self.segment, TrainingSegment(generation)
        if generation == self.segment.generation and record.t is not None:
            self.segment.add(record.t, work, record.step)

    def _compare(
        self, value: float, target: TargetSettings, measure: QualitySettings
    ) -> None:
        reached = TargetReached(self.told_s or 0.0, self.step, value)
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
            "stretch": None if self.segment is None else self.segment.to_state(),
            "before": None if self.previous is None else self.previous.to_state(),
            "deliver": None if self.deliver is None else asdict(self.deliver),
            "final": None if self.final is None else asdict(self.final),
        }


def history_from(state: Mapping[str, Any]) -> TrainerHistory:
    """Return what ``to_state`` wrote.

    Raises:
        KeyError, TypeError: Another release wrote it.
    """
    deliver, final = state["deliver"], state["final"]
    return TrainerHistory(
        points=downsampler_from(state["points"], most=MOST_POINTS),
        work=state["work"],
        told_s=state["told_s"],
        step=state["step"],
        epoch=state["epoch"],
        segment=_segment_from(state["stretch"]),
        previous=_segment_from(state["before"]),
        deliver=None if deliver is None else TargetReached(**deliver),
        final=None if final is None else TargetReached(**final),
    )


_Number = TypeVar("_Number", int, float)


def _newer(new: _Number | None, old: _Number | None) -> _Number | None:
    return old if new is None else new


# What its records come to.

_UNITS = ("samples", "step", "epoch")


def unit_of(job: TrainerJob) -> str:
    """Return what *job*'s work is counted in: ``samples``, ``step`` or ``epoch``."""
    if job.elastic or job.progress is None:
        return _UNITS[0]
    reported = job.progress.reported
    return next((unit for unit in _UNITS if unit in reported), _UNITS[0])


def total_of(job: TrainerJob, history: TrainerHistory) -> float | None:
    """Return the work after which *job* is finished; None where it is unknown.

    Epochs are converted to samples or steps by what the epochs so far took.
    """
    unit, work = unit_of(job), job.work
    if work.samples is not None:
        return work.samples if unit == "samples" else None
    if work.epochs is None:
        return None
    if unit == "epoch":
        return float(work.epochs)
    if history.work is None or history.epoch is None or history.epoch < 1:
        return None
    return max(history.work, history.work / history.epoch * work.epochs)


def known_from(scaling: Mapping[str, Any]) -> LearnedScaling:
    """Return what was measured of a trainer's speed, from what the store keeps.

    Empty where nothing was measured, or another release wrote it.
    """
    try:
        return from_state(scaling)
    except BadDataError:
        return LearnedScaling()


def is_diverging(points: Sequence[Point], better: Better) -> bool:
    """Tell whether the last values are not finite, or far worse than the best."""
    history = LossHistory(points)
    if not history.points:
        return history.broken > 0
    samples, values = history.samples, history.values
    scale = quality_scale(downsample(samples, values), better)
    return is_fitted_diverging(values, scale, broken=history.broken)
