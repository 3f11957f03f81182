"""The state of trainers, from the database and from files; Slurm is not asked.

``overview`` is for `freetrain status`: each trainer with its activity, the leases, and
the report of the last tick. ``generation_history`` returns one trainer's generations.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from freetrain.agent.observation import judge, sizes_left_out
from freetrain.broker.reasons import TrainerReason
from freetrain.client.trainers import LIVE, find_trainer, job_of, left_over
from freetrain.elastic.files import RunDir
from freetrain.launch.base import logs_of
from freetrain.pack.pack import read_record
from freetrain.progress import latest_progress, log_files
from freetrain.state.database import read_store
from freetrain.state.files import (
    USER,
    AgentState,
    EndingKind,
    UnreadableFileError,
    generations,
    read_assigned,
    read_ending,
    read_heartbeat,
    recent_endings,
    tried_sizes,
)
from freetrain.state.tables import TrainerState, deliveries, leases, trainers
from freetrain.text import DAY_S, counted, render_duration
from freetrain.tick.status_report import TICKS_SILENT_S, read_status_report
from freetrain.tick.trainers import endings_since_empty

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from freetrain.broker.lease import LeaseState
    from freetrain.config.job import TrainerJob
    from freetrain.pack.pack import PackRecord
    from freetrain.progress import Progress
    from freetrain.state.files import (
        AssignmentFile,
        GenerationEnding,
        Heartbeat,
        StateDir,
        TrainerDir,
    )
    from freetrain.state.tables import Delivery, TrainerRow
    from freetrain.tick.status_report import StatusReport, TrainerLine

LONG_S = DAY_S
"""Trainers that ended longer ago are left out, unless asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A state directory at one moment.

    Attributes:
        standings: Trainers, in order of submission.
        leases: The number of leases in each state, as the last tick knew.
        report: The last tick's status report; None before the first.
        problem: Why the report cannot be read, empty where it can.
        left_out: How many trainers ended too long ago to be shown.
        deliveries: Models that are handed over, by trainer and submission time.
    """

    now_s: float
    standings: tuple[TrainerStatus, ...]
    leases: Mapping[LeaseState, int]
    report: StatusReport | None = None
    problem: str = ""
    left_out: int = 0
    deliveries: Mapping[tuple[str, float], Delivery] = field(default_factory=dict)

    @property
    def tick_age_s(self) -> float | None:
        """How long ago the last tick was; None before the first."""
        return None if self.report is None else max(0.0, self.now_s - self.report.at_s)

    def of_trainer(self, name: str) -> TrainerLine | None:
        """Return the line of the trainer *name* in the last tick's report, if any."""
        lines = () if self.report is None else self.report.trainers
        return next((line for line in lines if line.name == name), None)

    def delivery_of(self, row: TrainerRow) -> Delivery | None:
        """Return how far the delivery of *row* is; None before its target."""
        return self.deliveries.get((row.name, row.submitted_s))

    @property
    def is_tick_missing(self) -> bool:
        """Whether the last tick is too long ago, or there was none."""
        age_s = self.tick_age_s
        return age_s is None or age_s > TICKS_SILENT_S


