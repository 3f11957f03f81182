"""The agent's decisions: from an observation to actions, pure and without memory.

``choose_actions`` is called about ten times a second and returns actions, which the
agent's ``Executor`` carries out. Its caller passes for how long each of the
``conditions`` has held. Agents send each other no messages: each finds its turn by the
order of a generation's members. After the actions themselves the sections follow the
life of a generation: its head launches, stops and ends its world; the next generation
is made; generations without a head are rescued; the lease is given back.

A lease *leaves* a generation when its agent was asked to leave
(``Environment.is_asked_to_leave``), when its time limit is near, or when the trainer
was given other leases; ``ObservedTrainer.is_being_left`` says so of this lease, and
``Observation.is_leaving`` of any. ``Observation.leaving_s`` counts from when this lease
leaves for good. A lease is *lost* that went without leaving: its heartbeat stands
still, or its job is over (``Observation.is_lost``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.config.job import size_within
from freetrain.state.files import (
    SILENCE_NOTICE_S,
    STALLED,
    AssignmentFile,
    lease_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from freetrain.agent.observation import (
        Observation,
        ObservedGeneration,
        ObservedSpare,
        ObservedTrainer,
        ObservedWorld,
        Patience,
    )
    from freetrain.broker.lease import LeaseKey
    from freetrain.state.files import AssignedLease


@dataclass(frozen=True, slots=True)
class LaunchWorld:
    """Start the world of a generation, which waits for *after* to end, if any."""

    assigned: AssignmentFile
    after: int | None


@dataclass(frozen=True, slots=True)
class AskToStop:
    """Ask a world that this agent launched to commit and end."""

    trainer: str
    generation: int
    why: str
    is_stalled: bool = False


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
    """End the processes on this node of a world that is over."""

    trainer: str
    generation: int


@dataclass(frozen=True, slots=True)
class Propose:
    """Create the next generation, unless another agent or the broker was first."""

    assigned: AssignmentFile


@dataclass(frozen=True, slots=True)
class WriteNotice:
    """Write the notice that this lease leaves a generation."""

    trainer: str
    generation: int


@dataclass(frozen=True, slots=True)
class RequestStop:
    """Leave the request to stop for a world whose own head is lost."""

    trainer: str
    generation: int


@dataclass(frozen=True, slots=True)
class WriteEnding:
    """Write that a generation is over, with the agent's knowledge of it.

    Attributes:
        was_launched: Whether its world was ever started.
        was_killed: Whether this agent killed it.
        exit_code: The launcher's; None where no agent saw it.
        age_s: How long ago it was launched; None where it was not, or elsewhere.
        why: The reason that this agent knows, where the world left no word.
        stalled: Why it was asked to stop, where it made no steps any more.
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
    stalled: str = ""


@dataclass(frozen=True, slots=True)
class CancelSilentLease:
    """Cancel another lease, whose agent is silent: its node may be frozen."""

    member: AssignedLease


@dataclass(frozen=True, slots=True)
class AskOfLeases:
    """Begin to ask Slurm which of the other leases of a generation have ended."""

    assigned: AssignmentFile


@dataclass(frozen=True, slots=True)
class StartSpare:
    """Start a spare for the trainer of a generation."""

    assigned: AssignmentFile


@dataclass(frozen=True, slots=True)
class EndSpare:
    """Have this lease's spare make no more ranks, and end when the last one has."""


@dataclass(frozen=True, slots=True)
class SweepAll:
    """Kill everything of this lease on its node: the time to leave is up."""


@dataclass(frozen=True, slots=True)
class AskSlurm:
    """Begin to ask slurmctld whether it answers."""


@dataclass(frozen=True, slots=True)
class BeginToLeave:
    """Leave for good, as on notice; *grace_s* from now the lease is gone."""

    why: str
    grace_s: float


@dataclass(frozen=True, slots=True)
class GiveBackLease:
    """Sweep this agent's own lease, end its job, and with it the agent."""

    why: str


Action = (
    LaunchWorld
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
    | CancelSilentLease
    | SweepAll
    | AskSlurm
    | AskOfLeases
    | BeginToLeave
    | GiveBackLease
)


