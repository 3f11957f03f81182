"""``freetrain drill``: rehearse a preemption.

The agent of one lease gets the signal that a preemption would send. A ``Drill`` then
watches the trainer's files, and ``problems_of`` judges what it saw.
"""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer

from freetrain.broker.lease import job_name
from freetrain.cli.context import (
    CliContext,
    json_text,
    nodes_text,
    write_out,
)
from freetrain.client.status import Doing, TrainerStatus, overview
from freetrain.client.trainers import author_text
from freetrain.config.job import TrainerJob, size_within
from freetrain.errors import TryLaterError, UsageError
from freetrain.formats import ProgressRecord
from freetrain.launch.base import logs_of, run_dir_of
from freetrain.progress import ProgressReader
from freetrain.state.files import (
    AgentState,
    AssignedLease,
    AssignmentFile,
    GenerationEnding,
    StateDir,
    UnreadableFileError,
    lease_name,
    newest_assigned,
    read_ending,
    read_heartbeat,
)
from freetrain.state.tables import TrainerState
from freetrain.text import closest, one_line, shown
from freetrain.tick.environment import slurm_connector
from freetrain.tick.leases import NOTICE
from slurm.backend import SlurmBackend
from slurm.records import JobRecord

EVERY_S = 0.1
ASK_EVERY_S = 2.0
"""Slurm is asked no more often than that, and only until the lease is gone."""

MOST_REQUESTS = 200
FAILED = 1


def run_drill(  # noqa: PLR0913 - one parameter an option
    context: CliContext,
    config: Path | None,
    trainer: str,
    *,
    lease: str,
    patience_s: float,
    as_json: bool,
) -> None:
    """Take a lease from *trainer*, and show what it does until it trains again.

    Raises:
        typer.Exit: It did not do what it should.
    """
    state = StateDir(context.site(config).state_directory)
    view = overview(state, name=trainer, uid=context.uid, now_s=context.now_s())
    chosen = choose(state, view.standings[0], lease=lease)
    backend = slurm_connector(context.environ)(MOST_REQUESTS)
    job = _running_job(backend, chosen, context.uid)
    if not as_json:
        write_out(context, _opening(chosen))
    begun_s = context.clock()
    backend.signal([job.key], NOTICE)
    chosen.note(DrillMark.NOTIFIED, 0.0)
    for marks in _follow(
        chosen, backend, context, begun_s=begun_s, patience_s=patience_s
    ):
        for mark in () if as_json else marks:
            line = f"{chosen.seen_s[mark]:7.1f} s  {mark}{_details(chosen, mark)}"
            write_out(context, f"{line}\n")
    problems = problems_of(chosen, patience_s=patience_s)
    if as_json:
        write_out(context, json_text(_record(chosen, problems)))
    else:
        lines = [f"{one_line(line)}\n" for line in _closing(chosen, problems)]
        write_out(context, "".join(lines))
    if problems:
        raise typer.Exit(FAILED)


def _running_job(backend: SlurmBackend, chosen: "Drill", uid: int) -> JobRecord:
    """Return the lease's job as Slurm has it now: ours, and running."""
    for job in backend.find_by_name(job_name(chosen.lease.key.uuid)):
        is_it = job.display_id == chosen.lease.display_id
        if is_it and job.uid == uid and job.holds_nodes:
            return job
    raise TryLaterError(
        f"Slurm does not show the lease on {chosen.lease.node} "
        f"({chosen.lease.display_id}) as running. Nothing was done. Try again after "
        f"the next tick."
    )


def _follow(
    chosen: "Drill",
    backend: SlurmBackend,
    context: CliContext,
    *,
    begun_s: float,
    patience_s: float,
) -> Iterator[tuple["DrillMark", ...]]:
    """Yield the new marks of each poll, until the drill is complete or time is up."""
    yield (DrillMark.NOTIFIED,)
    asked_s = 0.0
    while (now_s := context.clock() - begun_s) < patience_s:
        marks = chosen.poll(now_s)
        if now_s - asked_s >= ASK_EVERY_S and DrillMark.GONE not in chosen.seen_s:
            asked_s = now_s
            if _is_gone(backend, chosen.lease):
                chosen.note(DrillMark.GONE, context.clock() - begun_s)
                marks = (*marks, DrillMark.GONE)
        yield marks
        if chosen.is_complete:
            return
        context.sleep(EVERY_S)


def _is_gone(backend: SlurmBackend, lease: AssignedLease) -> bool:
    found = backend.find_by_name(job_name(lease.key.uuid))
    same = [job for job in found if job.display_id == lease.display_id]
    return all(job.has_ended for job in same)


# Watching the files of a trainer


class DrillMark(StrEnum):
    """The events of a drill, in the order in which they should come."""

    NOTIFIED = "told to leave"
    HEARD = "its agent heard it"
    RE_FORMED = "the next generation was made"
    ASKED = "its world was asked to stop"
    OVER = "the world was over"
    LEFT = "its agent left"
    GONE = "the lease was gone from Slurm"
    BACK = "it trained again"