def overview(
    state: StateDir, *, name: str | None, uid: int, now_s: float, ended: bool = True
) -> Overview:
    """Return an overview of the trainer *name*, or of all if it is None.

    Trainers that ended long ago are among all only if *ended*.

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
    report, problem = _report(state)
    return Overview(
        now_s=now_s,
        standings=tuple(read_trainer_status(state, row, now_s=now_s) for row in wanted),
        leases=Counter(lease.state for lease in held),
        report=report,
        problem=problem,
        left_out=0 if name is not None else len(rows) - len(wanted),
        deliveries=delivered,
    )


def _report(state: StateDir) -> tuple[StatusReport | None, str]:
    try:
        return read_status_report(state.status_report), ""
    except UnreadableFileError as error:  # another version's, until the next tick
        return None, str(error)


def _matters(row: TrainerRow, now_s: float, long_s: float) -> bool:
    return row.state in LIVE or now_s - row.changed_s < long_s


# One trainer: what it does now


class Doing(StrEnum):
    """The activity of a trainer, as users see it."""

    WAITING = "waiting"  # for nodes
    STARTING = "starting"  # it has nodes, and has not reported progress there
    TRAINING = "training"
    STALLED = "stalled"  # it trained, and makes no steps any more
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

_OVER = {EndingKind.FINISHED: Doing.FINISHED, EndingKind.DO_NOT_RESTART: Doing.FAILED}
"""Activities that follow from a program's own end; the next tick records them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worlds:
    """The generations of a trainer that matter now.

    Attributes:
        newest: The newest; None before the first.
        last: The newest that runs, or ran, somewhere; None before the first.
        before: The one before ``last`` that ran somewhere, likewise.
        ending: How ``last`` ended; None while it has not.
        before_ending: How ``before`` ended, likewise.
    """

    newest: AssignmentFile | None = None
    last: AssignmentFile | None = None
    before: AssignmentFile | None = None
    ending: GenerationEnding | None = None
    before_ending: GenerationEnding | None = None

    @property
    def is_before_over(self) -> bool:
        """Whether ``before`` has ended, or there is none."""
        return self.before is None or self.before_ending is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A program that failed, and is started again on the nodes it has.

    Attributes:
        ending: Its last failure.
        times: Failures in a row, without a commit between them.
        at_s: When it is started again, Unix time.
    """

    ending: GenerationEnding
    times: int
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerStatus:
    """One trainer now.

    Attributes:
        job: Its job file; None where it cannot be read.
        progress: Its newest progress; None before its first report.
        committed_step: Steps that its newest checkpoint has, None where it has none
            or its program keeps them itself.
        head: The heartbeat of the agent that launches its newest world; None where
            nothing runs.
        pack: The record of its members; None where it is no pack.
        retry: Its next start after a failure; None where none is waited for.
        problem: Which file is damaged; empty where none is.
        logs: Where its worlds print to; None where its job file cannot be read.
        left_out: The sizes that it is not tried on for hours, with the message of its
            failure there. Hostile text.
    """

    row: TrainerRow
    job: TrainerJob | None
    worlds: Worlds
    progress: Progress | None = None
    committed_step: int | None = None
    head: Heartbeat | None = None
    pack: PackRecord | None = None
    retry: Retry | None = None
    problem: str = ""
    logs: Path | None = None
    left_out: Mapping[int, str] = field(default_factory=dict)

    @property
    def is_wanted(self) -> bool:
        """Whether its user wants it to train."""
        return self.row.state is TrainerState.WANTED

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
        """Its activity now."""
        return Doing.UNREADABLE if self.problem else doing_of(self)

    @property
    def ended_s(self) -> float | None:
        """When it ended, Unix time; None while it may go on."""
        state, ending = self.row.state, self.worlds.ending
        if state in LIVE and self.doing not in _OVER.values():
            return None
        if state is TrainerState.CANCELLED or ending is None:
            return self.row.changed_s
        return ending.ended_s

    @property
    def since_s(self) -> float:
        """Since when it has had its nodes, or been in its state. Unix time."""
        if self.is_wanted and self.ended_s is not None:  # no tick has noted it yet
            return self.ended_s
        newest = self.worlds.newest
        if newest is None or self.row.state is not TrainerState.WANTED:
            return self.row.changed_s
        return max(newest.created_s, self.row.changed_s)

    @property
    def samples_per_s(self) -> float | None:
        """How fast it trains now; None where it does not train, or does not report."""
        is_training = self.doing in {Doing.TRAINING, Doing.RESCALING}
        progress = self.progress if is_training else None
        return None if progress is None else progress.samples_per_s


def doing_of(status: TrainerStatus) -> Doing:
    """Return the activity of a trainer now."""
    worlds, state = status.worlds, status.row.state
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
    return _doing_on_nodes(status, last)


def _doing_on_nodes(status: TrainerStatus, last: AssignmentFile) -> Doing:
    if status.worlds.ending is not None:
        return Doing.STARTING  # the next generation is about to be made
    if not status.worlds.is_before_over:
        return Doing.RESCALING
    if not _has_begun(status, last):
        return Doing.STARTING
    head = status.head
    if head is not None and head.is_stalled and head.generation == last.generation:
        return Doing.STALLED
    return Doing.TRAINING


def _has_begun(status: TrainerStatus, last: AssignmentFile) -> bool:
    """Return whether the world of *last* has reported, or its agent says it runs."""
    progress = status.progress
    if progress is not None and progress.generation is not None:
        return progress.generation >= last.generation
    if progress is not None and progress.t is not None:
        return progress.t >= last.created_s
    heartbeat = status.head
    if status.retry is not None:
        return False  # the agent says that it trains while it waits, too
    if heartbeat is None or (status.job is not None and status.job.elastic):
        return False
    is_newest = heartbeat.generation == last.generation
    return heartbeat.state is AgentState.TRAINING and is_newest


def read_trainer_status(
    state: StateDir, row: TrainerRow, *, now_s: float
) -> TrainerStatus:
    """Return the status of the trainer of *row* at *now_s*, Unix time.

    Raises:
        OSError: Its files cannot be read.
    """
    folder = state.trainer(row.name)
    job = job_of(row)
    try:
        worlds = _worlds(folder)
        retry = None if job is None else _retry(folder, job, worlds)
        left_out = {} if job is None else _left_out(folder, job, row, now_s)
    except UnreadableFileError as error:
        return TrainerStatus(row=row, job=job, worlds=Worlds(), problem=str(error))
    if job is None:
        problem = f"{folder.job} is not a job file of this version"
        return TrainerStatus(row=row, job=None, worlds=worlds, problem=problem)
    run_dir, logs = Path(row.run_dir), logs_of(job, folder)
    return TrainerStatus(
        row=row,
        job=job,
        worlds=worlds,
        progress=latest_progress(job, run_dir, logs),
        committed_step=left_over(run_dir, logs).step,
        head=_head(state, worlds),
        pack=None if job.launch.pack is None else read_record(RunDir(run_dir)),
        retry=retry,
        logs=logs,
        left_out=left_out,
    )


def _left_out(
    folder: TrainerDir, job: TrainerJob, row: TrainerRow, now_s: float
) -> dict[int, str]:
    if row.state not in LIVE:
        return {}
    tried = tried_sizes(folder, recent_endings(folder))
    return sizes_left_out(tried, job, now_s=now_s)


def _retry(folder: TrainerDir, job: TrainerJob, worlds: Worlds) -> Retry | None:
    newest = worlds.newest
    if newest is None or not newest.members:
        return None
    is_launched = bool(log_files(logs_of(job, folder), newest.generation))
    if is_launched and worlds.ending is None:
        return None
    launched = [e for e in endings_since_empty(folder) if e.was_launched]
    verdict = judge(launched, job)
    if verdict.is_final or not verdict.times:
        return None
    at_s = launched[-1].ended_s + verdict.wait_s
    return Retry(ending=launched[-1], times=verdict.times, at_s=at_s)


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
    earlier = None if before is None else read_ending(folder, before.generation)
    return Worlds(
        newest=newest, last=last, before=before, ending=ending, before_ending=earlier
    )


def _that_ran(
    folder: TrainerDir, numbers: tuple[int, ...], newest: AssignmentFile
) -> list[AssignmentFile]:
    """Return the two newest generations with members, the newest first."""
    ran = [newest] if newest.members else []
    for number in reversed(numbers[:-1]):
        if len(ran) == 2:  # noqa: PLR2004 - as said
            break
        assigned = read_assigned(folder, number)
        ran += [assigned] if assigned.members else []
    return ran


# Its generations


def generation_history(
    folder: TrainerDir, *, most: int
) -> tuple[tuple[AssignmentFile, GenerationEnding | None], ...]:
    """Return the last *most* generations, the oldest first; damaged ones left out.

    Each has its ending beside it; None where it has not ended, or never ran.

    Raises:
        OSError: A file cannot be read.
    """
    found = []
    for number in generations(folder.assignments)[-most:] if most else ():
        with suppress(UnreadableFileError):
            assigned = read_assigned(folder, number)
            found.append((assigned, read_ending(folder, number)))
    return tuple(found)


# Reasons, and records for programs


def news_of(trainer: TrainerStatus, view: Overview) -> str:
    """Return what *trainer* waits for, or on what it runs; empty for nothing new.

    The text changes only as that does: it has no times.
    """
    newest, retry = trainer.worlds.newest, trainer.retry
    if trainer.doing is Doing.WAITING:
        return _awaited(trainer, view)
    if trainer.doing is Doing.STARTING and retry is not None:
        return f"{_failure_text(retry)}; it is started again"
    if trainer.doing is Doing.STALLED:
        return reason_of(trainer, view)
    if trainer.ended_s is not None or newest is None or not newest.members:
        return ""
    where = ", ".join(member.node for member in newest.members)
    return f"generation {newest.generation} on {where} ({newest.reason})"


def _awaited(trainer: TrainerStatus, view: Overview) -> str:
    line, report = view.of_trainer(trainer.row.name), view.report
    if report is None or line is None or report.at_s < trainer.row.changed_s:
        return "waiting for the next tick, which looks for nodes for it"
    if line.reason == TrainerReason.AWAITS_LEASES:
        unit = "lease" if trainer.job and trainer.job.nodes.gpus_per_lease else "node"
        asked = counted(line.planned_nodes, unit)
        return f"Slurm is asked for {asked}; it starts on them once they are there"
    why = _tick_reason(trainer, line) or "it is about to start."
    return f"waiting: {why} The next tick looks again"


def ending_lines(trainer: TrainerStatus) -> Iterator[str]:
    """Yield how *trainer* ended and when, and where its files are; else nothing."""
    row, job, last = trainer.row, trainer.job, trainer.worlds.last
    if trainer.ended_s is None:
        return
    took = render_duration(max(0.0, trainer.ended_s - row.submitted_s))
    worlds = "" if last is None else f", in generation {last.generation}"
    how = trainer.doing if row.state in LIVE else row.state
    why = row.message or (_ending_text(trainer) if how == Doing.FAILED else "")
    yield f"{how} {took} after it was submitted{worlds}{why and f': {why}'}"
    if last is not None and trainer.logs is not None:
        yield f"what it printed: {trainer.logs}"
    if job is not None and not job.elastic:
        saved = job.checkpoint.path
        yield f"what it saved: {saved or 'where the program puts it'}"
    else:
        yield f"its run directory, with checkpoints: {row.run_dir}"


def reason_of(trainer: TrainerStatus, view: Overview) -> str:
    """Return why *trainer* is as it is; empty where there is nothing to explain."""
    if trainer.problem:
        return trainer.problem
    is_failed = trainer.doing is Doing.FAILED
    if is_failed or trainer.doing is Doing.FINISHED or not trainer.is_wanted:
        return trainer.row.message or (_ending_text(trainer) if is_failed else "")
    if trainer.doing is Doing.STALLED:
        return "it makes no steps any more; if that goes on, it is started again."
    if trainer.doing is Doing.STOPPING and trainer.worlds.newest is not None:
        return trainer.worlds.newest.reason
    if trainer.doing is Doing.STARTING and trainer.retry is not None:
        left_s = trainer.retry.at_s - view.now_s
        when = f"in {render_duration(left_s)}" if left_s >= 1.0 else "now"
        return f"{_failure_text(trainer.retry)}; it is started again {when}."
    return _tick_reason(trainer, view.of_trainer(trainer.row.name))


_LEFT = "it lost its nodes after the last tick; the next one looks for others."


def _tick_reason(trainer: TrainerStatus, line: TrainerLine | None) -> str:
    """Return the last tick's reason; empty where everything goes as planned."""
    if line is None or line.problem:
        return "" if line is None else line.problem
    if line.reason in {"", TrainerReason.AS_PLANNED}:
        has_left = trainer.doing is Doing.WAITING
        return _LEFT if has_left and trainer.generation > line.generation else ""
    if line.reason == TrainerReason.RE_FORMS and trainer.nodes == line.planned_nodes:
        return ""  # the tick moved it after it had looked
    return f"{line.why}."