def conditions(observed: Observation) -> frozenset[object]:
    """Return the conditions that hold now; ``choose_actions`` needs their ages."""
    found: set[object] = set()
    for trainer in observed.trainers:
        reason = succession_reason(observed, trainer)
        if reason is not None:
            found.add((trainer.name, trainer.newest.number, reason))
        found.update(orphans_of(observed, trainer))
    if is_spare_unseen(observed):
        found.add(SPARE_UNSEEN)
    return frozenset(found)


def choose_actions(
    observed: Observation, *, ages_s: Mapping[object, float]
) -> tuple[Action, ...]:
    """Return the actions of this turn, in order, by the age of each condition."""
    actions: list[Action] = []
    for trainer in observed.trainers:
        actions += write_notices(observed, trainer)
        actions += kill_lingering_ranks(observed, trainer)
        actions += ask_of_leases(trainer)
        actions += act_as_head(observed, trainer)
        reason = succession_reason(observed, trainer)
        if reason is not None:
            age_s = ages_s.get((trainer.name, trainer.newest.number, reason), 0.0)
            actions += succession(observed, trainer, reason=reason, age_s=age_s)
        actions += rescue_orphans(observed, trainer, ages_s=ages_s)
    actions += manage_spare(observed, unseen_s=ages_s.get(SPARE_UNSEEN, 0.0))
    return (*actions, *end_in_silence(observed), *give_back(observed))


def is_awaited(observed: Observation) -> bool:
    """Tell whether a rescale waits for the next turn of this agent.

    It does while a lease leaves, for the agents that act then: those of that lease, of
    the heads before and after, and of the first survivor.
    """
    if observed.leaving_s is not None:
        return True
    return any(
        observed.me in _actors(observed, trainer, generation)
        for trainer in observed.trainers
        for generation in trainer.generations
        if not generation.is_over
    )


def _actors(
    observed: Observation, trainer: ObservedTrainer, generation: ObservedGeneration
) -> frozenset[LeaseKey]:
    """Return the leases that act while one leaves *generation*; none if none does."""
    keys = [member.key for member in generation.assigned.members]
    staying = [k for k in keys if not observed.is_leaving(trainer, generation, k)]
    if len(staying) == len(keys):
        return frozenset()
    next_head = trainer.newest.assigned.head
    after = () if next_head is None else (next_head.key,)
    leaving = set(keys).difference(staying)
    return frozenset((keys[0], *staying[:1], *after, *leaving))


# The head of a generation launches and stops its world, and writes how it ended

# A step whose client is killed before it heard of the step's end takes two seconds
# more to end, and so does the lease that the step is in.
_CLIENTS_S = 1.0
_CLEAN_UP_S = 3.0  # beyond the grace of a sweep: a process that KILL does not end stays


def act_as_head(observed: Observation, trainer: ObservedTrainer) -> tuple[Action, ...]:
    """Return the actions on worlds that this lease heads."""
    actions: list[Action] = []
    for generation in trainer.generations:
        world = generation.world
        if world is None:
            actions += _launch_or_close(observed, trainer, generation)
        elif world.exit_s is None:
            actions += _control_running(observed, trainer, generation, world)
        elif not generation.is_over:
            actions += _clean_up(observed, trainer, generation, world)
    return tuple(actions)


def _launch_or_close(
    observed: Observation, trainer: ObservedTrainer, generation: ObservedGeneration
) -> tuple[Action, ...]:
    if generation.is_over or not generation.is_headed_by(observed.me):
        return ()
    if generation is not trainer.newest:
        why = "a later generation came before it was launched"
        ending = WriteEnding(
            trainer.name, generation.number, was_launched=False, why=why
        )
        return (ending,)
    if _may_launch(observed, trainer):
        after = trainer.open[-1].number if trainer.open else None
        return (LaunchWorld(generation.assigned, after),)
    return ()


def _may_launch(observed: Observation, trainer: ObservedTrainer) -> bool:
    is_wanted = not trainer.verdict.is_final and not trainer.is_done
    has_waited = trainer.since_end_s >= trainer.verdict.wait_s
    if not is_wanted or not has_waited or observed.leaving_s is not None:
        return False
    return _has_room(observed, trainer) and _are_up(observed, trainer)


def _has_room(observed: Observation, trainer: ObservedTrainer) -> bool:
    """Tell whether no earlier world is in the way; an elastic one may be."""
    if not trainer.open:
        return trainer.job.elastic or _are_swept(observed, trainer)
    return may_launch_ahead(trainer) and len(trainer.open) == 1


