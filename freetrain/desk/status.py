"""How trainers stand, from the store and from files; Slurm is not asked."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.desk.places import left_over
from freetrain.desk.submission import job_of
from freetrain.elastic.run_dir import RunDir
from freetrain.exchange.assigned import USER, generations, read_assigned
from freetrain.exchange.ending import Ended, read_ending
from freetrain.exchange.errors import UnreadableFileError
from freetrain.exchange.heartbeat import AgentState, read_heartbeat
from freetrain.launch.places import logs_of
from freetrain.pack.record import read_record
from freetrain.progress.tail import latest_progress
from freetrain.store.trainers import TrainerState

if TYPE_CHECKING:
    from freetrain.exchange.assigned import Assigned
    from freetrain.exchange.ending import Ending
    from freetrain.exchange.heartbeat import Heartbeat
    from freetrain.exchange.layout import StateDir, TrainerDir
    from freetrain.jobfile.job import TrainerJob
    from freetrain.pack.record import Record
    from freetrain.progress.record import Progress
    from freetrain.store.trainers import TrainerRow


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
