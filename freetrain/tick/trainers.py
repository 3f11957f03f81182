"""Whether a training has gone wrong, without fitting anything to it; pure."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from freetrain.agent.seen import judge
from freetrain.config.job import parse_job
from freetrain.config.schema import Places
from freetrain.errors import BadConfigurationError, BadDataError
from freetrain.launch.request import logs_of
from freetrain.losscurve.fit import (
    broken_outlook,
    fingerprint,
)
from freetrain.losscurve.fit import (
    from_state as from_state_fit,
)
from freetrain.losscurve.fit import (
    is_diverging as _is_diverging,
)
from freetrain.losscurve.fit import (
    to_state as to_state_fit,
)
from freetrain.losscurve.history import History, scale_of, thin
from freetrain.losscurve.outlook import ABSURD, Point
from freetrain.progress import BEGINNING, Bookmark, Reader, bookmark_from
from freetrain.scaling import (
    ASSUMED_EXPONENT,
    ASSUMED_RESCALE_S,
    ASSUMED_START_S,
    Fragment,
    LearnedScaling,
    Mark,
    Rescale,
    Stake,
    cautious,
    curve_values,
    estimate,
    from_state,
    shown_by,
    site_prior,
    to_state,
)
from freetrain.state.files import (
    BROKER,
    USER,
    Ended,
    UnreadableFileError,
    generations,
    newest_assigned,
    read_assigned,
    read_ending,
)
from freetrain.state.tables import OutlookRow, PastRow, TrainerState, past_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from freetrain.config.job import Quality, RescaleCosts, Target, TrainerJob
    from freetrain.losscurve.fit import FittedOutlook
    from freetrain.losscurve.outlook import Better, Outlook
    from freetrain.progress import Record
    from freetrain.scaling import Prior, Profiling
    from freetrain.state.files import Assigned, Ending, StateDir, TrainerDir
    from freetrain.state.tables import TrainerRow
    from freetrain.tick.context import Run


# ----------------------------------------------------------------------
# Whether a training has gone wrong, without fitting anything to it; pure.


def is_diverging(points: Sequence[Point], better: Better) -> bool:
    """Tell whether the last of *points* are no numbers, or far worse than the best."""
    history = History(points)
    if not history.points:
        return history.broken > 0
    samples, values = history.samples, history.values
    scale = scale_of(thin(samples, values), better)
    return _is_diverging(values, scale, broken=history.broken)


# ----------------------------------------------------------------------
# From what a generation told, and its files, to a fragment for learned scaling.

_FAILURES = {Ended.FAILED, Ended.KILLED}


def fragment_of(
    folder: TrainerDir, stretch: Stretch, before: Stretch | None
) -> Fragment | None:
    """Return the fragment that *stretch* is of; None where its files are gone.

    Args:
        folder: The trainer's.
        stretch: What its generation told.
        before: What the generation before told; None where there was none.

    Raises:
        OSError: A file cannot be read.
    """
    rows = stretch.marks.rows
    try:
        assigned = read_assigned(folder, stretch.generation)
        nodes_before = _nodes_before(folder, stretch, before)
        has_failed = before is not None and _has_failed(folder, before)
    except (FileNotFoundError, UnreadableFileError):
        return None
    if not rows or not assigned.members:
        return None
    (first_s, first_work, first_step), *between = rows
    last_s, last_work, last_step = rows[-1]
    return Fragment(
        nodes=len(assigned.members),
        began_s=assigned.created_s,
        first_step_s=first_s,
        last_step_s=last_s,
        samples=last_work - first_work,
        steps=int(last_step - first_step),
        marks=tuple(Mark(t_s, work - first_work) for t_s, work, _ in between[:-1]),
        nodes_before=nodes_before,
        step_before_s=None if before is None else before.last_s,
        follows_failure=has_failed,
    )


def _nodes_before(folder: TrainerDir, stretch: Stretch, before: Stretch | None) -> int:
    """Return the nodes it had just before; 0 where it ran nowhere in between."""
    if before is None:
        return 0
    since = range(before.generation, stretch.generation)
    known = [g for g in generations(folder.assignments) if g in since]
    members = [read_assigned(folder, g).members for g in known]
    if not known or known[0] != before.generation or not all(members):
        return 0
    return len(members[0])


def _has_failed(folder: TrainerDir, before: Stretch) -> bool:
    ending = read_ending(folder, before.generation)
    return ending is not None and ending.ended in _FAILURES and not ending.lost_lease


# ----------------------------------------------------------------------
# A few of very many, evenly, and always the newest; pure.

Row = list[float]


@dataclass(slots=True)
class Sieve:
    """Keeps every n-th row; n doubles whenever too many are kept.

    Attributes:
        most: Rows that are kept at the most, beside the newest.
        every: n.
        count: Rows that came.
        kept: Every n-th of them, the first included.
        newest: The last that came, where it is not kept; else None.
    """

    most: int
    every: int = 1
    count: int = 0
    kept: list[Row] = field(default_factory=list)
    newest: Row | None = None

    def add(self, row: Row) -> None:
        """Take in the next row."""
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
        """Those kept, and the newest, in the order in which they came."""
        return self.kept if self.newest is None else [*self.kept, self.newest]

    def to_state(self) -> dict[str, Any]:
        """Return it as JSON has it, but for ``most``."""
        return {
            "every": self.every,
            "count": self.count,
            "kept": self.kept,
            "newest": self.newest,
        }


def sieve_from(state: Mapping[str, Any], *, most: int) -> Sieve:
    """Return what ``to_state`` made *state* of."""
    return Sieve(most, state["every"], state["count"], state["kept"], state["newest"])


# ----------------------------------------------------------------------
# How quick one generation of a trainer was, from what it told; pure.

MOST_MARKS = 60


@dataclass(slots=True)
class Stretch:
    """What was told by one generation, with times.

    Attributes:
        generation: Whose it is.
        marks: Time, work and steps of what was told; steps are counted here where
            the program does not count them.
    """

    generation: int
    marks: Sieve = field(default_factory=lambda: Sieve(MOST_MARKS))

    def take(self, t_s: float, work: float | None, step: int | None) -> None:
        """Take in that *work* and *step* were done at *t_s*.

        Work that goes back is of a program that started over without saying so: what
        was told before is no measure any more.
        """
        if work is None:
            return
        rows = self.marks.rows
        if rows and work < rows[-1][1]:
            self.marks, rows = Sieve(MOST_MARKS), []
        counted = float(self.marks.count) if step is None else float(step)
        self.marks.add([t_s, work, counted])

    @property
    def last_s(self) -> float | None:
        """When its last step was told, None before the first."""
        rows = self.marks.rows
        return rows[-1][0] if rows else None

    def to_state(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"generation": self.generation, "marks": self.marks.to_state()}


def stretch_from(state: Mapping[str, Any]) -> Stretch:
    """Return what ``to_state`` made *state* of."""
    marks = sieve_from(state["marks"], most=MOST_MARKS)
    return Stretch(state["generation"], marks)


# ----------------------------------------------------------------------
# What a trainer told so far, kept short from tick to tick; pure.

if TYPE_CHECKING:
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


# ----------------------------------------------------------------------
# What trainers told since the last tick, read on within bounds.

MOST_BYTES = 1 << 22
"""Read in one tick: half a second of work; the rest comes with the next ticks."""

MOST_BYTES_EACH = 1 << 20
"""Of one trainer; above the longest line, or reading would stand still."""

_FOLLOWED = {TrainerState.WANTED, TrainerState.PAUSED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What is known of one trainer from its own words.

    Attributes:
        past: What it told.
        scaling: What it showed of its speed, as JSON has it (``scaling.state``).
        bookmark: How far was read.
        submitted_s: Which of its submissions it is about.
        is_read: Whether anything was read since the last tick.
    """

    past: Past
    scaling: Mapping[str, Any]
    bookmark: Bookmark
    submitted_s: float
    is_read: bool = False

    def row(self, name: str) -> PastRow:
        """Return what is to be kept."""
        return PastRow(
            trainer=name,
            submitted_s=self.submitted_s,
            bookmark=asdict(self.bookmark),
            past=self.past.to_state(),
            scaling=self.scaling,
        )


