"""The knowledge by which an agent decides; all ages are on its own clock, in seconds.

The agent makes one ``Observation`` in each turn from files, heartbeats and processes;
``rules`` decides by nothing else. Part of it is how generations ended: an agent writes
an ending for each generation that it heads, from its own knowledge and the outcome
that the world left, and every agent comes to the same verdict from them on whether the
trainer is launched again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from freetrain.errors import UsageError
from freetrain.state.files import (
    GAVE_UP,
    KILLED_OUTSIDE,
    AgentState,
    EndingKind,
    GenerationEnding,
    TriedSize,
    all_sizes,
)
from freetrain.text import HOUR_S

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from freetrain.broker.lease import LeaseKey
    from freetrain.config.job import TrainerJob
    from freetrain.state.files import (
        AssignedLease,
        AssignmentFile,
        Heartbeat,
        TickSign,
    )


_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a trainer is launched again.

    Attributes:
        is_final: Whether it is not.
        reason: Why not, for people.
        wait_s: How long after its last world ended it is launched again: the back-off.
        times: How often in a row it has failed, or been killed; 0 where it may run.
    """

    is_final: bool = False
    reason: str = ""
    wait_s: float = 0.0
    times: int = 0


MAY_RUN = Verdict()

_MOST_KILLS = 10  # by then, hours later, they are meant, or their cause is not seen


def judge(endings: Iterable[GenerationEnding], job: TrainerJob) -> Verdict:
    """Return whether the trainer whose generations ended so is launched again.

    Generations that were not launched, as leases came or went meanwhile, say nothing of
    the program: it waits for its next attempt as long as without them.

    Args:
        endings: Since the last generation without leases, in order of generation.
        job: The trainer.
    """
    failures, kills, committed_step, last = 0, 0, 0, None
    spared = 0  # the size whose failures do not count
    tried: tuple[TriedSize, ...] = ()
    for last in (ending for ending in endings if ending.was_launched):
        tried = all_sizes((*tried, *last.tried))
        if last.ended in {EndingKind.FINISHED, EndingKind.DO_NOT_RESTART}:
            return Verdict(is_final=True, reason=_reason(str(last.ended), last.message))
        is_of_size = _is_of_size(last, tried)
        has_run = must_have_committed(last, job) and not is_of_size
        if last.committed_step > committed_step or has_run:
            failures, kills, committed_step = 0, 0, last.committed_step
            spared = 0
        if not is_failure(last):
            spared = 0
        elif is_of_size and spared in {0, last.leases}:
            spared = last.leases
        else:
            failures += 1
        kills += is_killed_outside(last)
    if last is None:
        return MAY_RUN
    if job.restart.is_used_up(failures) or kills >= _MOST_KILLS:
        reason = f"{GAVE_UP}, {max(failures, kills)} in a row without a commit"
        return Verdict(is_final=True, reason=_reason(reason, last.message))
    left_out = sizes_left_out(tried, job, now_s=last.ended_s)
    if is_failure(last) and last.leases not in left_out:
        failures = max(1, failures)
        return Verdict(wait_s=job.restart.pause_s(failures), times=failures)
    if is_killed_outside(last) and kills > 1:
        return Verdict(wait_s=job.restart.pause_s(kills - 1), times=kills)
    return MAY_RUN


def is_failure(ending: GenerationEnding) -> bool:
    """Tell whether *ending* counts against the program.

    Losing a lease does not, and neither does being killed from outside, or for not
    stopping in time.
    A stop that was not asked for does, else a program that stops by itself at once
    would be started for ever.
    """
    if ending.lost_lease or not ending.was_launched:
        return False
    return ending.ended is EndingKind.FAILED or not ending.was_asked


_SIZE_ATTEMPTS = 2
LEFT_OUT_S = 6 * HOUR_S
"""After so long a size may be tried once more: a bad node may have been to blame."""


def sizes_left_out(
    tried: Collection[TriedSize], job: TrainerJob, *, now_s: float
) -> dict[int, str]:
    """Return the sizes that *job* cannot run on, with the message of its failure there.

    There it failed before its first step, as often as it may, and on another size it
    has trained. A size that it has trained on is never left out, so that one remains.

    Args:
        tried: How it did on each size so far.
        job: The trainer.
        now_s: Unix time.
    """
    if not any(size.has_trained for size in tried):
        return {}
    most = min(_SIZE_ATTEMPTS, max(1, job.restart.attempts))
    return {
        size.leases: size.why
        for size in tried
        if not size.has_trained
        and size.failures >= most
        and (not size.failed_s or abs(now_s - size.failed_s) < LEFT_OUT_S)
    }