def _are_swept(observed: Observation, trainer: ObservedTrainer) -> bool:
    """Tell whether no process of an earlier generation is left on any node."""
    last = trainer.newest.number - 1
    mine = observed.me in trainer.newest.assigned.keys
    if mine and any(g.processes for g in trainer.earlier):
        return False
    before = trainer.previous.keys if trainer.previous else frozenset()
    both = (trainer.newest.assigned.keys & before) - {observed.me}
    return all(_has_swept(observed, trainer, key, last) for key in both)


def _has_swept(
    observed: Observation, trainer: ObservedTrainer, key: LeaseKey, generation: int
) -> bool:
    beat = observed.peer(key).beat
    if beat is None or beat.trainer != trainer.name:
        return False
    return beat.swept_generation >= generation


def _are_up(observed: Observation, trainer: ObservedTrainer) -> bool:
    """Tell whether the agent of every member is up and free for this trainer."""
    return all(
        _is_up(observed, trainer, member) for member in trainer.newest.assigned.members
    )


def _is_up(
    observed: Observation, trainer: ObservedTrainer, member: AssignedLease
) -> bool:
    if observed.is_leaving(trainer, trainer.newest, member.key):
        return False
    if member.key == observed.me:
        return observed.occupied_by(but=trainer.name) is None
    peer = observed.peer(member.key)
    if not peer.has_beaten or observed.is_lost(member):
        return False
    # The heartbeat of a lease names the other trainer that still has processes on it.
    return peer.beat is not None and peer.beat.trainer in {"", trainer.name}


def _control_running(
    observed: Observation,
    trainer: ObservedTrainer,
    generation: ObservedGeneration,
    world: ObservedWorld,
) -> tuple[Action, ...]:
    where = (trainer.name, generation.number)
    why = reason_to_kill(observed, trainer, generation, world)
    if why:
        return (Kill(*where, why),)
    why = reason_to_stop(observed, trainer, generation)
    if why and (world.asked_s is None or not world.is_told):
        return (AskToStop(*where, why, is_stalled=why.startswith(STALLED)),)
    return ()


def _clean_up(
    observed: Observation,
    trainer: ObservedTrainer,
    generation: ObservedGeneration,
    world: ObservedWorld,
) -> tuple[Action, ...]:
    """End the rest of a world whose launcher is gone, then write its ending."""
    exit_s = world.exit_s or 0.0
    tidy: list[Action] = []
    if world.killed_s is None and world.lingers and exit_s < _CLIENTS_S:
        return ()
    if world.killed_s is None:
        tidy.append(Kill(trainer.name, generation.number, ""))
    if generation.processes and exit_s < observed.patience.sweep_grace_s + _CLEAN_UP_S:
        return (*tidy, Sweep(trainer.name, generation.number))
    if not _knows_if_lease_lost(observed, trainer, generation, world):
        return tuple(tidy)
    return (*tidy, _ending_of(observed, trainer, generation, world))


def _knows_if_lease_lost(
    observed: Observation,
    trainer: ObservedTrainer,
    generation: ObservedGeneration,
    world: ObservedWorld,
) -> bool:
    """Tell whether the agent can know by now if the world lost a lease.

    It can when each member has either beaten since the world ended or fallen silent.
    A world that stopped well may have lost a lease, too: the sweep after an agent that
    died sends TERM first. That is not the program's failure.
    """
    needs_no_reason = world.asked_s is not None or trainer.is_done
    if (generation.has_committed and needs_no_reason) or observed.leaving_s is not None:
        return True
    exit_s = world.exit_s or 0.0
    members = (m for m in generation.assigned.members if m.key != observed.me)
    peers = [(m, observed.peer(m.key)) for m in members]
    return all(
        p.silent_s < exit_s or p.has_left or observed.is_lost(m) for m, p in peers
    )


def _ending_of(
    observed: Observation,
    trainer: ObservedTrainer,
    generation: ObservedGeneration,
    world: ObservedWorld,
) -> WriteEnding:
    members = generation.assigned.members
    lost = any(
        observed.is_lost(m) or observed.is_leaving(trainer, generation, m.key)
        for m in members
    )
    return WriteEnding(
        trainer.name,
        generation.number,
        was_launched=not waits_for_predecessor(trainer, world),
        was_asked=world.asked_s is not None,
        was_killed=(world.killed_s or 0.0) > (world.exit_s or 0.0),
        lost_lease=lost,
        is_done=trainer.is_done,
        exit_code=world.exit_code,
        age_s=world.age_s,
        stalled=world.stalled,
    )