def learn(
    run: Run, standings: Sequence[Standing], *, now_s: float
) -> dict[str, Learned]:
    """Return what is known of the trainers that train, or may train again.

    Raises:
        StoreError: What was known before cannot be read.
        OSError: A file cannot be read.
    """
    followed = [
        (one, one.job)
        for one in standings
        if one.job is not None and not one.problem and one.row.state in _FOLLOWED
    ]
    learned, left = {}, MOST_BYTES
    # Whoever came too late for the bound this time comes earlier the next.
    start = int(now_s) % max(1, len(followed))
    for standing, job in followed[start:] + followed[:start]:
        before = _before(run, standing)
        name = standing.row.name
        if left < MOST_BYTES_EACH:
            learned[name] = before
            continue
        learned[name], read_bytes = _read_on(run, standing, job, before, now_s)
        left -= read_bytes
    return learned


def _before(run: Run, standing: Standing) -> Learned:
    """Return what was known at the last tick; nothing where it cannot be read."""
    row, at_s = standing.row, standing.row.submitted_s
    kept = past_of(run.state, row.name, submitted_s=at_s)
    try:
        if kept is not None:
            return Learned(
                past=past_from(kept.past),
                scaling=kept.scaling,
                bookmark=bookmark_from(kept.bookmark),
                submitted_s=at_s,
            )
    except (KeyError, TypeError):  # another release's: it is all still in the files
        pass
    return Learned(past=Past(), scaling={}, bookmark=BEGINNING, submitted_s=at_s)


