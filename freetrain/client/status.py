"""What trainers' own words say of them, from the store: curves and speeds."""

from __future__ import annotations

import codecs
import math
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from freetrain.client.change import find_trainer
from freetrain.client.submit import LIVE, job_of, left_over
from freetrain.elastic.files import RunDir
from freetrain.errors import UsageError
from freetrain.launch.request import logs_of
from freetrain.losscurve.fit import outlook_of
from freetrain.pack.pack import read_record
from freetrain.progress import GrowingFile, latest_progress, log_files
from freetrain.state.database import read_store
from freetrain.state.files import (
    USER,
    AgentState,
    Ended,
    UnreadableFileError,
    generations,
    lease_name,
    read_assigned,
    read_ending,
    read_heartbeat,
)
from freetrain.state.tables import (
    TrainerState,
    deliveries,
    history_of,
    leases,
    trainers,
)
from freetrain.tick.history import (
    history_from,
    is_diverging,
    known_from,
    total_of,
    unit_of,
)
from freetrain.tick.status_report import read_status_report

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from freetrain.broker.lease import LeaseState
    from freetrain.config.job import TrainerJob
    from freetrain.losscurve.fit import FittedOutlook
    from freetrain.losscurve.outlook import Better, Point
    from freetrain.pack.pack import Record
    from freetrain.progress import Progress
    from freetrain.state.files import Assigned, Ending, Heartbeat, StateDir, TrainerDir
    from freetrain.state.tables import Delivery, TrainerRow
    from freetrain.tick.history import TrainerHistory
    from freetrain.tick.status_report import StatusReport, TrainerLine


# ----------------------------------------------------------------------
# What trainers' own words say of them, from the store: curves and speeds.

FARTHEST = 2.0
"""Forecasts are shown up to twice the work done."""

_FITTED = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """A value that is wanted, and when it is expected.

    Attributes:
        tier: ``deliver`` or ``final``.
        value: The value.
        work: Work in all after which it is, or was, reached; inf for never.
        in_s: Seconds of training until then at the present speed; 0 where it has
            been reached, inf for never, None where the speed is not known.
    """

    tier: str
    value: float
    work: float
    in_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forecast:
    """The metric as fitted, and as expected; all of shape (n,).

    Attributes:
        work: Work in all, ascending.
        values: The curve up to the work done, what is expected from there on.
        low: Nine of ten outcomes are above; nan up to the work done.
        high: Nine of ten outcomes are below; likewise.
    """

    work: tuple[float, ...]
    values: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curves:
    """One trainer's.

    Attributes:
        name: Its name.
        metric: Which metric says how good it is.
        better: Which of its values are good.
        unit: What its work is counted in: ``samples``, ``step`` or ``epoch``.
        told: What was told, thinned, in order; may hold nan and infinities.
        work: Work done; None where nobody told.
        total: Work after which it is finished; None where nobody knows.
        outlook: What its past says of what is to come; None where it says nothing.
        is_diverging: Whether its metric has gone wrong.
        speeds: Work a second by node count, as measured.
        per_s: Its last speed; None where none was measured.
        aims: The values that are wanted of it.
        bad_lines: Lines of its progress that could not be understood.
    """

    name: str
    metric: str
    better: Better
    unit: str
    told: tuple[Point, ...]
    work: float | None
    total: float | None
    outlook: FittedOutlook | None
    is_diverging: bool
    speeds: tuple[tuple[int, float], ...]
    per_s: float | None
    aims: tuple[Aim, ...]
    bad_lines: int = 0

    @property
    def forecast(self) -> Forecast | None:
        """The outlook as a line, worked out at each call; None where there is none."""
        return None if self.outlook is None else forecast_of(self.outlook)

    @property
    def units(self) -> str:
        """The unit of more than one, as people write it."""
        return self.unit if self.unit.endswith("s") else f"{self.unit}s"


def curves_of(state: StateDir, *, name: str | None, uid: int) -> tuple[Curves, ...]:
    """Return what is known of one trainer, or of all that are not over.

    Raises:
        UsageError: There is no trainer of that name.
        StoreError: The state cannot be read.
    """
    with read_store(state.path, uid=uid) as connection:
        rows = trainers(connection)
        if name is None:
            wanted = [row for row in rows if row.state in LIVE]
        else:
            wanted = [find_trainer(rows, name)]
        found = [_curves(connection, row) for row in wanted]
    return tuple(one for one in found if one is not None)


