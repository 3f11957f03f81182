"""Rehearsing a preemption: choose a lease, watch the files, and judge what was seen.

The command tells the lease to leave as a preemption would; this module asks Slurm for
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.client.status import Doing
from freetrain.errors import TryLaterError, UsageError
from freetrain.launch.base import logs_of, run_dir_of
from freetrain.progress import Reader
from freetrain.state.files import (
    AgentState,
    UnreadableFileError,
    lease_name,
    newest_assigned,
    read_ending,
    read_heartbeat,
)
from freetrain.state.tables import TrainerState
from freetrain.text import closest, shown

if TYPE_CHECKING:
    from freetrain.client.status import TrainerStatus
    from freetrain.config.job import TrainerJob
    from freetrain.progress import ProgressRecord
    from freetrain.state.files import (
        Assigned,
        AssignedLease,
        GenerationEnding,
        StateDir,
    )


class DrillMark(StrEnum):
    """What a drill waits for, in the order in which it should come."""

    TOLD = "told to leave"
    HEARD = "its agent heard it"
    RE_FORMED = "the next generation was made"
    ASKED = "its world was asked to stop"
    OVER = "the world was over"
    LEFT = "its agent left"
    GONE = "the lease was gone from Slurm"
    BACK = "it trained again"


_ENDED = {TrainerState.FINISHED, TrainerState.FAILED, TrainerState.CANCELLED}
"""They do not train again by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """One lease that a trainer is to lose.

    Attributes:
        assigned: The generation that loses a lease.
        member: The lease that it is to lose.
    """

    state: StateDir
    job: TrainerJob
    assigned: Assigned
    member: AssignedLease

    @property
    def generation(self) -> int:
        """The number of the generation that loses a lease."""
        return self.assigned.generation

    @property
    def nodes_left(self) -> int:
        """How many nodes the trainer can go on with, without a tick."""
        left = len(self.assigned.members) - 1
        return max((n for n in self.job.nodes.sizes if n <= left), default=0)


def choose(state: StateDir, status: TrainerStatus, *, lease: str = "") -> Drill:
    """Return the drill for a trainer; any lease but the head's, unless one is named.

    Args:
        state: The state directory.
        status: The trainer as it is now.
        lease: A lease or its node, as ``freetrain status`` names them.

    Raises:
        TryLaterError: It does not train now, so there is nothing to rehearse.
        UsageError: It has ended, or has no such lease.
    """
    name, newest, job = status.row.name, status.worlds.newest, status.job
    if _has_ended(status):
        raise UsageError(
            f"{name} is {status.doing}: only what trains can rehearse losing a node. "
            f"Nothing was done. Name one that trains; `freetrain status` shows them."
        )
    if status.doing is not Doing.TRAINING or newest is None or job is None:
        raise TryLaterError(
            f"{name} is {status.doing}: only what trains can rehearse losing a node. "
            f"Nothing was done. Try again when `freetrain status {name}` says training."
        )
    member = _member(newest, lease) if lease else newest.members[-1]
    return Drill(state=state, job=job, assigned=newest, member=member)


def _has_ended(status: TrainerStatus) -> bool:
    """Tell whether a trainer has ended, even if no tick has written that down yet."""
    has_ended = status.doing in {Doing.FINISHED, Doing.FAILED}
    return has_ended or status.row.state in _ENDED


def _member(assigned: Assigned, named: str) -> AssignedLease:
    known = {lease_name(member.key): member for member in assigned.members}
    known |= {member.node: member for member in assigned.members}
    if named in known:
        return known[named]
    nodes = ", ".join(member.node for member in assigned.members)
    raise UsageError(
        f"{assigned.trainer} has no lease {shown(named)}; it is on {nodes}. Nothing "
        f"was done.{closest(named, known)}"
    )