def _read_on(
    run: Run, standing: Standing, job: TrainerJob, before: Learned, now_s: float
) -> tuple[Learned, int]:
    folder = run.folder.trainer(standing.row.name)
    reader = Reader(
        job,
        Path(standing.row.run_dir),
        logs_of(job, folder),
        unix_s=lambda: now_s,
        since=before.bookmark,
    )
    records = reader.read(most_bytes=MOST_BYTES_EACH)
    if reader.bookmark == before.bookmark:
        return before, 0
    grown = before.past.take(_numbered(records, standing), job)
    scaling = _with(grown, before.scaling, folder) if run.site.planner.learn else {}
    learned = replace(before, scaling=scaling, bookmark=reader.bookmark, is_read=True)
    return learned, reader.read_bytes


def _with(
    grown: Iterable[Grown], scaling: Mapping[str, Any], folder: TrainerDir
) -> Mapping[str, Any]:
    """Return *scaling* with what the stretches that have *grown* show."""
    # Imported here: a site may want to know nothing of it.

    fragments = (fragment_of(folder, *one) for one in grown)
    return with_fragments(scaling, filter(None, fragments))


def _numbered(records: Iterable[Record], standing: Standing) -> Iterator[Record]:
    """Yield *records*; those in a file of all generations are of the newest."""
    newest = standing.newest
    for record in records:
        if record.generation is not None or newest is None or not newest.members:
            yield record
        elif record.t is None or record.t >= newest.created_s:
            yield replace(record, generation=newest.generation)


# ----------------------------------------------------------------------
# How quick trainers are, and what rescales cost, as their users say; pure.


@dataclass(frozen=True, slots=True, eq=False)
class Speed:
    """How quick one trainer is, and what rescales cost it.

    Attributes:
        samples_per_s: From 0 nodes to the most that it can use.
        grow_s: Seconds without training when nodes are added.
        shrink_s: Seconds without training when nodes are given up.
        start_s: Seconds without training when it starts from no nodes.
    """

    samples_per_s: NDArray[np.float64]
    grow_s: float
    shrink_s: float
    start_s: float


@dataclass(frozen=True, slots=True)
class Way:
    """How far a trainer is whose speed is asked for.

    Attributes:
        held: Nodes that it runs on now.
        remaining: Its work until it is finished, in the unit of its speeds; inf where
            nobody knows.
    """

    held: int = 0
    remaining: float = math.inf