def _curves(connection: sqlite3.Connection, row: TrainerRow) -> Curves | None:
    """Return the curves of *row*; None where this version cannot read its job."""
    job = job_of(row)
    kept = history_of(connection, row.name, submitted_s=row.submitted_s)
    if job is None:
        return None
    try:
        past = None if kept is None else history_from(kept.history)
    except (KeyError, TypeError):  # another release's
        past = None
    scaling = known_from({} if kept is None else kept.scaling)
    told = () if past is None else tuple(past.metric_points())
    outlook = outlook_of(told, job.measure.better)
    last_seen = [(nodes, seen[-1]) for nodes, seen in sorted(scaling.seen.items())]
    latest = max(last_seen, key=lambda one: one[1].began_s, default=None)
    per_s = None if latest is None else latest[1].samples_per_s
    return Curves(
        name=row.name,
        metric=job.measure.metric,
        better=job.measure.better,
        unit=unit_of(job),
        told=told,
        work=None if past is None else past.work,
        total=None if past is None else total_of(job, past),
        outlook=outlook,
        is_diverging=is_diverging(told, job.measure.better),
        speeds=tuple((nodes, one.samples_per_s) for nodes, one in last_seen),
        per_s=per_s,
        aims=_aims(job, past, outlook, per_s),
        bad_lines=0 if kept is None else int(kept.bookmark.get("bad_lines", 0)),
    )


def forecast_of(outlook: FittedOutlook) -> Forecast:
    """Return the line of *outlook*: through the present phase, and on."""
    done = outlook.points[-1].samples
    behind = np.linspace(outlook.phase_samples, done, _FITTED)
    frame, nan = outlook.frame, math.nan
    heights = outlook.fit.curve((behind - frame.origin_samples) / frame.unit_samples)
    fitted = [frame.value(float(height)) for height in heights]
    ahead = np.linspace(done, FARTHEST * done, _FITTED)[1:]
    expected = [outlook.expected(float(samples)) for samples in ahead]
    return Forecast(
        work=(*behind.tolist(), *ahead.tolist()),
        values=(*fitted, *(one.value for one in expected)),
        low=(*([nan] * _FITTED), *(one.low for one in expected)),
        high=(*([nan] * _FITTED), *(one.high for one in expected)),
    )


def _aims(
    job: TrainerJob,
    past: TrainerHistory | None,
    outlook: FittedOutlook | None,
    per_s: float | None,
) -> tuple[Aim, ...]:
    if job.target is None:
        return ()
    tiers = {"deliver": job.target.deliver, "final": job.target.final}
    wanted = [(tier, value) for tier, value in tiers.items() if value is not None]
    done = (None if past is None else past.work) or 0.0
    return tuple(_aim(*one, outlook, done, per_s) for one in wanted)


def _aim(
    tier: str,
    value: float,
    outlook: FittedOutlook | None,
    done: float,
    per_s: float | None,
) -> Aim:
    work = math.inf if outlook is None else outlook.samples_to(value)
    left = max(0.0, work - done)
    in_s = left if left in {0.0, math.inf} else None if not per_s else left / per_s
    return Aim(tier=tier, value=value, work=work, in_s=in_s)


# ----------------------------------------------------------------------
# What became of a trainer: its generations, as their files tell.


@dataclass(frozen=True, slots=True)
class Chapter:
    """One generation.

    Attributes:
        assigned: Its leases, who made it, and why.
        ending: How it ended; None where it has not, or never ran.
    """

    assigned: Assigned
    ending: Ending | None


def history(folder: TrainerDir, *, most: int) -> tuple[Chapter, ...]:
    """Return the last *most* generations, the oldest first; damaged ones left out.

    Raises:
        OSError: A file cannot be read.
    """
    numbers = generations(folder.assignments)[-most:] if most else ()
    chapters = (_chapter(folder, number) for number in numbers)
    return tuple(one for one in chapters if one is not None)


def _chapter(folder: TrainerDir, number: int) -> Chapter | None:
    try:
        return Chapter(read_assigned(folder, number), read_ending(folder, number))
    except UnreadableFileError:
        return None


# ----------------------------------------------------------------------
# How trainers stand, from the store and from files; Slurm is not asked.


class Doing(StrEnum):
    """What a trainer is about, as people ask for it."""

    WAITING = "waiting"  # for nodes
    STARTING = "starting"  # it has nodes, and has not told of progress there
    TRAINING = "training"
    RESCALING = "rescaling"  # its last world is not over
    STOPPING = "stopping"  # it is to run nowhere, and its last world is not over
    PAUSED = "paused"
    CANCELLED = "cancelled"
    FINISHED = "finished"
    FAILED = "failed"
    UNREADABLE = "unreadable"  # a file of it is damaged