# Why a running world is asked to stop, or killed

# The time of farewell_s, so often, until a head that leaves no longer waits.
_HEAD_FAREWELLS = 5.0


def reason_to_stop(
    observed: Observation, trainer: ObservedTrainer, generation: ObservedGeneration
) -> str:
    """Return why the world of *generation* is asked to stop; empty if it is not."""
    members = generation.assigned.members
    if trainer.is_done:
        return "the work is done"
    if any(observed.is_leaving(trainer, generation, m.key) for m in members):
        return "a lease leaves"
    if generation.world is not None:
        why = reason_stalled(trainer, generation.world, observed.patience)
        if why:
            return why
    if generation is trainer.newest:
        return ""
    if any(observed.is_lost(m) for m in members):
        return "a lease is lost"
    return _reason_to_rescale(trainer, observed.patience)


def _reason_to_rescale(trainer: ObservedTrainer, patience: Patience) -> str:
    newest = trainer.newest
    if newest.is_over or not newest.has_members or not may_launch_ahead(trainer):
        return f"generation {newest.number} follows"
    if newest.is_ready:
        return f"generation {newest.number} is ready"
    if newest.age_s >= patience.ahead_patience_s:
        return f"generation {newest.number} is not ready, and has had its time"
    return ""


_STALL_PAUSES = 5.0
_STALL_FACTOR = 4.0
_MOST_FACTORS = 4


def is_stalled(world: ObservedWorld, patience: Patience, *, stalls: int = 0) -> bool:
    """Tell whether *world* has made no step for far longer than it ever took.

    It has where that takes five times its longest pause so far, start-up, checkpoints
    and validation included, and ``stall_s`` at least; four times as long after each of
    *stalls* that were found before, as the program may have been at work.
    """
    usual_s = max(patience.stall_s, _STALL_PAUSES * world.longest_pause_s)
    return world.quiet_s >= usual_s * _STALL_FACTOR ** min(stalls, _MOST_FACTORS)


def reason_stalled(
    trainer: ObservedTrainer, world: ObservedWorld, patience: Patience
) -> str:
    """Return why *world* is taken to hang; empty if it is not.

    It is asked to stop first: where it only seemed to hang, nothing is lost.
    """
    if world.stalled or not is_stalled(world, patience, stalls=trainer.stalls):
        return world.stalled
    pause_s = world.longest_pause_s
    return (
        f"{STALLED}: no step for {world.quiet_s:.0f} s, after {pause_s:.0f} s at most"
    )


def may_launch_ahead(trainer: ObservedTrainer) -> bool:
    """Tell whether a world of *trainer* may start while the one before trains."""
    return trainer.job.elastic and trainer.job.launch.ahead


def reason_to_kill(
    observed: Observation,
    trainer: ObservedTrainer,
    generation: ObservedGeneration,
    world: ObservedWorld,
) -> str:
    """Return why *world*, which runs, is killed; empty if it is not."""
    if generation.is_over:
        return "it is over already"
    if _is_stuck(observed, trainer, generation):
        return "a process of it is stopped"
    why = _reason_never_to_begin(trainer, generation, world, observed.patience)
    if why:
        return why
    why = _reason_to_kill_at_once(observed, trainer, generation)
    if why:
        return why
    if world.asked_s is not None:
        limit_s = _stop_limit_s(observed, trainer, generation)
        if world.asked_s >= limit_s:
            return f"it did not stop within {limit_s:g} s"
    return ""


def _is_stuck(
    observed: Observation, trainer: ObservedTrainer, generation: ObservedGeneration
) -> bool:
    where = (trainer.name, generation.number)
    beats = [observed.peer(m.key).beat for m in generation.assigned.members]
    return where in observed.stuck or any(
        b and b.is_stuck and (b.trainer, b.generation) == where for b in beats
    )


def _reason_never_to_begin(
    trainer: ObservedTrainer,
    generation: ObservedGeneration,
    world: ObservedWorld,
    patience: Patience,
) -> str:
    """Return why a world that has not begun to train is killed; empty for no reason."""
    if generation is not trainer.newest and waits_for_predecessor(trainer, world):
        return "a later generation came before it began"
    is_late = world.age_s >= patience.begin_patience_s
    if trainer.job.elastic and not generation.has_begun and is_late:
        return f"it did not begin within {patience.begin_patience_s:g} s"
    return ""