def sizes_to_avoid(
    tried: Collection[TriedSize], job: TrainerJob, *, after: int, now_s: float
) -> frozenset[int]:
    """Return the sizes on which no world follows one of the size *after*.

    Where that is left out these are all on which the trainer never trained: the next
    one would often be refused, too.
    """
    left_out = sizes_left_out(tried, job, now_s=now_s)
    if after not in left_out:
        return frozenset(left_out)
    trained = {size.leases for size in tried if size.has_trained}
    return frozenset(job.nodes.sizes) - trained


def with_size(
    ending: GenerationEnding,
    before: Iterable[TriedSize],
    *,
    leases: int,
    has_trained: bool,
) -> GenerationEnding:
    """Return *ending* with the sizes that its trainer was tried on, its own included.

    Args:
        ending: As it is to count.
        before: The sizes by the ending before it.
        leases: Its own size.
        has_trained: Whether its world made a step.
    """
    sizes = {size.leases: size for size in before}
    if leases and ending.was_launched:
        size = sizes.get(leases, TriedSize(leases=leases))
        if has_trained:
            size = TriedSize(leases=leases, has_trained=True)
        elif not size.has_trained and _has_failed_at_start(ending):
            why = ending.message[:_LONGEST_REASON]
            size = replace(
                size, failures=size.failures + 1, failed_s=ending.ended_s, why=why
            )
        sizes[leases] = size
    return replace(ending, leases=leases, tried=tuple(sizes[n] for n in sorted(sizes)))


def _has_failed_at_start(ending: GenerationEnding) -> bool:
    """Tell whether the program failed by itself, and not its launch or by request."""
    was_started = ending.started_s is not None
    return was_started and is_failure(ending) and not ending.was_asked


def _is_of_size(ending: GenerationEnding, tried: Collection[TriedSize]) -> bool:
    """Tell whether a failure may be due to the size: others work, this never did."""
    here = [size for size in tried if size.leases == ending.leases]
    works = any(size.has_trained for size in tried)
    return works and any(size.failures and not size.has_trained for size in here)


def is_killed_outside(ending: GenerationEnding) -> bool:
    """Tell whether a signal from outside ended the world that ended so."""
    return ending.lost_lease and ending.message.startswith(KILLED_OUTSIDE)


def must_have_committed(ending: GenerationEnding, job: TrainerJob) -> bool:
    """Tell whether a program that reports no commits ran long enough to make one."""
    if ending.started_s is None:
        return False
    return job.must_have_committed(ending.ended_s - ending.started_s)


def _reason(reason: str, message: str) -> str:
    return f"{reason}: {message}"[:_LONGEST_REASON] if message else reason


PATIENCE_VARIABLE = "FREETRAIN_AGENT_PATIENCE"
"""Other times for an agent to go by; tests and the demo are less patient."""

LAUNCH_AGENT = "FREETRAIN_LAUNCH_AGENT"
"""The variable that names the site's own launch agent."""