def _failure_text(retry: Retry) -> str:
    often = "" if retry.times == 1 else f" {retry.times} times in a row"
    why = f": {retry.ending.message}" if retry.ending.message else ""
    return f"it {retry.ending.words}{often}{why}"


def _ending_text(trainer: TrainerStatus) -> str:
    ending = trainer.worlds.ending
    return "" if ending is None else f"{ending.words}: {ending.message}"


def status_record(view: Overview) -> dict[str, Any]:
    """Return the record of ``--json``; unknown values are null."""
    return {
        "now_s": view.now_s,
        "last_tick_s": None if view.report is None else view.report.at_s,
        "is_tick_missing": view.is_tick_missing,
        "forecaster": (view.report.forecaster if view.report else "") or None,
        "leases": {str(state): count for state, count in view.leases.items()},
        "problems": list(view.report.problems) if view.report else [],
        "trainers": [trainer_record(trainer, view) for trainer in view.standings],
    }


def trainer_record(trainer: TrainerStatus, view: Overview) -> dict[str, Any]:
    """Return the record of *trainer* for ``--json``; unknown values are null."""
    newest, ending = trainer.worlds.newest, trainer.worlds.ending
    line = view.of_trainer(trainer.row.name)
    return {
        "name": trainer.row.name,
        "state": str(trainer.row.state),
        "doing": str(trainer.doing),
        "since_s": trainer.since_s,
        "submitted_s": trainer.row.submitted_s,
        "nodes": trainer.nodes,
        "planned_nodes": None if line is None else line.planned_nodes,
        "node_names": [m.node for m in newest.members] if newest else [],
        "generation": trainer.generation,
        "generation_reason": newest.reason if newest else None,
        "generation_author": newest.author if newest else None,
        **_progress_record(trainer),
        "committed_step": trainer.committed_step,
        "last_ending": None if ending is None else str(ending.ended),
        "last_message": None if ending is None else ending.message,
        "reason": reason_of(trainer, view),
        "is_diverging": line is not None and line.is_diverging,
        "sizes_left_out": {str(n): why for n, why in trainer.left_out.items()},
        "bad_metrics": {} if line is None else dict(line.bad_metrics),
        "delivery": _delivery_record(view.delivery_of(trainer.row)),
        "pack": None if trainer.pack is None else pack_record(trainer.pack),
        "run_dir": trainer.row.run_dir,
    }