@dataclass(slots=True)
class Watch:
    """Polls the files, and notes when each mark was first seen.

    Attributes:
        seen_s: When each mark was seen, on the caller's clock.
        ending: How the generation ended, once it has.
        next: The generation after it, once it is there.
        last_step: The last step reported before the lease was lost.
        restored_step: Where the next generation began.
        pause_s: From the last step before to the first step after, by the program's
            own clocks; None until then.
    """

    drill: Drill
    seen_s: dict[DrillMark, float] = field(default_factory=dict)
    ending: GenerationEnding | None = None
    next: Assigned | None = None
    last_step: int = 0
    restored_step: int | None = None
    pause_s: float | None = None
    _last_t: float | None = None
    _reader: Reader = field(init=False)

    def __post_init__(self) -> None:
        """Read the progress reported so far."""
        drill = self.drill
        folder = drill.state.trainer(drill.assigned.trainer)
        run_dir = run_dir_of(drill.job, folder).path
        self._reader = Reader(drill.job, run_dir, Path(logs_of(drill.job, folder)))
        while self._reader.is_behind:
            self._take(self._reader.read(), now_s=0.0)

    def look(self, now_s: float) -> tuple[DrillMark, ...]:
        """Poll once more; return the marks that were not there before.

        Raises:
            OSError: A file cannot be read.
        """
        before = set(self.seen_s)
        self._look_at_files(now_s)
        self._take(self._reader.read(), now_s=now_s)
        return tuple(mark for mark in DrillMark if mark in self.seen_s.keys() - before)

    def note(self, mark: DrillMark, now_s: float) -> None:
        """Note that *mark* was seen, if it is the first time."""
        self.seen_s.setdefault(mark, now_s)

    def _look_at_files(self, now_s: float) -> None:
        drill = self.drill
        folder = drill.state.trainer(drill.assigned.trainer)
        if folder.notice(drill.generation, drill.member.key).exists():
            self.note(DrillMark.HEARD, now_s)
        if run_dir_of(drill.job, folder).stop_request(drill.generation).exists():
            self.note(DrillMark.ASKED, now_s)
        try:
            newest = newest_assigned(folder)
            self.ending = self.ending or read_ending(folder, drill.generation)
            beat = read_heartbeat(drill.state.lease(drill.member.key).heartbeat)
        except UnreadableFileError:  # status reports it; the next poll may succeed
            return
        if newest is not None and newest.generation > drill.generation:
            self.next = newest
            self.note(DrillMark.RE_FORMED, now_s)
        if self.ending is not None:
            self.note(DrillMark.OVER, now_s)
        if beat is not None and beat.state is AgentState.ENDED:
            self.note(DrillMark.LEFT, now_s)

    def _take(self, records: tuple[ProgressRecord, ...], *, now_s: float) -> None:
        for record in records:
            is_before = (record.generation or 0) <= self.drill.generation
            if record.step is None:
                continue
            if is_before:
                self.last_step = record.step
                self._last_t = record.t
            else:
                self._take_after(record, record.step, now_s)

    def _take_after(self, record: ProgressRecord, step: int, now_s: float) -> None:
        if self.restored_step is None:
            # An elastic program reports where it begins, others their first step.
            self.restored_step = step if self.drill.job.elastic else step - 1
        if step > self.restored_step and DrillMark.BACK not in self.seen_s:
            self.note(DrillMark.BACK, now_s)
            if record.t is not None and self._last_t is not None:
                self.pause_s = record.t - self._last_t

    @property
    def is_complete(self) -> bool:
        """Whether nothing more is waited for."""
        return {DrillMark.BACK, DrillMark.GONE} <= self.seen_s.keys()

    @property
    def lost_steps(self) -> int:
        """Steps that were done before and had to be done again."""
        if self.restored_step is None:
            return 0
        done = self.last_step if self.ending is None else self.ending.step
        return max(0, max(done, self.last_step) - self.restored_step)


def verdict(watch: Watch, *, patience_s: float) -> tuple[str, ...]:
    """Return what went wrong, and what to do; nothing if all went well."""
    return tuple(_problems(watch, patience_s))


def _problems(watch: Watch, patience_s: float) -> list[str]:
    name, stop = watch.drill.assigned.trainer, watch.drill.job.stop
    problems = []
    if watch.lost_steps:
        problems.append(
            f"{watch.lost_steps} steps were done again: the program did not commit on "
            f"its way out. It gets {stop.kill_after_s:g} s ([stop] kill_after), or "
            f"what Slurm grants. See that it obeys {stop.signal}: `freetrain logs "
            f"{name}`."
        )
    if DrillMark.HEARD not in watch.seen_s and DrillMark.LEFT not in watch.seen_s:
        problems.append(
            f"the agent did not hear of it; see `freetrain logs {name} --agent`."
        )
    elif DrillMark.GONE not in watch.seen_s:
        problems.append(
            f"the lease was not gone after {patience_s:g} s: on a preemption others "
            f"would wait for it. See `freetrain logs {name} --agent`."
        )
    if DrillMark.BACK not in watch.seen_s:
        problems.append(_not_back(watch, patience_s))
    return problems


def _not_back(watch: Watch, patience_s: float) -> str:
    name = watch.drill.assigned.trainer
    if not watch.drill.nodes_left:
        return (
            f"{name} did not train again within {patience_s:g} s: it was at its "
            f"smallest size, so that a tick must find it other nodes. Is there a hole "
            f"(`freetrain holes`), and do ticks run (`freetrain status`)?"
        )
    return (
        f"{name} did not train again within {patience_s:g} s. See `freetrain logs "
        f"{name}` and `freetrain explain {name}`."
    )
