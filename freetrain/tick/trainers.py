"""What a tick knows of each trainer: how it ended, and what it has reported so far.

``read_trainer`` reads its row and its files. ``read_progress`` adds what it reported
since the last tick to its ``TrainerHistory``, within bounds, and measures its speed by
that. A history stays small however long the training: of each series at most a fixed
number of rows, evenly spread. A tick without trainers does without this module.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec
from msgspec import Struct, structs

from freetrain.agent.observation import judge, sizes_left_out
from freetrain.config.document import BaseFolders
from freetrain.config.job import parse_job
from freetrain.errors import BadConfigurationError, BadDataError
from freetrain.launch.base import logs_of
from freetrain.losscurve.forecast import LARGEST_VALUE, MetricPoint
from freetrain.progress import BEGINNING, Bookmark, ProgressReader, bookmark_from
from freetrain.scaling import (
    LearnedScaling,
    ProgressMark,
    TrainedFragment,
    from_state,
    to_state,
)
from freetrain.state.files import (
    BROKER,
    USER,
    EndingKind,
    UnreadableFileError,
    final_ending,
    generations,
    newest_assigned,
    read_assigned,
    read_ending,
    recent_endings,
    tried_sizes,
)
from freetrain.state.tables import HistoryRow, TrainerState, history_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from freetrain.config.job import QualitySettings, TargetSettings, TrainerJob
    from freetrain.formats import ProgressRecord
    from freetrain.losscurve.fit import Sibling
    from freetrain.state.files import (
        AssignmentFile,
        GenerationEnding,
        StateDir,
        TrainerDir,
        TriedSize,
    )
    from freetrain.state.tables import TrainerRow
    from freetrain.tick.environment import TickContext

    PastTrainer: TypeAlias = tuple[TrainerRow, TrainerJob | None]
    """A trainer's row and its job; None where that cannot be read."""


_OVER = {TrainerState.FINISHED, TrainerState.FAILED}

_MOST_READ = 100
"""Endings looked at to tell whether a trainer failed too often."""


@dataclass(frozen=True, slots=True)
class FinalState:
    """The state in which a trainer stays: finished or failed.

    Attributes:
        message: Why, for people. Hostile text.
    """

    state: TrainerState
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TickTrainer:
    """A trainer as the store and its files describe it.

    Attributes:
        row: Its row in the store.
        job: Its job file, None where it cannot be read. Ticks plan with
            :meth:`with_sizes_left`.
        tried: The sizes that it was tried on, where it failed on any.
        newest: Its newest generation, None before the first.
        final: How it ended, None while it goes on.
        problem: Why its files cannot be read, so that nothing is done about it.
    """

    row: TrainerRow
    job: TrainerJob | None = None
    tried: tuple[TriedSize, ...] = ()
    newest: AssignmentFile | None = None
    final: FinalState | None = None
    problem: str = ""

    @property
    def is_wanted(self) -> bool:
        """Whether it is to have nodes."""
        is_asked_for = self.row.state is TrainerState.WANTED
        return is_asked_for and self.job is not None and self.final is None

    def with_sizes_left(self, now_s: float) -> TickTrainer:
        """Return it without the sizes that its job cannot run on."""
        if self.job is None or not self.tried:
            return self
        left_out = sizes_left_out(self.tried, self.job, now_s=now_s)
        return replace(self, job=self.job.without_sizes(left_out))


def read_trainer(state: StateDir, row: TrainerRow) -> TickTrainer:
    """Return the trainer of *row*; an unreadable file becomes its problem.

    A trainer that is over has its final state in its row: past trainers must cost ticks
    little.
    """
    folder = state.trainer(row.name)
    try:
        job = parse_job(row.job.encode(), path=row.name, places=BaseFolders(Path("/")))
        newest = newest_assigned(folder)
        final = None
        tried: tuple[TriedSize, ...] = ()
        if row.state not in _OVER and newest is not None:
            recent = recent_endings(folder)
            final = _final_state(folder, job, newest, recent)
            tried = tried_sizes(folder, recent)
    except (UnreadableFileError, BadConfigurationError) as error:
        return TickTrainer(row=row, problem=str(error))
    except OSError as error:
        problem = (
            f"{row.name}: {error.filename or folder.path} cannot be read now: "
            f"{error.strerror or error}. It trains on, and nothing was done about it"
        )
        return TickTrainer(row=row, problem=problem)
    return TickTrainer(row=row, job=job, tried=tried, newest=newest, final=final)