def waits_for_predecessor(trainer: ObservedTrainer, world: ObservedWorld) -> bool:
    """Tell whether a world launched ahead has not begun to train."""
    if world.after is None:
        return False
    return any(g.number == world.after and not g.outcome for g in trainer.open)


def _reason_to_kill_at_once(
    observed: Observation, trainer: ObservedTrainer, generation: ObservedGeneration
) -> str:
    """Return why a world is killed for the jobs that wait for its nodes."""
    members = generation.assigned.members
    is_left = any(observed.is_leaving(trainer, generation, m.key) for m in members)
    if is_left and trainer.job.elastic and not generation.has_begun:
        return "a lease leaves, and it has not begun"
    if not generation.outcome and not generation.assigned.keys.isdisjoint(
        observed.gone_leases
    ):
        return "the job of a lease has ended, and with it a part of the world"
    if observed.leaving_s is None:
        return ""
    # Not before the other nodes that leave, whose steps have their clients here.
    if generation.committed_for(_HEAD_FAREWELLS * observed.patience.farewell_s):
        return "its head must leave, and all is committed"
    return "its head must leave now" if observed.leaving_s >= observed.bound_s else ""


def _stop_limit_s(
    observed: Observation, trainer: ObservedTrainer, generation: ObservedGeneration
) -> float:
    """Return how long it may take to stop; with a node gone it may never stop."""
    kill_after_s = trainer.job.stop.kill_after_s
    if any(observed.is_lost(m) for m in generation.assigned.members):
        return min(kill_after_s, observed.patience.silent_s)
    return kill_after_s


# The next generation: when, by which agent, and of which leases, without the broker


class SuccessionReason(StrEnum):
    """A reason why the newest generation needs a successor."""

    FINAL = "final"
    LEAVING = "a lease leaves"
    LOST = "a lease is lost"
    OVER = "its world is over"


def succession_reason(
    observed: Observation, trainer: ObservedTrainer
) -> SuccessionReason | None:
    """Return why the newest generation needs a successor; None if it does not."""
    newest = trainer.newest
    members = newest.assigned.members
    if not newest.has_members:
        return None
    is_running = newest.world is not None and newest.world.exit_s is None
    if trainer.verdict.is_final or (trainer.is_done and not is_running):
        return SuccessionReason.FINAL
    if newest.is_over:
        return SuccessionReason.OVER
    if any(observed.is_leaving(trainer, newest, m.key) for m in members):
        return SuccessionReason.LEAVING
    if any(observed.is_lost(m) for m in members):
        return SuccessionReason.LOST
    return None


def succession(
    observed: Observation,
    trainer: ObservedTrainer,
    *,
    reason: SuccessionReason,
    age_s: float,
) -> tuple[Propose, ...]:
    """Return the next generation, if *reason* has held so long that it is our turn.

    A lease that leaves makes it, as soon as others that leave with it can have written
    their notices. Of the others the first makes it, and the next only if it did not.
    """
    survivors = _survivors(observed, trainer, reason=reason)
    delay_s = _delay_s(observed, trainer, survivors, reason=reason)
    if delay_s is None or age_s < delay_s:
        return ()
    most = 0 if reason is SuccessionReason.FINAL else len(survivors)
    members = survivors[: size_within(trainer.job.nodes.sizes, most)]
    if (
        reason is not SuccessionReason.OVER
        and members == trainer.newest.assigned.members
    ):
        return ()
    assigned = AssignmentFile(
        trainer=trainer.name,
        generation=trainer.newest.number + 1,
        members=members,
        created_s=trainer.unix_s,
        author=lease_name(observed.me),
        reason=_text_of(trainer, reason),
    )
    return (Propose(assigned),)


def _survivors(
    observed: Observation, trainer: ObservedTrainer, *, reason: SuccessionReason
) -> tuple[AssignedLease, ...]:
    """Return the members that stay, in their order.

    Where a member is lost, others that have been silent for half as long are taken
    for lost too: nodes of one rack or switch fall silent together.
    """
    doubtful_s = observed.patience.silent_s
    if reason is SuccessionReason.LOST:
        doubtful_s /= 2
    return tuple(
        member
        for member in trainer.newest.assigned.members
        if not observed.is_leaving(trainer, trainer.newest, member.key)
        and not observed.is_lost(member)
        and not _is_doubtful(observed, member, doubtful_s)
    )