_RESTING = {
    TrainerState.WANTED: Doing.WAITING,
    TrainerState.PAUSED: Doing.PAUSED,
    TrainerState.CANCELLED: Doing.CANCELLED,
    TrainerState.FINISHED: Doing.FINISHED,
    TrainerState.FAILED: Doing.FAILED,
}

_OVER = {Ended.FINISHED: Doing.FINISHED, Ended.DO_NOT_RESTART: Doing.FAILED}
"""What a program's own word makes of its trainer; the next tick writes it down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worlds:
    """The generations of a trainer that matter now.

    Attributes:
        newest: The newest; None before the first.
        last: The newest that runs, or ran, somewhere; None before the first.
        before: The one before ``last`` that ran somewhere, likewise.
        ending: How ``last`` ended; None while it has not.
        is_before_over: Whether ``before`` has ended, or there is none.
    """

    newest: Assigned | None = None
    last: Assigned | None = None
    before: Assigned | None = None
    ending: Ending | None = None
    is_before_over: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How one trainer stands.

    Attributes:
        row: What the store says.
        job: Its job file; None where it cannot be read.
        worlds: Its generations.
        progress: How far it is; None before its first word.
        committed_step: Steps that its newest checkpoint has, None where it has none
            or its program keeps them itself.
        head: What the agent says that launches its newest world; None where nobody
            does.
        pack: How its members stand; None where it is no pack.
        problem: Which file is damaged; empty where none is.
    """

    row: TrainerRow
    job: TrainerJob | None
    worlds: Worlds
    progress: Progress | None = None
    committed_step: int | None = None
    head: Heartbeat | None = None
    pack: Record | None = None
    problem: str = ""

    @property
    def nodes(self) -> int:
        """How many nodes it has, or is getting."""
        return 0 if self.worlds.newest is None else len(self.worlds.newest.members)

    @property
    def generation(self) -> int:
        """Its newest generation; 0 before the first."""
        return 0 if self.worlds.newest is None else self.worlds.newest.generation

    @property
    def doing(self) -> Doing:
        """What it is about."""
        return Doing.UNREADABLE if self.problem else doing_of(self)

    @property
    def since_s(self) -> float:
        """Since when it has had its nodes, or been as it is. Unix time."""
        newest = self.worlds.newest
        if newest is None or self.row.state is not TrainerState.WANTED:
            return self.row.changed_s
        return max(newest.created_s, self.row.changed_s)

    @property
    def samples_per_s(self) -> float | None:
        """How fast it trains now; None where it does not, or does not say."""
        is_training = self.doing in {Doing.TRAINING, Doing.RESCALING}
        told = self.progress if is_training else None
        return None if told is None else told.samples_per_s


def doing_of(standing: Standing) -> Doing:
    """Return what a trainer is about."""
    worlds, state = standing.worlds, standing.row.state
    newest, last = worlds.newest, worlds.last
    if newest is None or last is None:
        return _RESTING[state]
    over = _OVER.get(worlds.ending.ended) if worlds.ending else None
    if over and state is TrainerState.WANTED and newest.author != USER:
        return over
    if newest is not last:
        return _RESTING[state] if worlds.ending else Doing.STOPPING
    if state is not TrainerState.WANTED:
        return Doing.STOPPING
    return _doing_on_nodes(standing, last)


def _doing_on_nodes(standing: Standing, last: Assigned) -> Doing:
    if standing.worlds.ending is not None:
        return Doing.STARTING  # the next generation is about to be made
    if not standing.worlds.is_before_over:
        return Doing.RESCALING
    return Doing.TRAINING if _has_begun(standing, last) else Doing.STARTING


def _has_begun(standing: Standing, last: Assigned) -> bool:
    """Tell whether the world of *last* told of progress, or its agent that it runs."""
    told = standing.progress
    if told is not None and told.generation is not None:
        return told.generation >= last.generation
    if told is not None and told.t is not None:
        return told.t >= last.created_s
    beat = standing.head
    if beat is None or (standing.job is not None and standing.job.elastic):
        return False
    return beat.state is AgentState.TRAINING and beat.generation == last.generation