class Drill:
    """A lease that a trainer is to lose, and when each mark was first seen.

    Attributes:
        assigned: The generation that loses the lease.
        seen_s: When each mark was seen, on the caller's clock.
        ending: How the generation ended; None before.
        next: The generation after it; None before.
        last_step: The last step reported before the lease was lost.
        restored_step: Where the next generation began.
        pause_s: From the last step before to the first step after, by the program's
            own clocks; None until then.
    """

    def __init__(
        self,
        state: StateDir,
        job: TrainerJob,
        assigned: AssignmentFile,
        lease: AssignedLease,
    ) -> None:
        """Take the lease and its trainer; read the progress reported so far."""
        self.job = job
        self.assigned = assigned
        self.lease = lease
        self.seen_s: dict[DrillMark, float] = {}
        self.ending: GenerationEnding | None = None
        self.next: AssignmentFile | None = None
        self.last_step = 0
        self.restored_step: int | None = None
        self.pause_s: float | None = None
        self._last_t: float | None = None
        self._heartbeat = state.lease(lease.key).heartbeat
        self._folder = state.trainer(assigned.trainer)
        self._run = run_dir_of(job, self._folder)
        logs = Path(logs_of(job, self._folder))
        self._reader = ProgressReader(job, self._run.path, logs)
        while self._reader.is_behind:
            self._take(self._reader.read(), now_s=0.0)

    @property
    def nodes_left(self) -> int:
        """How many nodes the trainer can go on with, without a tick."""
        left = len(self.assigned.members) - 1
        return size_within(self.job.nodes.sizes, left)

    @property
    def is_complete(self) -> bool:
        """Whether no more marks are waited for."""
        return {DrillMark.BACK, DrillMark.GONE} <= self.seen_s.keys()

    @property
    def lost_steps(self) -> int:
        """Steps that were done before and had to be done again."""
        if self.restored_step is None:
            return 0
        done = self.last_step if self.ending is None else self.ending.step
        return max(0, max(done, self.last_step) - self.restored_step)

    def note(self, mark: DrillMark, now_s: float) -> None:
        """Note that *mark* was seen, if it is the first time."""
        self.seen_s.setdefault(mark, now_s)

    def poll(self, now_s: float) -> tuple[DrillMark, ...]:
        """Read the files; return the marks that were not there before.

        Raises:
            OSError: A file cannot be read.
        """
        before = set(self.seen_s)
        self._look_at_files(now_s)
        self._take(self._reader.read(), now_s=now_s)
        return tuple(mark for mark in DrillMark if mark in self.seen_s.keys() - before)

    def _look_at_files(self, now_s: float) -> None:
        generation = self.assigned.generation
        if self._folder.notice(generation, self.lease.key).exists():
            self.note(DrillMark.HEARD, now_s)
        if self._run.stop_request(generation).exists():
            self.note(DrillMark.ASKED, now_s)
        try:
            newest = newest_assigned(self._folder)
            self.ending = self.ending or read_ending(self._folder, generation)
            heartbeat = read_heartbeat(self._heartbeat)
        except UnreadableFileError:  # status reports it; the next poll may succeed
            return
        if newest is not None and newest.generation > generation:
            self.next = newest
            self.note(DrillMark.RE_FORMED, now_s)
        if self.ending is not None:
            self.note(DrillMark.OVER, now_s)
        if heartbeat is not None and heartbeat.state is AgentState.ENDED:
            self.note(DrillMark.LEFT, now_s)

    def _take(self, records: tuple[ProgressRecord, ...], *, now_s: float) -> None:
        for record in records:
            if record.step is None:
                continue
            if (record.generation or 0) <= self.assigned.generation:
                self.last_step = record.step
                self._last_t = record.t
            else:
                self._take_after(record, record.step, now_s)

    def _take_after(self, record: ProgressRecord, step: int, now_s: float) -> None:
        if self.restored_step is None:
            # An elastic program reports where it begins, others their first step.
            self.restored_step = step if self.job.elastic else step - 1
        if step > self.restored_step and DrillMark.BACK not in self.seen_s:
            self.note(DrillMark.BACK, now_s)
            if record.t is not None and self._last_t is not None:
                self.pause_s = record.t - self._last_t