def _is_doubtful(
    observed: Observation, member: AssignedLease, doubtful_s: float
) -> bool:
    peer = observed.peer(member.key)
    return peer.beat is not None and peer.silent_s >= doubtful_s


def _delay_s(
    observed: Observation,
    trainer: ObservedTrainer,
    survivors: tuple[AssignedLease, ...],
    *,
    reason: SuccessionReason,
) -> float | None:
    """Return for how long this agent leaves that to others; None for always."""
    if observed.me not in trainer.newest.assigned.keys:
        return None
    if trainer.is_being_left:
        is_leaving = reason is SuccessionReason.LEAVING
        return observed.patience.gather_s if is_leaving else 0.0
    order = [member.key for member in survivors]
    if observed.me not in order:
        return None
    turn = order.index(observed.me)
    if reason is SuccessionReason.LEAVING:
        turn += 1  # the lease that leaves goes first
    return turn * observed.patience.turn_s


def _text_of(trainer: ObservedTrainer, reason: SuccessionReason) -> str:
    if reason is not SuccessionReason.FINAL:
        return f"generation {trainer.newest.number}: {reason}"
    if trainer.verdict.is_final:
        return trainer.verdict.reason
    return "its work is done"


# Generations whose head is lost, and leases that fell silent


@dataclass(frozen=True, slots=True)
class Orphan:
    """A condition: the head of a generation that is not over is gone."""

    trainer: str
    generation: int


def ask_of_leases(trainer: ObservedTrainer) -> tuple[AskOfLeases, ...]:
    """Return the generations of whose leases Slurm is asked, as their worlds broke off.

    A lease that ended without notice is known by that much sooner than by its silence.
    """
    return tuple(
        AskOfLeases(generation.assigned)
        for generation in trainer.generations
        if generation.has_broken_off and not generation.is_over
    )


def orphans_of(observed: Observation, trainer: ObservedTrainer) -> tuple[Orphan, ...]:
    """Return the generations before the newest whose head is gone."""
    return tuple(
        Orphan(trainer.name, generation.number)
        for generation in trainer.open
        if _is_headless(observed, generation)
    )


def _is_headless(observed: Observation, generation: ObservedGeneration) -> bool:
    head = generation.assigned.head
    if head is None or head.key == observed.me:
        return False
    return observed.is_lost(head) or observed.peer(head.key).has_left


def rescue_orphans(
    observed: Observation, trainer: ObservedTrainer, *, ages_s: Mapping[object, float]
) -> tuple[Action, ...]:
    """Return the actions for generations whose head is gone, if it is our turn.

    A head that is frozen, or cut off from the files, leaves a world that trains:
    the request to stop lets it commit before it is fenced.
    """
    turn = _turn_of_this_lease(observed, trainer)
    if turn is None:
        return ()
    actions: list[Action] = []
    for generation in trainer.open:
        age_s = ages_s.get(Orphan(trainer.name, generation.number))
        if age_s is not None and age_s >= turn * observed.patience.turn_s:
            waited_s = age_s - turn * observed.patience.turn_s
            head = generation.assigned.head
            is_gone = head is not None and head.key in observed.gone_leases
            rescue_s = 0.0 if is_gone else observed.patience.rescue_s
            actions += _rescue(trainer, generation, rescue_s, waited_s=waited_s)
    if turn == 0:
        actions += _silent_leases(observed, trainer)
    return tuple(actions)


def _turn_of_this_lease(observed: Observation, trainer: ObservedTrainer) -> int | None:
    """Return how many living leases act before this one; None where it never does."""
    order: dict[LeaseKey, None] = {}
    for generation in reversed(trainer.generations):
        for member in generation.assigned.members:
            gone = observed.peer(member.key).has_left or observed.is_lost(member)
            if not gone:
                order.setdefault(member.key)
    turns = list(order)
    return turns.index(observed.me) if observed.me in order else None