IDLE = Way()


class Speeds(Protocol):
    """Says how quick trainers are, and what rescales cost them."""

    def of(self, job: TrainerJob, scaling: Mapping[str, Any], way: Way = IDLE) -> Speed:
        """Return how quick *job* is.

        Args:
            job: The trainer.
            scaling: What was measured of it (``scaling.state``), empty for nothing.
            way: How far it is.
        """
        ...


class AsSaid:
    """What users say, and what is assumed of all; a ``Speeds``."""

    def of(self, job: TrainerJob, scaling: Mapping[str, Any], way: Way = IDLE) -> Speed:
        """Return how quick *job* is by its own words."""
        del scaling, way
        return Speed(speeds_of(job), *costs_s(job.costs))


def speeds_of(job: TrainerJob, *, at_least: int = 0) -> NDArray[np.float64]:
    """Return samples a second from 0 nodes to the most that *job* can use.

    Between the points of ``scaling`` speed is linear; beyond the last, and where
    there are none, it grows as is assumed of all.

    Args:
        job: The trainer.
        at_least: Nodes up to which speeds are wanted in any case.
    """
    most = max(job.nodes.sizes[-1], at_least)
    counts = np.arange(most + 1, dtype=np.float64)
    if not job.scaling:
        return counts**ASSUMED_EXPONENT
    nodes = [0, *(count for count, _ in job.scaling)]
    speeds = np.interp(counts, nodes, [0.0, *(speed for _, speed in job.scaling)])
    last = nodes[-1]
    beyond = counts > last
    speeds[beyond] = job.scaling[-1][1] * (counts[beyond] / last) ** ASSUMED_EXPONENT
    return speeds


def costs_s(
    costs: RescaleCosts,
    assumed_s: tuple[float, float, float] = (
        ASSUMED_RESCALE_S,
        ASSUMED_RESCALE_S,
        ASSUMED_START_S,
    ),
) -> tuple[float, float, float]:
    """Return seconds without training at growing, shrinking and starting.

    Args:
        costs: What its user says.
        assumed_s: What counts where nothing is said.
    """
    grow_s, shrink_s, start_s = assumed_s
    return (
        grow_s if costs.grow_s is None else costs.grow_s,
        shrink_s if costs.shrink_s is None else costs.shrink_s,
        start_s if costs.start_s is None else costs.start_s,
    )


# ----------------------------------------------------------------------
# Speeds and costs as they were measured, before what users say; pure.


class Measured:
    """What trainers showed; a ``worth.Speeds``."""

    def __init__(
        self,
        prior: Prior,
        *,
        now_s: float,
        profiling: Profiling | None = None,
        deviations: float = 0.0,
    ) -> None:
        """Begin.

        Args:
            prior: What is expected of trainers here.
            now_s: The moment.
            profiling: Who is to try sizes; None for nobody.
            deviations: By how much speeds of those that wait are lowered.
        """
        self._prior = prior
        self._now_s = now_s
        self._profiling = profiling
        self._deviations = deviations

    def of(self, job: TrainerJob, scaling: Mapping[str, Any], way: Way = IDLE) -> Speed:
        """Return what was measured of *job*, but for costs that it says itself.

        Speeds of one that waits are lowered as far as they are not sure. Where trainers
        may try sizes, those of a running one hold what it may hope.
        """
        known = known_from(scaling)
        grow_s, shrink_s, start_s = costs_s(job.costs, _costs_s(known))
        speeds = self._samples_per_s(
            job, known, way, back_and_forth_s=grow_s + shrink_s
        )
        return Speed(speeds, grow_s, shrink_s, start_s)

    def _samples_per_s(
        self,
        job: TrainerJob,
        known: LearnedScaling,
        way: Way,
        *,
        back_and_forth_s: float,
    ) -> NDArray[np.float64]:
        """Return measured speeds; before the first, those that *job* says."""
        if job.scaling and not known.seen:
            return speeds_of(job)
        most, user = job.nodes.sizes[-1], _user(job, known)
        found = cautious(
            estimate(known, most, now_s=self._now_s, prior=self._prior, user=user),
            held=way.held,
            deviations=self._deviations,
        )
        if self._profiling is None or not way.held or not known.seen:
            return found.samples_per_s
        stake = Stake(
            remaining_samples=way.remaining,
            # Whoever gives nodes for a trial up and takes them back pays as well.
            rescale_s=2.0 * back_and_forth_s,
            held=way.held,
            smallest=job.nodes.sizes[0],
        )
        return curve_values(found, profiling=self._profiling, stake=stake)