LISTENER_MARK = "FREETRAIN_LISTENER"
"""The variable that names the lease whose end a process waits for, ``UUID-TASK``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """The times for which an agent waits.

    Attributes:
        poll_s: Between two turns.
        hurried_poll_s: The same where a rescale waits for this agent's turn.
        beat_s: Between two heartbeats.
        scan_s: Between two looks at the processes of the node.
        silent_s: A lease whose heartbeat does not change for so long is lost.
        stuck_s: A process that is stopped for so long is stuck.
        ready_patience_s: For a member's first heartbeat.
        ahead_patience_s: For a world that was launched ahead to be ready.
        stall_s: Without a step for so long a world that made some may hang; longer
            where its pauses are long.
        begin_patience_s: For an elastic program to begin, from its launch on. Its
            imports take minutes on some file systems; an mpirun whose ranks end at
            once may wait for them for ever.
        turn_s: Between the moments at which one survivor and the next would act.
        gather_s: For other leases to get their notice too, before one that leaves makes
            the next generation: Slurm takes several at once.
        farewell_s: For ranks of a world that has committed to end by themselves,
            where a lease of it leaves; three times as long for its daemons.
        rescue_s: For a world whose head is lost to commit and end.
        idle_s: Without work, before the lease is given back.
        sweep_grace_s: Between TERM and KILL for processes of a world that is over.
    """

    poll_s: float = 0.1
    hurried_poll_s: float = 0.02
    beat_s: float = 1.0
    scan_s: float = 1.0
    silent_s: float = 10.0
    stuck_s: float = 10.0
    ready_patience_s: float = 20.0
    ahead_patience_s: float = 30.0
    begin_patience_s: float = 600.0
    stall_s: float = 120.0
    turn_s: float = 1.0
    gather_s: float = 0.06
    farewell_s: float = 0.3
    rescue_s: float = 2.0
    idle_s: float = 900.0
    sweep_grace_s: float = 2.0


def read_patience(text: str) -> Patience:
    """Return the defaults, changed as *text* says: ``silent_s=3,stuck_s=3``.

    Raises:
        UsageError: A name is unknown, or a time is not above 0.
    """
    known = {field.name for field in fields(Patience)}
    chosen = {}
    for word in filter(None, text.split(",")):
        name, _, value = word.partition("=")
        if name not in known:
            raise _wrong(word, f"names are {', '.join(sorted(known))}")
        try:
            chosen[name] = float(value)
        except ValueError:
            chosen[name] = math.nan
        if not 0 < chosen[name] < math.inf:
            raise _wrong(word, "times are seconds above 0")
    return Patience(**chosen)


def _wrong(word: str, why: str) -> UsageError:
    return UsageError(
        f"{PATIENCE_VARIABLE} says {word[:80]!r}: {why}. The agent did not start; "
        f"correct the variable, or unset it."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another lease as its heartbeat shows it.

    Attributes:
        beat: The last heartbeat; None before the first.
        silent_s: For how long it has been watched without changing.
        has_beaten: Whether it changed while it was watched, so that its agent is up.
    """

    beat: Heartbeat | None = None
    silent_s: float = 0.0
    has_beaten: bool = False

    @property
    def state(self) -> AgentState | None:
        """Its state, as its agent says."""
        return None if self.beat is None else self.beat.state

    @property
    def has_left(self) -> bool:
        """Whether its agent said that it ends."""
        return self.state is AgentState.ENDED

    def is_lost(self, patience: Patience) -> bool:
        """Tell whether it has been silent for too long, or never came."""
        if self.has_left:
            return False
        came = self.beat is not None
        limit_s = patience.silent_s if came else patience.ready_patience_s
        return self.silent_s >= limit_s


_LONGEST_STEP_S = 2.0


class HeartbeatWatch:
    """Watches the heartbeat of one lease.

    Silence is added up from look to look, and one step counts no more than two
    seconds: an agent that was frozen itself must not take the others for dead when
    it wakes up.
    """

    def __init__(self, *, now_s: float) -> None:
        """Begin to watch at *now_s*."""
        self.peer = Peer()
        self._looked_s = now_s

    def look(self, beat: Heartbeat | None, *, now_s: float) -> None:
        """Take note of the heartbeat as it was found at *now_s*."""
        before = self.peer
        step_s = min(max(0.0, now_s - self._looked_s), _LONGEST_STEP_S)
        self._looked_s = now_s
        if beat is not None and _identity(beat) != _identity(before.beat):
            is_change = before.beat is not None
            self.peer = Peer(beat=beat, has_beaten=before.has_beaten or is_change)
            return
        self.peer = Peer(
            beat=before.beat,
            silent_s=before.silent_s + step_s,
            has_beaten=before.has_beaten,
        )

    def skip(self, *, now_s: float) -> None:
        """Count the time until *now_s* as no silence: nothing could be read."""
        self._looked_s = now_s


def _identity(beat: Heartbeat | None) -> tuple[int, int] | None:
    return None if beat is None else (beat.pid, beat.beat)


@dataclass(frozen=True, slots=True, kw_only=True)
class TickSilence:
    """For how long ticks have given no sign.

    Attributes:
        age_s: Since the last sign, or since slurmctld did not answer either: until
            then no job could start.
        limit_s: After how long a lease is to be gone; None where no tick asks for it.
        is_asked: Whether slurmctld was asked in this silence.
        slurm_answers: Whether it answered; None while that is not known.
    """

    age_s: float = 0.0
    limit_s: float | None = None
    is_asked: bool = False
    slurm_answers: bool | None = None


class TickWatch:
    """Watches the sign of ticks, by this node's clock alone.

    All time counts, also that in which this agent was frozen: a lease must be gone in
    time. So its caller looks at the sign once more before it acts on the age.
    """

    def __init__(self, *, now_s: float) -> None:
        """Begin to watch at *now_s*."""
        self._tick: int | None = None
        self._since_s = now_s
        self.limit_s: float | None = None

    def look(self, sign: TickSign | None, *, now_s: float, age_s: float = 0.0) -> bool:
        """Take note of the sign as it was found at *now_s*; tell whether it is new.

        Args:
            sign: None where there is none.
            now_s: The time.
            age_s: The age of the sign, for the first one that is seen.
        """
        if sign is None:
            return False
        self.limit_s = sign.silence_s
        if sign.tick == self._tick:
            return False
        self._since_s = now_s if self._tick is not None else now_s - age_s
        self._tick = sign.tick
        return True

    def begin_anew(self, *, now_s: float) -> None:
        """Count from *now_s* on: until then silence did no harm."""
        self._since_s = now_s

    def age_s(self, *, now_s: float) -> float:
        """Return for how long the sign has not changed."""
        return now_s - self._since_s