def _delivery_record(delivery: Delivery | None) -> dict[str, Any] | None:
    if delivery is None:
        return None
    return {
        "stage": str(delivery.stage),
        "reached_s": delivery.reached_s,
        "step": delivery.step,
        "value": delivery.value,
        "checkpoint": delivery.checkpoint or None,
        "problem": delivery.problem or None,
    }


def _progress_record(trainer: TrainerStatus) -> dict[str, Any]:
    progress = trainer.progress
    return {
        "step": progress.step if progress else None,
        "samples": progress.samples if progress else None,
        "epoch": progress.epoch if progress else None,
        "loss": progress.loss if progress else None,
        "told_s": progress.t if progress else None,
        "samples_per_s": trainer.samples_per_s,
    }


def pack_record(pack: PackRecord) -> dict[str, Any]:
    """Return the members of *pack*, for ``--json``; unknown values are null."""
    return {
        "means": pack.means or None,
        "members": [
            {
                "name": name,
                "end": line.end or None,
                "is_over": line.is_over,
                "step": line.steps,
                "samples": line.samples,
                "share": None if line.end else pack.shares.get(name),
                "failures": line.failures,
                "message": line.message or None,
                "is_tried_again": line.again_s is not None,
            }
            for name, line in pack.members.items()
        ],
    }