def _rescue(
    trainer: ObservedTrainer,
    generation: ObservedGeneration,
    rescue_s: float,
    *,
    waited_s: float,
) -> Iterator[Action]:
    where = (trainer.name, generation.number)
    if not generation.outcome and waited_s < rescue_s:
        if not generation.is_stop_requested:
            yield RequestStop(*where)
        return
    yield WriteEnding(
        *where,
        was_asked=generation.is_stop_requested,
        lost_lease=True,
        is_done=trainer.is_done,
        why="the lease of its head was lost",
    )


def _silent_leases(
    observed: Observation, trainer: ObservedTrainer
) -> Iterator[CancelSilentLease]:
    """Yield the leases to end: silent ones that have no part in the newest generation.

    A lease whose agent never came is left to the broker: it holds no process of ours.
    A silent head is ended later, when its world has had its time to commit.
    """
    mine = trainer.newest.assigned.keys
    still_open = [generation.assigned for generation in trainer.open]
    before = [*still_open, *([trainer.previous] if trainer.previous else [])]
    heads = {assigned.head.key for assigned in still_open if assigned.head}
    members = {m.key: m for assigned in before for m in assigned.members}
    for key, member in members.items():
        came = observed.peer(key).beat is not None
        is_due = key not in observed.ended_leases | observed.gone_leases | heads
        if key not in mine and came and is_due and observed.is_lost(member):
            yield CancelSilentLease(member)


# A lease ends itself where no tick would make room for others

_TOGETHER_S = 10.0  # agents see a sign, and hear of Slurm, so many seconds apart


def end_in_silence(observed: Observation) -> tuple[Action, ...]:
    """Return the actions of a lease that has seen no sign of a tick for long.

    While slurmctld does not answer either, no job could start, and the lease stays.
    Leases of one trainer leave together.
    """
    silence = observed.silence
    if observed.leaving_s is not None or silence.limit_s is None:
        return ()
    due_s = silence.limit_s - SILENCE_NOTICE_S
    is_due = silence.age_s >= due_s
    why = f"no tick has given a sign for {silence.age_s:.0f} s"
    leave = BeginToLeave(why, SILENCE_NOTICE_S)
    if silence.age_s >= due_s - _TOGETHER_S and _do_others_leave(observed):
        return (leave,)
    if is_due and silence.slurm_answers:
        return (leave,)
    return (AskSlurm(),) if is_due and not silence.is_asked else ()


def _do_others_leave(observed: Observation) -> bool:
    """Tell whether another lease leaves a generation that this one is in."""
    return any(
        observed.is_leaving(trainer, generation, member.key)
        for trainer in observed.trainers
        for generation in trainer.generations
        if _has_part(observed, generation)
        for member in generation.assigned.members
        if member.key != observed.me
    )


# A lease is given back: on notice, near its limit, in silence, or for want of work

_FINAL_S = 1.0
# The time of farewell_s, so often, until a lease no longer waits for daemons either.
_DAEMON_FAREWELLS = 3.0
_LEAST_BOUND_S = 0.5


def leave_bound_s(*, kill_after_s: float, grace_s: float) -> float:
    """Return how long leaving may take, so that it ends before Slurm ends it.

    Args:
        kill_after_s: How long the trainer's program may take to stop.
        grace_s: The time from Slurm's signal to the kill.
    """
    return max(_LEAST_BOUND_S, min(kill_after_s, grace_s - 2.0))


def limit_margin_s(*, limit_s: float, kill_after_s: float) -> float:
    """Return how long before its first time limit a lease begins to leave.

    Where a tick lowers the limit, the agent leaves when Slurm sends TERM. Limits were
    seen enforced up to 11 s late, and never early.
    """
    return min(kill_after_s, limit_s / 10) + 5.0


def write_notices(
    observed: Observation, trainer: ObservedTrainer
) -> tuple[WriteNotice, ...]:
    """Return the notices by which the other agents learn that this lease leaves."""
    if not trainer.is_being_left:
        return ()
    return tuple(
        WriteNotice(trainer.name, generation.number)
        for generation in trainer.generations
        if _has_part(observed, generation) and observed.me not in generation.notices
    )


def _has_part(observed: Observation, generation: ObservedGeneration) -> bool:
    return not generation.is_over and observed.me in generation.assigned.keys