def measured_by(
    scalings: Iterable[Mapping[str, Any]],
    *,
    now_s: float,
    profiling: Profiling | None = None,
    deviations: float = 0.0,
) -> Measured:
    """Return speeds at a site where trainers have shown *scalings*."""
    shown = (shown_by(known_from(one), now_s=now_s) for one in scalings)
    prior = site_prior(one for one in shown if one is not None)
    return Measured(prior, now_s=now_s, profiling=profiling, deviations=deviations)


def with_fragments(
    scaling: Mapping[str, Any], fragments: Iterable[Fragment]
) -> dict[str, Any]:
    """Return *scaling* with what *fragments* show."""
    known = known_from(scaling)
    for fragment in fragments:
        known = known.with_fragment(fragment)
    return to_state(known)


def known_from(scaling: Mapping[str, Any]) -> LearnedScaling:
    """Return what was measured; nothing where another release wrote it."""
    try:
        return from_state(scaling)
    except BadDataError:
        return LearnedScaling()


def _costs_s(known: LearnedScaling) -> tuple[float, float, float]:
    return (
        known.cost_s(Rescale.GROW, assumed_s=ASSUMED_RESCALE_S),
        known.cost_s(Rescale.SHRINK, assumed_s=ASSUMED_RESCALE_S),
        known.cost_s(Rescale.START, assumed_s=ASSUMED_START_S),
    )


def _user(job: TrainerJob, known: LearnedScaling) -> dict[int, float] | None:
    """Return what its user says, in the unit in which it was measured.

    Users say samples. Where the program tells only steps or epochs, what they say of
    the shape still holds: it is brought to the speed of the smallest size seen.
    """
    if not job.scaling:
        return None
    said = dict(job.scaling)
    if unit_of(job) == "samples" or not known.seen:
        return said
    nodes = min(known.seen)
    measured_per_s = known.seen[nodes][-1].samples_per_s
    factor = measured_per_s / float(speeds_of(job, at_least=nodes)[nodes])
    return {n: speed * factor for n, speed in said.items()}


# ----------------------------------------------------------------------
# Outlooks of trainers, fitted anew only where something new was told.

if TYPE_CHECKING:
    Kept = Callable[[str, str], Mapping[str, Any] | None]
    Fit = Callable[[History, Better], FittedOutlook | None]


class KeptOutlooks:
    """Says what trainers' losses say, and what is to be kept of that.

    Attributes:
        fresh: What was fitted here, to be kept for later ticks.
    """

    def __init__(self, kept: Kept, fit: Fit | None = None) -> None:
        """Take what says what is kept of a trainer and what it told, and what fits."""
        self.fresh: list[OutlookRow] = []
        self._kept = kept
        self._fit = fit or _fitted

    def look(
        self, name: str, points: Sequence[Point], better: Better
    ) -> Outlook | None:
        """Return the outlook of the trainer *name*; None where nothing can be said.

        Args:
            name: Unique among trainers.
            points: All it has told, in order.
            better: Which values are good.
        """
        history, told = History(points), fingerprint(points, better)
        kept = self._kept(name, told)
        if kept is not None:
            with suppress(BadDataError):
                return from_state_fit(kept, history, better)
        outlook = self._fit(history, better)
        if outlook is None:
            return broken_outlook(history, better)
        self.fresh.append(OutlookRow(name, told, to_state_fit(outlook)))
        return outlook


