"""What an agent knows when it decides; all ages are on its own clock, in seconds."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from freetrain.broker.lease import LeaseKey
from freetrain.elastic.launch import SPARE
from freetrain.errors import UsageError
from freetrain.launch.request import LEASE_MARK, WORLD_MARK
from freetrain.progress import Reader, work_is_done
from freetrain.state.files import GAVE_UP, AgentState, Ended, Ending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from freetrain.config.job import TrainerJob
    from freetrain.state.files import Assigned, Heartbeat, Member


# ----------------------------------------------------------------------
# What an agent does: small records, made by the decisions, carried out at the edge.


@dataclass(frozen=True, slots=True)
class Launch:
    """Start the world of a generation.

    Attributes:
        assigned: The generation.
        after: The generation whose end it waits for before it trains, if any.
    """

    assigned: Assigned
    after: int | None


@dataclass(frozen=True, slots=True)
class StartSpare:
    """Start a spare for the trainer of a generation.

    Attributes:
        assigned: The generation.
    """

    assigned: Assigned


@dataclass(frozen=True, slots=True)
class EndSpare:
    """Have this lease's spare make no more ranks, and end when those it made have."""


@dataclass(frozen=True, slots=True)
class AskToStop:
    """Ask a world that this agent launched to commit and end."""

    trainer: str
    generation: int
    why: str