def _final_state(
    folder: TrainerDir,
    job: TrainerJob,
    newest: AssignmentFile,
    recent: Sequence[GenerationEnding],
) -> FinalState | None:
    """Return how a trainer ended.

    Its program says that it has finished, or must not be started again. That it
    failed too often follows from its endings, once an agent made an empty generation.
    """
    last = final_ending(folder, recent)
    if last is not None:
        is_done = last.ended is EndingKind.FINISHED
        state = TrainerState.FINISHED if is_done else TrainerState.FAILED
        return FinalState(state, last.message)
    if newest.members or newest.author in {BROKER, USER}:
        return None
    endings = endings_since_empty(folder, before=newest.generation)
    verdict = judge(endings, job)
    if not verdict.is_final:
        return None
    return FinalState(TrainerState.FAILED, verdict.reason)


def endings_since_empty(
    folder: TrainerDir, *, before: int | None = None
) -> tuple[GenerationEnding, ...]:
    """Return a trainer's endings since its last empty generation, the oldest first.

    Those of generations from *before* on are left out; None to leave none out.

    Raises:
        UnreadableFileError: A file of it is damaged.
        OSError: A file of it cannot be read.
    """
    found = []
    every = generations(folder.assignments)
    earlier = [g for g in every if before is None or g < before]
    for generation in reversed(earlier[-_MOST_READ:]):
        if not read_assigned(folder, generation).members:
            break
        ending = read_ending(folder, generation)
        if ending is not None:
            found.append(ending)
    return tuple(reversed(found))


Row = list[float]

MOST_MARKS = 60
"""Rows kept of a segment's speed."""

MOST_POINTS = 400
"""Points kept of a metric; fits thin them further. JSON of them takes 20 KB."""


class Downsampler(Struct):
    """Keeps every n-th row, and always the newest; n doubles when too many are kept.

    Attributes:
        most: Rows that are kept at most, beside the newest.
        every: n.
        count: Rows added so far.
        kept: Every n-th of them, the first included.
        newest: The last row added, unless it is in ``kept``; else None.
    """

    most: int = MOST_POINTS
    every: int = 1
    count: int = 0
    kept: list[Row] = []
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


class SegmentMarks(Downsampler):
    """The rows of one generation, fewer than of a whole training."""

    most: int = MOST_MARKS


class TrainingSegment(Struct):
    """The progress of one generation of a trainer.

    Attributes:
        generation: Its number.
        marks: Time, work and steps at each moment of its records; where the program
            does not report steps, moments are counted instead.
    """

    generation: int
    marks: SegmentMarks = msgspec.field(default_factory=SegmentMarks)

    def add(self, t_s: float, work: float | None, step: int | None) -> None:
        """Add that *work* and *step* were done at *t_s*.

        Work that goes back is of a program that started over without saying so: its
        earlier records no longer tell its speed. Of records of one moment, as a tick
        finds where lines have no time, the last says what was done by then.
        """
        if work is None:
            return
        rows = self.marks.rows
        if rows and work < rows[-1][1]:
            self.marks, rows = SegmentMarks(), []
        if rows and t_s == rows[-1][0]:
            rows[-1][1:] = work, rows[-1][2] if step is None else float(step)
            return
        counted = float(self.marks.count) if step is None else float(step)
        self.marks.add([t_s, work, counted])

    @property
    def last_s(self) -> float | None:
        """When its last step was reported; None before the first."""
        rows = self.marks.rows
        return rows[-1][0] if rows else None


class TargetReached(Struct, frozen=True):
    """The first value that reached a target.

    Attributes:
        t_s: When it was reported, Unix time.
        step: Steps done then; None where the program does not count them.
        value: The metric's value.
    """

    t_s: float
    step: int | None
    value: float