def read_standing(state: StateDir, row: TrainerRow) -> Standing:
    """Return how the trainer of *row* stands.

    Raises:
        OSError: Its files cannot be read.
    """
    folder = state.trainer(row.name)
    job = job_of(row)
    try:
        worlds = _worlds(folder)
    except UnreadableFileError as error:
        return Standing(row=row, job=job, worlds=Worlds(), problem=str(error))
    if job is None:
        problem = f"{folder.job} is not a job file of this version"
        return Standing(row=row, job=None, worlds=worlds, problem=problem)
    run_dir, logs = Path(row.run_dir), logs_of(job, folder)
    return Standing(
        row=row,
        job=job,
        worlds=worlds,
        progress=latest_progress(job, run_dir, logs),
        committed_step=left_over(run_dir, logs).step,
        head=_head(state, worlds),
        pack=None if job.launch.pack is None else read_record(RunDir(run_dir)),
    )


def _head(state: StateDir, worlds: Worlds) -> Heartbeat | None:
    head = None if worlds.newest is None else worlds.newest.head
    if head is None:
        return None
    try:
        return read_heartbeat(state.lease(head.key).heartbeat)
    except UnreadableFileError:  # it is written anew every second
        return None


def _worlds(folder: TrainerDir) -> Worlds:
    numbers = generations(folder.assignments)
    if not numbers:
        return Worlds()
    newest = read_assigned(folder, numbers[-1])
    ran = _that_ran(folder, numbers, newest)
    last, before = (*ran, None, None)[:2]
    ending = None if last is None else read_ending(folder, last.generation)
    over = before is None or read_ending(folder, before.generation) is not None
    return Worlds(
        newest=newest, last=last, before=before, ending=ending, is_before_over=over
    )


def _that_ran(
    folder: TrainerDir, numbers: tuple[int, ...], newest: Assigned
) -> list[Assigned]:
    """Return the two newest generations with members, the newest first."""
    ran = [newest] if newest.members else []
    for number in reversed(numbers[:-1]):
        if len(ran) == 2:  # noqa: PLR2004 - as said
            break
        one = read_assigned(folder, number)
        ran += [one] if one.members else []
    return ran


# ----------------------------------------------------------------------
# Everything there is to see of a state directory, in one look.

SILENT_S = 600.0
"""Without a tick for so long, something is wrong with what calls it."""

LONG_S = 86_400.0
"""Who ended longer ago is not looked at, unless asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What there is to see.

    Attributes:
        now_s: When the look was taken, Unix time.
        standings: Trainers, in order of submission.
        leases: How many leases are in which state, as the last tick knew.
        page: What the last tick wrote; None before the first.
        problem: Why its page cannot be read, empty where it can.
        left_out: How many trainers ended too long ago to be looked at.
        deliveries: Models that are handed over, by trainer and submission.
    """

    now_s: float
    standings: tuple[Standing, ...]
    leases: Mapping[LeaseState, int]
    page: StatusReport | None = None
    problem: str = ""
    left_out: int = 0
    deliveries: Mapping[tuple[str, float], Delivery] = field(default_factory=dict)

    @property
    def tick_age_s(self) -> float | None:
        """How long ago the last tick looked; None where none did."""
        return None if self.page is None else max(0.0, self.now_s - self.page.at_s)

    def of_trainer(self, name: str) -> TrainerLine | None:
        """Return what the last tick said of the trainer *name*; None for nothing."""
        lines = () if self.page is None else self.page.trainers
        return next((one for one in lines if one.name == name), None)

    def delivery_of(self, row: TrainerRow) -> Delivery | None:
        """Return how far the delivery of *row* is; None before its target."""
        return self.deliveries.get((row.name, row.submitted_s))

    @property
    def is_tick_missing(self) -> bool:
        """Whether it is so long since the last tick that people should know."""
        age_s = self.tick_age_s
        return age_s is None or age_s > SILENT_S


def overview(
    state: StateDir, *, name: str | None, uid: int, now_s: float, ended: bool = True
) -> Overview:
    """Return what there is to see, of all trainers or of one.

    Args:
        state: The state directory.
        name: A trainer; None for all.
        uid: Our own user number.
        now_s: Unix time.
        ended: Whether to look at trainers that ended long ago as well.

    Raises:
        UsageError: There is no trainer of that name.
        StoreError: The state cannot be read.
        OSError: A file cannot be read.
    """
    with read_store(state.path, uid=uid) as connection:
        rows = trainers(connection)
        held = leases(connection, ending_after_s=math.inf)
        delivered = deliveries(connection)
    if name is not None:
        wanted: tuple[TrainerRow, ...] = (find_trainer(rows, name),)
    else:
        long_s = math.inf if ended else LONG_S
        wanted = tuple(row for row in rows if _matters(row, now_s, long_s))
    page, problem = _page(state)
    return Overview(
        now_s=now_s,
        standings=tuple(read_standing(state, row) for row in wanted),
        leases=Counter(lease.state for lease in held),
        page=page,
        problem=problem,
        left_out=0 if name is not None else len(rows) - len(wanted),
        deliveries=delivered,
    )