def kill_lingering_ranks(
    observed: Observation, trainer: ObservedTrainer
) -> tuple[KillRanks, ...]:
    """Return the worlds whose ranks linger here while another job waits for their node.

    A program may go on for seconds after it has committed. All ranks are killed, as a
    world ends only as a whole, and nothing but ranks: a launcher that loses its daemons
    takes longer to end.
    """
    return tuple(
        KillRanks(trainer.name, generation.number)
        for generation in trainer.generations
        if generation.processes
        and not generation.is_over
        and generation.committed_for(observed.patience.farewell_s)
        and any(
            observed.is_leaving(trainer, generation, member.key)
            for member in generation.assigned.members
        )
    )


def give_back(observed: Observation) -> tuple[Action, ...]:
    """Return the actions that give this lease back, if that is due."""
    if observed.leaving_s is None:
        has_part = observed.trainers or observed.unknown
        is_idle = not has_part and observed.idle_s >= observed.patience.idle_s
        return (GiveBackLease("no work came"),) if is_idle else ()
    if observed.leaving_s >= observed.bound_s + _FINAL_S:
        last = tuple(_final_endings(observed))
        return (SweepAll(), *last, GiveBackLease("the time to leave is up"))
    is_free = all(_is_free(observed, trainer) for trainer in observed.trainers)
    if is_free and not observed.unknown:
        return (GiveBackLease("it was asked to leave"),)
    return (SweepAll(),) if observed.leaving_s >= observed.bound_s else ()


def _final_endings(observed: Observation) -> Iterator[WriteEnding]:
    """Yield endings of the generations that this lease heads; no other would."""
    for trainer in observed.trainers:
        for generation in trainer.generations:
            if generation.is_headed_by(observed.me) and not generation.is_over:
                world = generation.world
                yield WriteEnding(
                    trainer.name,
                    generation.number,
                    was_launched=world is not None,
                    was_asked=world is not None and world.asked_s is not None,
                    lost_lease=True,
                    age_s=None if world is None else world.age_s,
                    why="its head had to leave",
                )


def _is_free(observed: Observation, trainer: ObservedTrainer) -> bool:
    """Tell whether *trainer* needs nothing of this lease any more."""
    if observed.me in trainer.newest.assigned.keys:
        return False
    return not any(_is_busy(observed, g) for g in trainer.generations)


def _is_busy(observed: Observation, generation: ObservedGeneration) -> bool:
    """Tell whether *generation* still needs this lease."""
    if generation.is_over or observed.me not in generation.assigned.keys:
        return False
    if generation.is_headed_by(observed.me):
        return True
    last_s = _DAEMON_FAREWELLS * observed.patience.farewell_s
    return generation.processes > 0 and not generation.committed_for(last_s)


# The spare of a lease, from which the next ranks are forked

SPARE_UNSEEN = "the trainer of the spare is not seen"
"""A condition; it may hold for a moment, where the trainer's files cannot be read."""
_UNSEEN_SCANS = 3.0


def is_spare_unseen(observed: Observation) -> bool:
    """Tell whether nothing is known of the trainer whose spare this lease has."""
    names = {trainer.name for trainer in observed.trainers}
    return observed.spare is not None and observed.spare.trainer not in names


def manage_spare(observed: Observation, *, unseen_s: float) -> tuple[Action, ...]:
    """Return the actions that start or end the spare of this lease.

    A spare that ended by itself is not started again: it would do the same. A spare
    whose trainer has not been seen for *unseen_s* may be ended.
    """
    wanted = next((t for t in observed.trainers if _wants_spare(observed, t)), None)
    if observed.spare is None:
        if wanted is None or not wanted.newest.has_begun:
            return ()
        return (StartSpare(wanted.newest.assigned),)
    if observed.spare.is_asked or (wanted and _fits(observed.spare, wanted)):
        return ()
    longest_s = _UNSEEN_SCANS * observed.patience.scan_s
    if is_spare_unseen(observed) and unseen_s < longest_s:
        return ()
    return (EndSpare(),)


def _wants_spare(observed: Observation, trainer: ObservedTrainer) -> bool:
    is_going_on = not trainer.verdict.is_final
    is_here = observed.me in trainer.newest.assigned.keys and not trainer.is_being_left
    asks = bool(trainer.job.launch.spare) or trainer.has_room_for_spare
    return asks and is_going_on and is_here and not trainer.is_done


def _fits(spare: ObservedSpare, trainer: ObservedTrainer) -> bool:
    """Tell whether *trainer* can use *spare*; after a failure it wants a new one.

    The user may have corrected the program since.
    """
    return spare.trainer == trainer.name and spare.generation > trainer.failed