_SAVED_AS = {"reported_s": "told_s", "segment": "stretch", "previous": "before"}


class TrainerHistory(Struct, rename=_SAVED_AS):
    """What a trainer has reported since it was submitted.

    Attributes:
        points: Time, work and value of its metric.
        work: Work done; None before its first report.
        reported_s: When it reported last; None where no time was given.
        step: Steps done; None where the program does not count them.
        epoch: Epoch of the last step, likewise.
        segment: The progress of the newest generation that reported.
        previous: The progress of the generation before that one.
        deliver: The first value that reached ``[target]``'s first tier.
        final: The same for the second tier.
    """

    points: Downsampler = msgspec.field(default_factory=Downsampler)
    work: float | None = None
    reported_s: float | None = None
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

    @property
    def report_s(self) -> float:
        """Seconds between two reports of its newest generation; 0 before the second."""
        marks = None if self.segment is None else self.segment.marks
        if marks is None or marks.count <= 1:
            return 0.0
        return (marks.rows[-1][0] - marks.rows[0][0]) / (marks.count - 1)

    def metric_points(self) -> list[MetricPoint]:
        """Return the points of the metric, in the order in which they came."""
        return [MetricPoint(*row) for row in self.points.rows]

    def _add(self, record: ProgressRecord, job: TrainerJob, work: float | None) -> None:
        self.work = _newer(work, self.work)
        self.reported_s = _newer(record.t, self.reported_s)
        self.step = _newer(record.step, self.step)
        self.epoch = _newer(record.epoch, self.epoch)
        # What an elastic program reports before its first step has no metrics.
        if record.generation is not None and (record.metrics or not job.elastic):
            self._add_to_segment(record.generation, record, work)
        value = record.metrics.get(job.measure.metric)
        if value is None or self.work is None:
            return
        self.points.add([self.reported_s or 0.0, self.work, value])
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
        reached = TargetReached(self.reported_s or 0.0, self.step, value)
        if measure.is_reached(target.deliver, value):
            self.deliver = self.deliver or reached
        if target.final is not None and measure.is_reached(target.final, value):
            self.final = self.final or reached

    def to_state(self) -> dict[str, Any]:
        """Return it as JSON has it, nan and infinities included."""
        state: dict[str, Any] = msgspec.to_builtins(self)
        return state


def history_from(state: Mapping[str, Any]) -> TrainerHistory:
    """Return what ``to_state`` wrote.

    Raises:
        ValueError: Another release wrote it, or it could not be read and is empty.
    """
    if "points" not in state:
        raise ValueError("a history without points")
    return msgspec.convert(state, TrainerHistory)


_Number = TypeVar("_Number", int, float)


def _newer(new: _Number | None, old: _Number | None) -> _Number | None:
    return old if new is None else new


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


_MOST_SIBLINGS = 4
"""Finished trainings that a forecast goes by: the latest."""


def siblings_of(
    connection: sqlite3.Connection, job: TrainerJob, past: Iterable[PastTrainer]
) -> tuple[Sibling, ...]:
    """Return the finished trainings of *job*'s program by the same metric, the latest.

    Args:
        connection: The store.
        job: The trainer that is forecast.
        past: Trainers in order of submission; others than finished ones are left out.
    """
    # NumPy is loaded only where losses are forecast.
    from freetrain.losscurve.fit import sibling_of  # noqa: PLC0415

    found: list[Sibling] = []
    for row, other in reversed(tuple(past)):
        if len(found) == _MOST_SIBLINGS:
            break
        if row.state is not TrainerState.FINISHED or other is None:
            continue
        if kind_of(other) != kind_of(job):
            continue
        kept = history_of(connection, row.name, submitted_s=row.submitted_s)
        try:
            points = () if kept is None else history_from(kept.history).metric_points()
        except (KeyError, TypeError):  # written by another release
            continue
        sibling = sibling_of(points)
        if sibling is not None:
            found.append(sibling)
    return tuple(found)


def kind_of(job: TrainerJob) -> tuple[object, ...]:
    """Return what trainings must have in common to go on alike: program and metric."""
    measure = job.measure
    where = job.directory, job.program, job.launch.pack
    return (*where, measure.metric, measure.better, unit_of(job))