class ProgressWatch:
    """Watches the steps that a world reports.

    Time without one is added up from look to look, as silence of leases is. The world
    is not judged before its first step: imports and compilation take their time, and
    a program that reports nothing cannot be judged.

    Attributes:
        quiet_s: Since its last step; 0 before the first.
        longest_pause_s: Between two steps so far, or before the first.
    """

    def __init__(self, *, now_s: float) -> None:
        """Begin to watch a world that is launched at *now_s*."""
        self.quiet_s = 0.0
        self.longest_pause_s = 0.0
        self._waited_s = 0.0
        self._count = 0
        self._looked_s = now_s

    def look(self, count: int, *, now_s: float) -> None:
        """Take note that *count* steps had been reported at *now_s*."""
        self._waited_s += min(max(0.0, now_s - self._looked_s), _LONGEST_STEP_S)
        if count != self._count:
            self.longest_pause_s = max(self.longest_pause_s, self._waited_s)
            self._count = count
            self._waited_s = 0.0
        self.skip(now_s=now_s)
        self.quiet_s = self._waited_s if self._count else 0.0

    def skip(self, *, now_s: float) -> None:
        """Do not count the time until *now_s*: nothing could be read."""
        self._looked_s = now_s

    def begin_anew(self) -> None:
        """Count from now on: until now the world had a reason, or could not report."""
        self._waited_s = self.quiet_s = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedWorld:
    """A world that this agent launched.

    Attributes:
        age_s: Since its launch.
        after: The generation it waits for before it trains, if any.
        asked_s: Since it was first asked to stop; None if it was not.
        is_told: Whether that request was delivered whole; else it is made again.
        killed_s: Since it was killed; None if it was not.
        exit_s: Since its launcher was first seen gone; None while it runs.
        exit_code: The launcher's exit status.
        lingers: Whether clients of its steps are left, where the launcher is gone.
        quiet_s: Since it reported its last step; 0 before the first.
        longest_pause_s: Between two steps so far, or before the first.
        stalled: The reason that it was asked to stop for, where it makes no steps.
    """

    age_s: float
    after: int | None = None
    asked_s: float | None = None
    is_told: bool = True
    killed_s: float | None = None
    exit_s: float | None = None
    exit_code: int | None = None
    lingers: bool = False
    quiet_s: float = 0.0
    longest_pause_s: float = 0.0
    stalled: str = ""