def choose(state: StateDir, status: TrainerStatus, *, lease: str = "") -> Drill:
    """Return the drill for a trainer, of its last lease or of the one that is named.

    The first lease is the head's. *lease* is a lease or its node, as ``freetrain
    status`` names them.

    Raises:
        TryLaterError: The trainer does not train now.
        UsageError: It has ended, or has no such lease.
    """
    name, newest, job = status.row.name, status.worlds.newest, status.job
    # Its end counts even if no tick has written that down yet.
    has_ended = {TrainerState.FINISHED, TrainerState.FAILED, TrainerState.CANCELLED}
    if status.row.state in has_ended or status.doing in {Doing.FINISHED, Doing.FAILED}:
        raise UsageError(
            f"{name} is {status.doing}: only what trains can rehearse losing a node. "
            f"Nothing was done. Name one that trains; `freetrain status` shows them."
        )
    if status.doing is not Doing.TRAINING or newest is None or job is None:
        raise TryLaterError(
            f"{name} is {status.doing}: only what trains can rehearse losing a node. "
            f"Nothing was done. Try again when `freetrain status {name}` says training."
        )
    chosen = _lease_named(newest, lease) if lease else newest.members[-1]
    return Drill(state, job, newest, chosen)


def _lease_named(assigned: AssignmentFile, name: str) -> AssignedLease:
    known = {lease_name(member.key): member for member in assigned.members}
    known |= {member.node: member for member in assigned.members}
    if name in known:
        return known[name]
    nodes = ", ".join(member.node for member in assigned.members)
    raise UsageError(
        f"{assigned.trainer} has no lease {shown(name)}; it is on {nodes}. Nothing "
        f"was done.{closest(name, known)}"
    )


# Judging and showing what was seen


def problems_of(chosen: Drill, *, patience_s: float) -> list[str]:
    """Return each thing that went wrong, and what to do; empty if all went well."""
    name, stop = chosen.assigned.trainer, chosen.job.stop
    problems = []
    if chosen.lost_steps:
        problems.append(
            f"{chosen.lost_steps} steps were done again: the program did not commit on "
            f"its way out. It gets {stop.kill_after_s:g} s ([stop] kill_after), or "
            f"what Slurm grants. See that it obeys {stop.signal}: `freetrain logs "
            f"{name}`."
        )
    if DrillMark.HEARD not in chosen.seen_s and DrillMark.LEFT not in chosen.seen_s:
        problems.append(
            f"the agent did not hear of it; see `freetrain logs {name} --agent`."
        )
    elif DrillMark.GONE not in chosen.seen_s:
        problems.append(
            f"the lease was not gone after {patience_s:g} s: on a preemption others "
            f"would wait for it. See `freetrain logs {name} --agent`."
        )
    if DrillMark.BACK in chosen.seen_s:
        return problems
    if chosen.nodes_left:
        problems.append(
            f"{name} did not train again within {patience_s:g} s. See `freetrain logs "
            f"{name}` and `freetrain explain {name}`."
        )
    else:
        problems.append(
            f"{name} did not train again within {patience_s:g} s: it was at its "
            f"smallest size, so that a tick must find it other nodes. Is there a hole "
            f"(`freetrain holes`), and do ticks run (`freetrain status`)?"
        )
    return problems


def _details(chosen: Drill, mark: DrillMark) -> str:
    match mark:
        case DrillMark.RE_FORMED if chosen.next is not None:
            made = chosen.next
            nodes = nodes_text(len(made.members))
            text = f": {made.generation}, on {nodes}, by {author_text(made.author)}"
        case DrillMark.OVER if chosen.ending is not None:
            ending = chosen.ending
            text = f": {ending.words}, step {ending.step:,}"
            text += f", committed {ending.committed_step:,}"
        case DrillMark.BACK:
            text = f", from step {chosen.restored_step or 0:,} on"
        case _:
            text = ""
    return one_line(text) if text else ""


def _opening(chosen: Drill) -> str:
    name, nodes = chosen.assigned.trainer, nodes_text(len(chosen.assigned.members))
    text = (
        f"{name} trains on {nodes}; the lease on {chosen.lease.node} (job "
        f"{chosen.lease.display_id}) is told to leave, as on a preemption."
    )
    if not chosen.nodes_left:
        text += " It is at its smallest size: it will need a tick to go on."
    return f"{one_line(text)}\n"


def _closing(chosen: Drill, problems: list[str]) -> list[str]:
    pause = "" if chosen.pause_s is None else f"Pause {chosen.pause_s:.1f} s. "
    if problems:
        return [f"{pause}The drill failed:", *problems]
    return [f"{pause}No work was lost."]


def _record(chosen: Drill, problems: list[str]) -> dict[str, Any]:
    """Return the record of ``--json``; marks that were not seen are null."""
    return {
        "trainer": chosen.assigned.trainer,
        "generation": chosen.assigned.generation,
        "lease": chosen.lease.display_id,
        "node": chosen.lease.node,
        "nodes_before": len(chosen.assigned.members),
        "nodes_after": None if chosen.next is None else len(chosen.next.members),
        "seen_s": {mark.name.lower(): chosen.seen_s.get(mark) for mark in DrillMark},
        "pause_s": chosen.pause_s,
        "last_step": chosen.last_step,
        "restored_step": chosen.restored_step,
        "lost_steps": chosen.lost_steps,
        "problems": problems,
    }