PROGRAM = "program"
"""The key of what :func:`program_of` returns, among a trainer's measured speeds."""


def program_of(job: TrainerJob) -> str:
    """Return the same text for jobs whose speeds are taken to be alike.

    They start the same program in the same folder on the same kind of nodes, and count
    their work in the same unit.
    """
    nodes = structs.replace(job.nodes, min_nodes=1, max_nodes=1, only=())
    alike = job.program, job.directory, job.launch.launcher, nodes, unit_of(job)
    return sha256(repr(alike).encode()).hexdigest()[:16]


def known_from(scaling: Mapping[str, Any]) -> LearnedScaling:
    """Return the measured speeds of a trainer, from the state in the store.

    Empty where nothing was measured, or another release wrote it.
    """
    try:
        return from_state(scaling)
    except BadDataError:
        return LearnedScaling()


# Progress: what came since the last tick.

MOST_BYTES = 1 << 22
"""Read in one tick: half a second of work; the rest comes with the next ticks."""

MOST_BYTES_EACH = 1 << 20
"""Of one trainer; above the longest line, or reading would stand still."""

MOST_PATTERN_S = 3.0
"""CPU time of all trainers' patterns in one tick; a trainer's takes about one second at
the most, after which nothing more is read with a pattern that is too slow."""

_FOLLOWED = {TrainerState.WANTED, TrainerState.PAUSED}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerProgress:
    """The progress of one trainer by its own reports.

    Attributes:
        history: What it reported.
        scaling: Its measured speeds and costs, as JSON has them (``scaling.to_state``).
        bookmark: How far its reports were read.
        submitted_s: Which of its submissions this is about.
        is_read: Whether anything was read in this tick.
    """

    history: TrainerHistory
    scaling: Mapping[str, Any]
    bookmark: Bookmark
    submitted_s: float
    is_read: bool = False

    @property
    def problem(self) -> str:
        """Why its reports are no longer read, for people; empty while they are."""
        return self.bookmark.problem

    def row(self, name: str) -> HistoryRow:
        """Return the row that the store keeps until the next tick."""
        return HistoryRow(
            trainer=name,
            submitted_s=self.submitted_s,
            bookmark=asdict(self.bookmark),
            history=self.history.to_state(),
            scaling=self.scaling,
        )


def read_progress(
    context: TickContext, trainers: Sequence[TickTrainer], *, now_s: float
) -> dict[str, TrainerProgress]:
    """Return the progress of the trainers that train, or may train again, by name.

    What a file that cannot be read would tell is known by a later tick.

    Raises:
        StoreError: What was known before cannot be read.
    """
    followed = [
        (trainer, trainer.job)
        for trainer in trainers
        if trainer.job is not None
        and not trainer.problem
        and trainer.row.state in _FOLLOWED
    ]
    progress: dict[str, TrainerProgress] = {}
    left_bytes, left_s = MOST_BYTES, MOST_PATTERN_S
    # Trainers for whom the bound left nothing this time come earlier the next.
    start = int(now_s) % max(1, len(followed))
    for trainer, job in followed[start:] + followed[:start]:
        name, known = trainer.row.name, _known_before(context, trainer)
        if left_bytes < MOST_BYTES_EACH or left_s <= 0:
            progress[name] = known
            continue
        progress[name], reader = _read_on(context, trainer, job, known, now_s)
        left_bytes -= reader.read_bytes
        left_s -= reader.pattern_s
    return progress


def _known_before(context: TickContext, trainer: TickTrainer) -> TrainerProgress:
    """Return what was known at the last tick; nothing where it cannot be read."""
    name, submitted_s = trainer.row.name, trainer.row.submitted_s
    kept = history_of(context.state, name, submitted_s=submitted_s)
    if kept is not None:
        # Another release's row is skipped: the files still have everything.
        with suppress(KeyError, TypeError, ValueError):
            return TrainerProgress(
                history=history_from(kept.history),
                scaling=kept.scaling,
                bookmark=bookmark_from(kept.bookmark),
                submitted_s=submitted_s,
            )
    return TrainerProgress(
        history=TrainerHistory(),
        scaling={},
        bookmark=BEGINNING,
        submitted_s=submitted_s,
    )