@dataclass(frozen=True, slots=True)
class RequestStop:
    """Leave the request to stop for a world whose own head is lost."""

    trainer: str
    generation: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill the launcher of a world that this agent launched, and its processes."""

    trainer: str
    generation: int
    why: str


@dataclass(frozen=True, slots=True)
class KillRanks:
    """Kill the ranks on this node of a world that has committed and lingers.

    Its daemons and clients end by that in their order.
    """

    trainer: str
    generation: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """End what is left on this node of a world that is over."""

    trainer: str
    generation: int


@dataclass(frozen=True, slots=True)
class WriteNotice:
    """Say that this lease leaves a generation."""

    trainer: str
    generation: int


@dataclass(frozen=True, slots=True)
class Propose:
    """Create the next generation, unless somebody was first."""

    assigned: Assigned


@dataclass(frozen=True, slots=True)
class WriteEnding:
    """Say that a generation is over.

    Attributes:
        trainer: Whose.
        generation: Which.
        was_launched: Whether its world was ever started.
        was_asked: Whether it had been asked to stop.
        was_killed: Whether this agent killed it.
        lost_lease: Whether it lost a lease.
        is_done: Whether the trainer's work is done.
        exit_code: The launcher's; None where nobody saw it.
        age_s: How long ago it was launched; None where it was not, or elsewhere.
        why: What this agent knows, where the world left no word.
    """

    trainer: str
    generation: int
    was_launched: bool = True
    was_asked: bool = False
    was_killed: bool = False
    lost_lease: bool = False
    is_done: bool = False
    exit_code: int | None = None
    age_s: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class EndLease:
    """End the job of a lease that fell silent: it may be frozen, its node with it."""

    member: Member


@dataclass(frozen=True, slots=True)
class SweepAll:
    """Kill everything of this lease on its node: the time to leave is up."""


@dataclass(frozen=True, slots=True)
class EndOwnJob:
    """Sweep this lease, end its job, and be gone."""

    why: str


Action = (
    Launch
    | StartSpare
    | EndSpare
    | AskToStop
    | RequestStop
    | Kill
    | KillRanks
    | Sweep
    | WriteNotice
    | Propose
    | WriteEnding
    | EndLease
    | SweepAll
    | EndOwnJob
)

# ----------------------------------------------------------------------
# What an agent knows of its own lease when it starts.


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """One lease, as its agent is told of it.

    Attributes:
        key: The lease.
        node: NodeName, or what stands for it.
        host: The host's own name.
        pid: The agent's process number.
        limit_s: Its time limit.
        grace_s: How long it has from Slurm's first word to the kill.
    """

    key: LeaseKey
    node: str
    host: str
    pid: int
    limit_s: float
    grace_s: float


# ----------------------------------------------------------------------
# The two variables that every process of a world carries, and what they say.

# What Open MPI, MPICH's and Slurm's PMI, and starters give to ranks.
_RANKS = (b"OMPI_COMM_WORLD_RANK", b"PMI_RANK", b"PMIX_RANK", b"RANK")
_LEASE = re.compile(r"(.{1,100})-([0-9]{1,10})", re.ASCII)
_WORLD = re.compile(r"([^/\0]{1,200})/([0-9]{1,10})")


@dataclass(frozen=True, slots=True)
class Mark:
    """Whose a process is.

    Attributes:
        lease: The lease on whose node it was started.
        trainer: The trainer.
        generation: The generation, 0 for none.
        is_rank: Whether it is a rank, or stands for one, and no daemon or client.
    """

    lease: LeaseKey
    trainer: str
    generation: int
    is_rank: bool = False


def read_mark(environ: bytes) -> Mark | None:
    """Return the mark in *environ*, as ``/proc/PID/environ`` has it; None for none.

    Whatever else is in it is hostile, and stays unread.
    """
    lease = _LEASE.fullmatch(_value(environ, LEASE_MARK))
    if lease is None:
        return None
    world = _WORLD.fullmatch(_value(environ, WORLD_MARK))
    key = LeaseKey(lease[1], int(lease[2]))
    if world is None:
        return Mark(key, "", 0)
    generation = int(world[2])
    # A fork shows the variables of its spare, but for the generation that it wears.
    is_fork = generation > 0 and b"\0%s=" % SPARE.encode() in environ
    is_rank = is_fork or any(b"\0%s=" % name in environ for name in _RANKS)
    return Mark(key, world[1], generation, is_rank=is_rank)


def _value(environ: bytes, name: str) -> str:
    start = b"\0" + environ
    at = start.find(f"\0{name}=".encode())
    if at < 0:
        return ""
    begin = at + len(name) + 2
    end = start.find(b"\0", begin)
    value = start[begin : end if end >= 0 else len(start)]
    return value.decode("utf-8", "replace")


# ----------------------------------------------------------------------
# How long an agent waits for what; tests and demo are less patient.

VARIABLE = "FREETRAIN_AGENT_PATIENCE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Times that an agent goes by.

    Attributes:
        poll_s: Between two looks.
        beat_s: Between two heartbeats.
        scan_s: Between two looks at the processes of the node.
        silent_s: A heartbeat that does not change for so long is a lost lease.
        stuck_s: A process that is stopped for so long is stuck.
        ready_patience_s: For a member's first heartbeat.
        ahead_patience_s: For a world that was launched ahead to be ready.
        begin_patience_s: For an elastic program to begin, from its launch on. Its
            imports take minutes on some file systems; an mpirun whose ranks end at
            once may wait for them for ever.
        turn_s: Between what one survivor would do and the next one's doing it.
        gather_s: For other leases to get their notice too, before one that leaves makes
            the next generation: Slurm takes several at once.
        farewell_s: For ranks of a world that has committed to end by themselves,
            where a lease of it leaves; three times as long for its daemons.
        rescue_s: For a world whose head is lost to commit and end.
        idle_s: Without work, before the lease is given back.
        sweep_grace_s: Between TERM and KILL for processes of a world that is over.
    """

    poll_s: float = 0.1
    beat_s: float = 1.0
    scan_s: float = 1.0
    silent_s: float = 10.0
    stuck_s: float = 10.0
    ready_patience_s: float = 20.0
    ahead_patience_s: float = 30.0
    begin_patience_s: float = 600.0
    turn_s: float = 1.0
    gather_s: float = 0.15
    farewell_s: float = 0.3
    rescue_s: float = 2.0
    idle_s: float = 900.0
    sweep_grace_s: float = 2.0


def read_patience(text: str) -> Patience:
    """Return the defaults but for what *text* says, ``silent_s=3,stuck_s=3``.

    Raises:
        UsageError: It says something that cannot be.
    """
    known = {field.name for field in fields(Patience)}
    chosen = {}
    for word in filter(None, text.split(",")):
        name, _, value = word.partition("=")
        if name not in known:
            raise _wrong(word, f"names are {', '.join(sorted(known))}")
        chosen[name] = _seconds(word, value)
    return Patience(**chosen)