def _fitted(history: History, better: Better) -> FittedOutlook | None:
    # Imported here: it brings what no quiet tick needs.
    from freetrain.losscurve.fit import outlook_from  # noqa: PLC0415

    return outlook_from(history, better)


# ----------------------------------------------------------------------
# Trainers as the store and their files tell of them.

_FINAL = {Ended.FINISHED, Ended.DO_NOT_RESTART}
_OVER = {TrainerState.FINISHED, TrainerState.FAILED}
_LAST_WORDS = 10
"""Endings among which a program's last word is: few worlds were started ahead of it."""

_MOST_READ = 100
"""Endings looked at to tell whether a trainer failed too often."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a trainer ended.

    Attributes:
        state: Finished or failed.
        message: Why, for people. Hostile text.
    """

    state: TrainerState
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A trainer, and how it stands.

    Attributes:
        row: What the store says.
        job: Its job file; None where it cannot be read.
        newest: Its newest generation, None before the first.
        outcome: How it ended, None while it goes on.
        problem: Why nothing can be done about it, empty where something can.
    """

    row: TrainerRow
    job: TrainerJob | None = None
    newest: Assigned | None = None
    outcome: Outcome | None = None
    problem: str = ""

    @property
    def is_wanted(self) -> bool:
        """Whether it is to have nodes."""
        is_asked_for = self.row.state is TrainerState.WANTED
        return is_asked_for and self.job is not None and self.outcome is None


def read_standing(folder: StateDir, row: TrainerRow) -> Standing:
    """Return how the trainer of *row* stands; what is unreadable is a problem of its.

    How one ended that is over is in its row: past trainers must cost ticks little.

    Raises:
        OSError: Its files cannot be read.
    """
    place = folder.trainer(row.name)
    try:
        job = parse_job(row.job.encode(), path=row.name, places=Places(Path("/")))
        newest = newest_assigned(place)
        is_over = row.state in _OVER
        outcome = None if is_over else _outcome(place, job, newest)
    except (UnreadableFileError, BadConfigurationError) as error:
        return Standing(row=row, problem=str(error))
    return Standing(row=row, job=job, newest=newest, outcome=outcome)


def _outcome(
    place: TrainerDir, job: TrainerJob, newest: Assigned | None
) -> Outcome | None:
    """Return how a trainer ended.

    Its program says that it has finished, or must not be started again. That it
    failed too often is told by endings, and by an agent's empty generation.
    """
    if newest is None:
        return None
    last = _last_word(place)
    if last is not None:
        if _was_begun_again(place, since=last.generation):
            return None
        is_done = last.ended is Ended.FINISHED
        state = TrainerState.FINISHED if is_done else TrainerState.FAILED
        return Outcome(state, last.message)
    if newest.members or newest.author in {BROKER, USER}:
        return None
    endings = tuple(_since_rest(place, newest.generation))
    verdict = judge(reversed(endings), job)
    return Outcome(TrainerState.FAILED, verdict.reason) if verdict.is_final else None


def _last_word(place: TrainerDir) -> Ending | None:
    """Return the ending in which the program said that all is over.

    It need not be the newest: a world that was started ahead is killed after it.
    """
    for generation in reversed(generations(place.endings)[-_LAST_WORDS:]):
        ending = read_ending(place, generation)
        if ending is not None and ending.ended in _FINAL:
            return ending
    return None


def _was_begun_again(place: TrainerDir, *, since: int) -> bool:
    """Tell whether a user let it go on after the generation *since*."""
    later = (g for g in generations(place.assignments) if g > since)
    return any(read_assigned(place, generation).author == USER for generation in later)


def _since_rest(place: TrainerDir, newest: int) -> Iterator[Ending]:
    """Yield the endings, latest first, back to where it last was to run nowhere."""
    earlier = [g for g in generations(place.assignments) if g < newest]
    for generation in reversed(earlier[-_MOST_READ:]):
        if not read_assigned(place, generation).members:
            return
        ending = read_ending(place, generation)
        if ending is not None:
            yield ending