def _read_on(
    context: TickContext,
    trainer: TickTrainer,
    job: TrainerJob,
    known: TrainerProgress,
    now_s: float,
) -> tuple[TrainerProgress, ProgressReader]:
    """Return the progress with what came since, and the reader that read it."""
    folder = context.folder.trainer(trainer.row.name)
    reader = ProgressReader(
        job,
        Path(trainer.row.run_dir),
        logs_of(job, folder),
        unix_s=lambda: now_s,
        since=known.bookmark,
    )
    records = reader.read(most_bytes=MOST_BYTES_EACH)
    if reader.bookmark == known.bookmark:
        return known, reader
    grown = known.history.add(_numbered(records, trainer), job)
    scaling: Mapping[str, Any] = {}
    if context.site.planner.learn:
        learned = known_from(known.scaling)
        for segment, previous in grown:
            fragment = _fragment(folder, segment, previous)
            if fragment is not None:
                learned = learned.with_fragment(fragment)
        scaling = {**to_state(learned), PROGRAM: program_of(job)}
    progress = replace(known, scaling=scaling, bookmark=reader.bookmark, is_read=True)
    return progress, reader


def _numbered(
    records: Iterable[ProgressRecord], trainer: TickTrainer
) -> Iterator[ProgressRecord]:
    """Yield *records*; those in a file of all generations are of the newest."""
    newest = trainer.newest
    for record in records:
        if record.generation is not None or newest is None or not newest.members:
            yield record
        elif record.t is None or record.t >= newest.created_s:
            yield replace(record, generation=newest.generation)


def finished_at_target(
    trainer: TickTrainer, progress: TrainerProgress | None
) -> TickTrainer:
    """Return *trainer*, finished where its final target has been reached."""
    if progress is None or progress.history.final is None or not trainer.is_wanted:
        return trainer
    metric = "" if trainer.job is None else trainer.job.measure.metric
    value = progress.history.final.value
    message = f"its final target is reached: {metric} {value:.6g}"
    final = FinalState(TrainerState.FINISHED, message)
    return replace(trainer, final=final)


# From a segment of progress, and the files of its generation, to a measured fragment.

_FAILURES = {EndingKind.FAILED, EndingKind.KILLED}


def _fragment(
    folder: TrainerDir, segment: TrainingSegment, previous: TrainingSegment | None
) -> TrainedFragment | None:
    """Return the fragment of *segment*; None where its files cannot be read."""
    rows = segment.marks.rows
    try:
        assigned = read_assigned(folder, segment.generation)
        nodes_before = _nodes_before(folder, segment, previous)
        has_failed = previous is not None and _has_failed(folder, previous)
    except (OSError, UnreadableFileError):
        return None
    if not rows or not assigned.members:
        return None
    (first_s, first_work, first_step), *between = rows
    last_s, last_work, last_step = rows[-1]
    return TrainedFragment(
        nodes=len(assigned.members),
        began_s=assigned.created_s,
        first_step_s=first_s,
        last_step_s=last_s,
        samples=last_work - first_work,
        steps=int(last_step - first_step),
        marks=tuple(
            ProgressMark(t_s, work - first_work) for t_s, work, _ in between[:-1]
        ),
        nodes_before=nodes_before,
        step_before_s=None if previous is None else previous.last_s,
        follows_failure=has_failed,
    )


def _nodes_before(
    folder: TrainerDir, segment: TrainingSegment, previous: TrainingSegment | None
) -> int:
    """Return the nodes it had just before; 0 where it ran nowhere in between."""
    if previous is None:
        return 0
    since = range(previous.generation, segment.generation)
    known = [g for g in generations(folder.assignments) if g in since]
    members = [read_assigned(folder, g).members for g in known]
    if not known or known[0] != previous.generation or not all(members):
        return 0
    return len(members[0])


def _has_failed(folder: TrainerDir, segment: TrainingSegment) -> bool:
    ending = read_ending(folder, segment.generation)
    return ending is not None and ending.ended in _FAILURES and not ending.lost_lease