def _seconds(word: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise _wrong(word, "times are seconds above 0")
    return seconds


def _wrong(word: str, why: str) -> UsageError:
    return UsageError(
        f"{VARIABLE} says {word[:80]!r}: {why}. The agent did not start; correct the "
        f"variable, or unset it."
    )


# ----------------------------------------------------------------------
# Whether a trainer is to be launched again, by how its generations ended.

_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a trainer.

    Attributes:
        is_final: Whether it is not launched any more.
        reason: Why not, for people.
        wait_s: How long after its last end it is launched again.
    """

    is_final: bool = False
    reason: str = ""
    wait_s: float = 0.0


GO_ON = Verdict()


def judge(endings: Iterable[Ending], job: TrainerJob) -> Verdict:
    """Return what becomes of the trainer whose generations ended so.

    Args:
        endings: Since it was last told to run nowhere, in order of generation.
        job: The trainer.
    """
    failures, committed_step, last = 0, 0, None
    for last in endings:
        if last.ended in {Ended.FINISHED, Ended.DO_NOT_RESTART}:
            return Verdict(is_final=True, reason=_said(str(last.ended), last.message))
        if last.committed_step > committed_step or _must_have_committed(last, job):
            failures, committed_step = 0, last.committed_step
        failures += is_failure(last)
    if last is None or not failures:
        return GO_ON
    if job.restart.is_used_up(failures):
        reason = f"{GAVE_UP}, {failures} in a row without a commit"
        return Verdict(is_final=True, reason=_said(reason, last.message))
    return Verdict(wait_s=job.restart.pause_s(failures) if is_failure(last) else 0.0)


def is_failure(ending: Ending) -> bool:
    """Tell whether *ending* counts against the program.

    Losing a lease does not, and neither does being killed for not stopping in time.
    A stop that nobody asked for does, else a program that stops by itself at once
    would be started for ever.
    """
    if ending.lost_lease or ending.ended is Ended.NOT_LAUNCHED:
        return False
    return ending.ended is Ended.FAILED or not ending.was_asked


def _must_have_committed(ending: Ending, job: TrainerJob) -> bool:
    if ending.started_s is None:
        return False
    return job.must_have_committed(ending.ended_s - ending.started_s)


def _said(reason: str, message: str) -> str:
    return f"{reason}: {message}"[:_LONGEST_REASON] if message else reason


# ----------------------------------------------------------------------
# What an agent knows when it decides; all ages are on its own clock, in seconds.

_FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What is known of a lease by its heartbeat.

    Attributes:
        beat: The last one; None before the first.
        silent_s: For how long it has been watched without changing.
        has_beaten: Whether it changed while it was watched, so that its agent is up.
    """

    beat: Heartbeat | None = None
    silent_s: float = 0.0
    has_beaten: bool = False

    @property
    def state(self) -> AgentState | None:
        """What its agent says it is about."""
        return None if self.beat is None else self.beat.state

    @property
    def has_left(self) -> bool:
        """Whether its agent said goodbye."""
        return self.state is AgentState.ENDED

    def is_lost(self, patience: Patience) -> bool:
        """Tell whether it has been silent for too long, or never came."""
        if self.has_left:
            return False
        came = self.beat is not None
        limit_s = patience.silent_s if came else patience.ready_patience_s
        return self.silent_s >= limit_s


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSeen:
    """A world that this agent launched.

    Attributes:
        age_s: Since its launch.
        after: The generation it waits for before it trains, if any.
        asked_s: Since it was asked to stop; None if it was not.
        killed_s: Since it was killed; None if it was not.
        exit_s: Since its launcher was first seen gone; None while it runs.
        exit_code: The launcher's exit status.
        lingers: Whether clients of its steps are left, where the launcher is gone.
    """

    age_s: float
    after: int | None = None
    asked_s: float | None = None
    killed_s: float | None = None
    exit_s: float | None = None
    exit_code: int | None = None
    lingers: bool = False


@dataclass(frozen=True, slots=True)
class SpareSeen:
    """This lease's spare.

    Attributes:
        trainer: Whose ranks it makes.
        generation: The one that it was started beside.
        is_asked: Whether it was told to make no more.
    """

    trainer: str
    generation: int
    is_asked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSeen:
    """One generation that matters.

    Attributes:
        assigned: Its leases.
        age_s: Since this agent first saw it.
        is_over: Whether it has an ending.
        outcome: How its world ended, by its own word; empty while it left none.
        said_s: Since this agent first saw that word; 0 while there is none.
        is_ready: Whether its world, launched ahead, waits with all ranks.
        has_begun: Whether its program left a sign of life, or could not.
        is_stop_requested: Whether the request to stop is there for its world.
        notices: Leases that must leave it.
        processes: How many processes of it this lease has on this node.
        world: Its world, where this agent launched it.
    """

    assigned: Assigned
    age_s: float = 0.0
    is_over: bool = False
    outcome: str = ""
    said_s: float = 0.0
    is_ready: bool = False
    has_begun: bool = False
    is_stop_requested: bool = False
    notices: frozenset[LeaseKey] = frozenset()
    processes: int = 0
    world: WorldSeen | None = None

    @property
    def number(self) -> int:
        """Its number."""
        return self.assigned.generation

    @property
    def ended_well(self) -> bool:
        """Whether its world says that it ended, and not by an error."""
        return self.outcome not in {"", _FAILED}

    def has_said_goodbye(self, patience_s: float) -> bool:
        """Tell whether all is committed, and that was *patience_s* ago."""
        return self.ended_well and self.said_s >= patience_s

    @property
    def has_members(self) -> bool:
        """Whether it is to run anywhere."""
        return bool(self.assigned.members)

    def is_headed_by(self, key: LeaseKey) -> bool:
        """Tell whether the agent of *key* launches it."""
        head = self.assigned.head
        return head is not None and head.key == key


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSeen:
    """A trainer that this agent has to do with.

    Attributes:
        job: What its user wrote.
        newest: Its newest generation.
        earlier: Those before it that are not over, or whose world this agent still
            has, ascending.
        previous: The one right before the newest; None where there is none.
        verdict: Whether it is to be launched again.
        failed: Its newest generation that failed; 0 for none.
        is_done: Whether its work is done.
        since_end_s: Since this agent first saw its newest ending.
        must_leave: Whether this lease must leave it, for another or for good.
        unix_s: Now, for the files.
    """

    job: TrainerJob
    newest: GenerationSeen
    earlier: tuple[GenerationSeen, ...] = ()
    previous: Assigned | None = None
    verdict: Verdict = GO_ON
    failed: int = 0
    is_done: bool = False
    since_end_s: float = 0.0
    must_leave: bool = False
    unix_s: float = 0.0

    @property
    def name(self) -> str:
        """Its name."""
        return self.newest.assigned.trainer

    @property
    def generations(self) -> tuple[GenerationSeen, ...]:
        """All that matter, ascending."""
        return (*self.earlier, self.newest)

    @property
    def open(self) -> tuple[GenerationSeen, ...]:
        """Those before the newest that are not over."""
        return tuple(g for g in self.earlier if not g.is_over and g.has_members)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """All that an agent knows.

    Attributes:
        me: This lease.
        trainers: Those it has to do with.
        peers: Other leases of their generations.
        stuck: Trainers and generations of which processes here have been stopped for
            too long.
        leaving_s: Since it was told to leave; None if it was not.
        bound_s: How long leaving may take.
        idle_s: Since it last had a trainer.
        ended_leases: Leases whose jobs it has ended already.
        spare: Its spare, also one that has ended by itself; None without one.
    """

    me: LeaseKey
    trainers: tuple[TrainerSeen, ...] = ()
    peers: Mapping[LeaseKey, Peer]
    stuck: frozenset[tuple[str, int]] = frozenset()
    leaving_s: float | None = None
    bound_s: float = 30.0
    idle_s: float = 0.0
    ended_leases: frozenset[LeaseKey] = frozenset()
    spare: SpareSeen | None = None

    def peer(self, key: LeaseKey) -> Peer:
        """Return what is known of *key*; this lease itself is there, of course."""
        if key == self.me:
            return Peer(has_beaten=True)
        return self.peers.get(key, Peer())

    def is_lost(self, member: Member, patience: Patience) -> bool:
        """Tell whether *member* is silent; this lease itself never is."""
        return member.key != self.me and self.peer(member.key).is_lost(patience)

    def occupied_by(self, *, but: str) -> tuple[str, int] | None:
        """Return the generation of another trainer than *but* that this lease has.

        While it is not over, or has processes here, the next one has to wait.
        """
        for trainer in self.trainers:
            for generation in trainer.generations if trainer.name != but else ():
                has_part = self.me in generation.assigned.keys
                if (has_part and not generation.is_over) or generation.processes:
                    return trainer.name, generation.number
        return None

    def is_leaving(
        self, trainer: TrainerSeen, generation: GenerationSeen, key: LeaseKey
    ) -> bool:
        """Tell whether *key* leaves *generation* of *trainer*, or has left."""
        if key == self.me:
            return trainer.must_leave
        leaves = {AgentState.LEAVING, AgentState.ENDED}
        return self.peer(key).state in leaves or key in generation.notices


# ----------------------------------------------------------------------
# Whether other agents are alive: by their heartbeats changing, on one's own clock.

_MOST_STEP_S = 2.0


class Pulse:
    """Watches one heartbeat.

    Silence is added up from look to look, and one step counts no more than two
    seconds: an agent that was frozen itself must not take the others for dead when
    it wakes up.
    """

    def __init__(self, *, now_s: float) -> None:
        """Begin to watch at *now_s*."""
        self._peer = Peer()
        self._looked_s = now_s

    @property
    def peer(self) -> Peer:
        """What is known."""
        return self._peer

    def look(self, beat: Heartbeat | None, *, now_s: float) -> None:
        """Take the heartbeat as it was found at *now_s*."""
        before = self._peer
        step_s = min(max(0.0, now_s - self._looked_s), _MOST_STEP_S)
        self._looked_s = now_s
        if beat is not None and _number(beat) != _number(before.beat):
            is_change = before.beat is not None
            self._peer = Peer(beat=beat, has_beaten=before.has_beaten or is_change)
            return
        self._peer = Peer(
            beat=before.beat,
            silent_s=before.silent_s + step_s,
            has_beaten=before.has_beaten,
        )

    def skip(self, *, now_s: float) -> None:
        """Let the time until *now_s* pass for nothing: nobody could look."""
        self._looked_s = now_s


def _number(beat: Heartbeat | None) -> tuple[int, int] | None:
    return None if beat is None else (beat.pid, beat.beat)


# ----------------------------------------------------------------------
# Whether a trainer has done what its user asked for: samples, epochs, or time.

_AGAIN_S = 1.0


class WorkGauge:
    """Reads a trainer's progress once a second, and remembers the answer."""

    def __init__(
        self,
        job: TrainerJob,
        run_dir: Path,
        logs: Path,
        *,
        elapsed_s: Callable[[], float],
    ) -> None:
        """Take the trainer, where it tells its progress, and a clock."""
        self._work = job.work
        self._reader = Reader(job, run_dir, logs)
        self._elapsed_s = elapsed_s
        self._due_s = 0.0
        self._is_done = False

    def is_done(self, endings: Iterable[Ending], *, running_s: float = 0.0) -> bool:
        """Tell whether the work is done.

        Args:
            endings: Of all its generations that are over.
            running_s: For how long the present world has run.
        """
        now_s = self._elapsed_s()
        if not self._is_done and now_s >= self._due_s:
            self._due_s = now_s + _AGAIN_S
            self._reader.read()
            is_told = work_is_done(self._work, self._reader.latest())
            self._is_done = is_told or self._is_out_of_time(endings, running_s)
        return self._is_done

    def _is_out_of_time(self, endings: Iterable[Ending], running_s: float) -> bool:
        limit_s = self._work.time_limit_s
        if limit_s is None:
            return False
        return running_s + sum(map(_ran_s, endings)) >= limit_s


def _ran_s(ending: Ending) -> float:
    if ending.started_s is None:
        return 0.0
    return max(0.0, ending.ended_s - ending.started_s)