@dataclass(frozen=True, slots=True)
class ObservedSpare:
    """This lease's spare: the process from which ranks of a trainer are forked.

    Attributes:
        trainer: The trainer.
        generation: The generation beside which it was started.
        is_asked: Whether it was asked to make no more ranks.
    """

    trainer: str
    generation: int
    is_asked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedGeneration:
    """A generation that matters to this agent.

    Attributes:
        assigned: Its leases.
        age_s: Since this agent first saw it.
        is_over: Whether it has an ending.
        outcome: How its world says that it ended; empty while it says nothing.
        outcome_age_s: Since this agent first saw the outcome; 0 while there is none.
        is_ready: Whether its world, launched ahead, waits with all ranks.
        has_begun: Whether its program left a sign of life, or could not.
        is_stop_requested: Whether the request to stop is there for its world.
        notices: Leases that must leave it.
        has_broken_off: Whether its world, or the part of it that this agent sees, ended
            without an outcome: its launcher, a client of a step, or the ranks here.
        processes: How many processes of it this lease has on this node.
        world: Its world, where this agent launched it.
    """

    assigned: AssignmentFile
    age_s: float = 0.0
    is_over: bool = False
    outcome: str = ""
    outcome_age_s: float = 0.0
    is_ready: bool = False
    has_begun: bool = False
    is_stop_requested: bool = False
    notices: frozenset[LeaseKey] = frozenset()
    has_broken_off: bool = False
    processes: int = 0
    world: ObservedWorld | None = None

    @property
    def number(self) -> int:
        """Its number."""
        return self.assigned.generation

    @property
    def has_committed(self) -> bool:
        """Whether its world says that it ended without an error: all is committed."""
        return self.outcome not in {"", "failed", "not started"}

    def committed_for(self, seconds: float) -> bool:
        """Tell whether its world said so at least *seconds* ago."""
        return self.has_committed and self.outcome_age_s >= seconds

    @property
    def has_members(self) -> bool:
        """Whether it has leases."""
        return bool(self.assigned.members)

    def is_headed_by(self, key: LeaseKey) -> bool:
        """Tell whether the agent of *key* launches it."""
        head = self.assigned.head
        return head is not None and head.key == key


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTrainer:
    """A trainer of which this lease has a part.

    Attributes:
        job: Its job file, without the sizes that its next world is not to have.
        newest: Its newest generation.
        earlier: Generations before it that are not over, or whose world this agent
            still has, ascending.
        previous: The generation right before the newest; None where there is none.
        verdict: Whether it is to be launched again.
        failed: Its newest generation that failed; 0 for none.
        stalls: How many of its generations stalled.
        has_room_for_spare: Whether its job file leaves spares open, and this lease has
            one or the memory for it.
        is_done: Whether its work is done.
        since_end_s: Since this agent first saw the ending of its last world.
        is_being_left: Whether this lease leaves it, for another trainer or for good.
        unix_s: Now, for the files.
    """

    job: TrainerJob
    newest: ObservedGeneration
    earlier: tuple[ObservedGeneration, ...] = ()
    previous: AssignmentFile | None = None
    verdict: Verdict = MAY_RUN
    failed: int = 0
    stalls: int = 0
    has_room_for_spare: bool = False
    is_done: bool = False
    since_end_s: float = 0.0
    is_being_left: bool = False
    unix_s: float = 0.0

    @property
    def name(self) -> str:
        """Its name."""
        return self.newest.assigned.trainer

    @property
    def generations(self) -> tuple[ObservedGeneration, ...]:
        """Those that matter, ascending."""
        return (*self.earlier, self.newest)

    @property
    def open(self) -> tuple[ObservedGeneration, ...]:
        """Generations before the newest that are not over."""
        return tuple(g for g in self.earlier if not g.is_over and g.has_members)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything that an agent knows in one turn.

    Attributes:
        me: This lease.
        trainers: Trainers of which this lease has a part.
        unknown: Trainers of which it has a part, and whose files cannot be read now.
        peers: Other leases of their generations.
        stuck: Trainers and generations with processes on this node that have been
            stopped for too long.
        leaving_s: Since this lease began to leave for good; None if it does not.
        bound_s: How long leaving for good may take.
        idle_s: Since it last had a trainer.
        silence: For how long ticks have given no sign.
        ended_leases: Leases whose jobs it has ended already.
        gone_leases: Leases whose jobs have ended, as Slurm said.
        spare: Its spare, also one that has ended by itself; None without one.
        patience: Times to go by.
    """

    me: LeaseKey
    trainers: tuple[ObservedTrainer, ...] = ()
    unknown: frozenset[str] = frozenset()
    peers: Mapping[LeaseKey, Peer]
    stuck: frozenset[tuple[str, int]] = frozenset()
    leaving_s: float | None = None
    bound_s: float = 30.0
    idle_s: float = 0.0
    silence: TickSilence = TickSilence()
    ended_leases: frozenset[LeaseKey] = frozenset()
    gone_leases: frozenset[LeaseKey] = frozenset()
    spare: ObservedSpare | None = None
    patience: Patience = Patience()

    def peer(self, key: LeaseKey) -> Peer:
        """Return the lease *key* as last seen; this lease itself is up."""
        if key == self.me:
            return Peer(has_beaten=True)
        return self.peers.get(key, Peer())

    def is_lost(self, member: AssignedLease) -> bool:
        """Tell whether *member* is silent or gone; this lease itself never is."""
        if member.key in self.gone_leases:
            return member.key != self.me
        return member.key != self.me and self.peer(member.key).is_lost(self.patience)

    def occupied_by(self, *, but: str) -> tuple[str, int] | None:
        """Return the generation of another trainer than *but* that has this lease.

        While it is not over, or has processes here, the next one has to wait.
        """
        for trainer in self.trainers:
            for generation in trainer.generations if trainer.name != but else ():
                has_part = self.me in generation.assigned.keys
                if (has_part and not generation.is_over) or generation.processes:
                    return trainer.name, generation.number
        return None

    def is_leaving(
        self, trainer: ObservedTrainer, generation: ObservedGeneration, key: LeaseKey
    ) -> bool:
        """Tell whether *key* leaves *generation* of *trainer*, or has left."""
        if key == self.me:
            return trainer.is_being_left
        leaves = {AgentState.LEAVING, AgentState.ENDED}
        return self.peer(key).state in leaves or key in generation.notices