def _page(state: StateDir) -> tuple[StatusReport | None, str]:
    try:
        return read_status_report(state.page), ""
    except UnreadableFileError as error:  # another version's, until the next tick
        return None, str(error)


def _matters(row: TrainerRow, now_s: float, long_s: float) -> bool:
    return row.state in LIVE or now_s - row.changed_s < long_s


# ----------------------------------------------------------------------
# What worlds and agents printed, read on as it grows, in the order of generations.

_PIECE_BYTES = 1 << 16
_FOLLOWED = 8
"""Files of a follower that are looked at again; older ones have had their say."""


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """A file that somebody prints to.

    Attributes:
        generation: Whose it is.
        title: What people call it.
        path: Where it is.
    """

    generation: int
    title: str
    path: Path


class _Feed:
    """One file, read on where it stopped; characters are never cut in two."""

    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path)
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode

    def read(self) -> Iterator[str]:
        while piece := self._file.grow(_PIECE_BYTES).piece:
            yield self._decode(piece)
            if len(piece) < _PIECE_BYTES:
                break


class Follower:
    """Reads what files grew by; new ones are found as they appear."""

    def __init__(self, sources: Callable[[], Iterable[Source]]) -> None:
        """Take what lists the files; it is asked before each reading."""
        self._sources = sources
        self._feeds: dict[Source, _Feed] = {}
        self._is_first = True

    def read(self) -> Iterator[tuple[Source, str]]:
        """Yield what is new, file by file, the older generations first."""
        found = sorted(self._sources())
        for source in found if self._is_first else found[-_FOLLOWED:]:
            feed = self._feeds.setdefault(source, _Feed(source.path))
            for text in feed.read():
                yield source, text
        self._is_first = False


class WorldLogs:
    """Lists what the worlds of a trainer print to."""

    def __init__(
        self, folder: TrainerDir, logs: Path, *, generation: int | None = None
    ) -> None:
        """Take the trainer's folder and where its worlds print.

        Args:
            folder: The trainer's.
            logs: Where its worlds print.
            generation: Only this one's; None for all.
        """
        self._folder = folder
        self._logs = logs
        self._generation = generation
        self._titles: dict[int, str] = {}

    def __call__(self) -> list[Source]:
        """Return the files that there are now."""
        wanted = self._generation
        return [
            Source(number, self._title(number), path)
            for number, path in log_files(self._logs)
            if wanted is None or number == wanted
        ]

    def _title(self, generation: int) -> str:
        """Return what people call it; said once, or pieces of it would not match."""
        if generation not in self._titles:
            self._titles[generation] = _world_title(self._folder, generation)
        return self._titles[generation]


def agent_sources(
    state: StateDir, folder: TrainerDir, *, generation: int | None = None
) -> list[Source]:
    """Return the logs of the agents of one generation.

    Args:
        state: The state directory.
        folder: The trainer's.
        generation: Which; None for the newest that runs, or ran, somewhere.
    """
    assigned = _assigned(folder, generation)
    if assigned is None:
        return []
    return [
        Source(
            assigned.generation,
            f"agent on {member.node} ({lease_name(member.key)})",
            state.lease(member.key).log,
        )
        for member in assigned.members
    ]


def check_generation(folder: TrainerDir, generation: int) -> None:
    """Refuse a generation that a trainer never had.

    Raises:
        UsageError: It had none of that number.
        OSError: The folder cannot be read.
    """
    known = generations(folder.assignments)
    if generation not in known:
        newest = f"the newest is {known[-1]}" if known else "there is none so far"
        raise UsageError(
            f"{folder.path.name} has no generation {generation}; {newest}. Nothing "
            f"was shown."
        )


def _world_title(folder: TrainerDir, generation: int) -> str:
    try:
        members = read_assigned(folder, generation).members
    except (OSError, UnreadableFileError):
        members = ()
    where = ", ".join(member.node for member in members)
    named = f"{folder.path.name}, generation {generation}"
    return f"{named} on {where}" if where else named


def _assigned(folder: TrainerDir, generation: int | None) -> Assigned | None:
    if generation is not None:
        return read_assigned(folder, generation)
    for number in reversed(generations(folder.assignments)):
        found = read_assigned(folder, number)
        if found.members:
            return found
    return None
