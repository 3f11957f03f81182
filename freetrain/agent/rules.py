"""How a generation ended, from what its agent knows and what its world said."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.agent.seen import (
    AskToStop,
    EndLease,
    EndOwnJob,
    EndSpare,
    Kill,
    KillRanks,
    Launch,
    Propose,
    RequestStop,
    StartSpare,
    Sweep,
    SweepAll,
    WriteEnding,
    WriteNotice,
)
from freetrain.state.files import Assigned, Ended, Ending, lease_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from freetrain.agent.seen import (
        Action,
        GenerationSeen,
        Patience,
        Seen,
        SpareSeen,
        TrainerSeen,
        WorldSeen,
    )
    from freetrain.broker.lease import LeaseKey
    from freetrain.state.files import Member


# ----------------------------------------------------------------------
# How a generation ended, from what its agent knows and what its world said.

_NOT_ELASTIC = "a program without freetrain.elastic needs elastic = false"


def drafted(action: WriteEnding, *, author: str, unix_s: float) -> Ending:
    """Return the ending as the agent alone knows it.

    Args:
        action: What it knows.
        author: Its lease's name.
        unix_s: Now.
    """
    return Ending(
        generation=action.generation,
        ended=Ended.KILLED if action.was_launched else Ended.NOT_LAUNCHED,
        was_asked=action.was_asked,
        lost_lease=action.lost_lease,
        exit_code=action.exit_code,
        step=0,
        committed_step=0,
        message=action.why,
        started_s=None if action.age_s is None else unix_s - action.age_s,
        ended_s=unix_s,
        author=author,
    )


def not_started(
    generation: int, error: Exception, *, author: str, unix_s: float
) -> Ending:
    """Return the ending of a world that could not be started."""
    return Ending(
        generation=generation,
        ended=Ended.FAILED,
        was_asked=False,
        lost_lease=False,
        exit_code=None,
        step=0,
        committed_step=0,
        message=str(error),
        started_s=None,
        ended_s=unix_s,
        author=author,
    )


def judged(ending: Ending, action: WriteEnding, *, elastic: bool) -> Ending:
    """Return *ending*, which has the world's own word by now, as it is to count.

    Programs that are not elastic leave no word but their exit status: whatever it
    is, one that was asked to stop and did has been rescaled.
    """
    ended = ending.ended
    if ended is Ended.KILLED and not elastic:
        ended = _by_exit_code(action)
    if action.is_done and ended not in {Ended.FAILED, Ended.DO_NOT_RESTART}:
        ended = Ended.FINISHED
    said = ending.message or _by_its_exit(action, ended, elastic=elastic)
    return replace(ending, ended=ended, message=said)


def _by_its_exit(action: WriteEnding, ended: Ended, *, elastic: bool) -> str:
    """Return what tells people why, of a world that left no word and failed."""
    if ended not in {Ended.KILLED, Ended.FAILED} or action.exit_code is None:
        return ""
    if action.was_asked or action.was_killed or action.lost_lease:
        return ""
    if elastic and action.exit_code == 0:
        return f"exit code 0, and no outcome; {_NOT_ELASTIC}"
    if action.exit_code < 0:
        return f"its launcher was ended by signal {-action.exit_code}"
    return f"exit code {action.exit_code}"


def _by_exit_code(action: WriteEnding) -> Ended:
    if action.was_killed or action.exit_code is None:
        return Ended.KILLED
    if action.was_asked:
        return Ended.RESCALED
    if action.exit_code == 0:
        return Ended.FINISHED
    return Ended.KILLED if action.lost_lease else Ended.FAILED


# ----------------------------------------------------------------------
# Why a world that runs is asked to stop, or killed.

_HEAD_LAST = 5.0  # farewells, until a head that leaves waits no longer


def is_ahead(trainer: TrainerSeen) -> bool:
    """Tell whether a world of *trainer* may start while the one before trains."""
    return trainer.job.elastic and trainer.job.launch.ahead


def why_kill(
    seen: Seen,
    trainer: TrainerSeen,
    generation: GenerationSeen,
    world: WorldSeen,
    patience: Patience,
) -> str:
    """Return why *world*, which runs, is killed; empty if it is not."""
    if generation.is_over:
        return "it is over already"
    if _is_stuck(seen, trainer, generation):
        return "a process of it is stopped"
    why = _why_never_begin(trainer, generation, world, patience)
    if why:
        return why
    why = _why_not_wait(seen, trainer, generation, patience)
    if why:
        return why
    if world.asked_s is not None:
        limit_s = _stop_limit_s(seen, trainer, generation, patience)
        if world.asked_s >= limit_s:
            return f"it did not stop within {limit_s:g} s"
    return ""


def _why_not_wait(
    seen: Seen, trainer: TrainerSeen, generation: GenerationSeen, patience: Patience
) -> str:
    """Return why a world is killed for the sake of those who wait for its nodes."""
    members = generation.assigned.members
    is_left = any(seen.is_leaving(trainer, generation, m.key) for m in members)
    if is_left and trainer.job.elastic and not generation.has_begun:
        return "a lease leaves, and it has not begun"
    if seen.leaving_s is None:
        return ""
    # Not before the other nodes that leave, whose steps have their clients here.
    if generation.has_said_goodbye(_HEAD_LAST * patience.farewell_s):
        return "its head must leave, and all is committed"
    return "its head must leave now" if seen.leaving_s >= seen.bound_s else ""


def _is_stuck(seen: Seen, trainer: TrainerSeen, generation: GenerationSeen) -> bool:
    where = (trainer.name, generation.number)
    beats = [seen.peer(m.key).beat for m in generation.assigned.members]
    return where in seen.stuck or any(
        b and b.is_stuck and (b.trainer, b.generation) == where for b in beats
    )


def _why_never_begin(
    trainer: TrainerSeen,
    generation: GenerationSeen,
    world: WorldSeen,
    patience: Patience,
) -> str:
    """Return why a world that has not trained so far is not to; mostly nothing."""
    if generation is not trainer.newest and waits(trainer, world):
        return "a later generation came before it began"
    is_late = world.age_s >= patience.begin_patience_s
    if trainer.job.elastic and not generation.has_begun and is_late:
        return f"it did not begin within {patience.begin_patience_s:g} s"
    return ""


def waits(trainer: TrainerSeen, world: WorldSeen) -> bool:
    """Tell whether a world launched ahead has not begun to train."""
    if world.after is None:
        return False
    return any(g.number == world.after and not g.outcome for g in trainer.open)


def _stop_limit_s(
    seen: Seen, trainer: TrainerSeen, generation: GenerationSeen, patience: Patience
) -> float:
    """Return how long it may take to stop: with a node gone it may never."""
    kill_after_s = trainer.job.stop.kill_after_s
    if any(seen.is_lost(m, patience) for m in generation.assigned.members):
        return min(kill_after_s, patience.silent_s)
    return kill_after_s


def why_stop(
    seen: Seen, trainer: TrainerSeen, generation: GenerationSeen, patience: Patience
) -> str:
    """Return why the world of *generation* is asked to stop; empty if it is not."""
    members = generation.assigned.members
    if trainer.is_done:
        return "the work is done"
    if any(seen.is_leaving(trainer, generation, m.key) for m in members):
        return "a lease leaves"
    if generation is trainer.newest:
        return ""
    if any(seen.is_lost(m, patience) for m in members):
        return "a lease is lost"
    return _why_rescale(trainer, patience)


def _why_rescale(trainer: TrainerSeen, patience: Patience) -> str:
    newest = trainer.newest
    if newest.is_over or not newest.has_members or not is_ahead(trainer):
        return f"generation {newest.number} follows"
    if newest.is_ready:
        return f"generation {newest.number} is ready"
    if newest.age_s >= patience.ahead_patience_s:
        return f"generation {newest.number} is not ready, and has had its time"
    return ""


# ----------------------------------------------------------------------
# What the head of a generation does about its world.

# A step whose client is killed before it was told of the step's end takes two seconds
# more to end, and so does the lease that the step is in.
_CLIENTS_S = 1.0
_CLEAN_UP_S = 3.0  # beyond the grace of a sweep: what KILL does not end stays


def heading(seen: Seen, trainer: TrainerSeen, patience: Patience) -> tuple[Action, ...]:
    """Return what this agent does about the worlds that are its own."""
    actions: list[Action] = []
    for generation in trainer.generations:
        world = generation.world
        if world is None:
            actions += _without_world(seen, trainer, generation, patience)
        elif world.exit_s is None:
            actions += _running(seen, trainer, generation, world, patience)
        elif not generation.is_over:
            actions += _gone(seen, trainer, generation, world, patience)
    return tuple(actions)


def _without_world(
    seen: Seen, trainer: TrainerSeen, generation: GenerationSeen, patience: Patience
) -> tuple[Action, ...]:
    if generation.is_over or not generation.is_headed_by(seen.me):
        return ()
    if generation is not trainer.newest:
        why = "a later generation came before it was launched"
        ending = WriteEnding(
            trainer.name, generation.number, was_launched=False, why=why
        )
        return (ending,)
    if _may_launch(seen, trainer, patience):
        after = trainer.open[-1].number if trainer.open else None
        return (Launch(generation.assigned, after),)
    return ()


def _may_launch(seen: Seen, trainer: TrainerSeen, patience: Patience) -> bool:
    is_wanted = not trainer.verdict.is_final and not trainer.is_done
    has_waited = trainer.since_end_s >= trainer.verdict.wait_s
    if not is_wanted or not has_waited or seen.leaving_s is not None:
        return False
    return _is_room(seen, trainer) and _are_up(seen, trainer, patience)


def _is_room(seen: Seen, trainer: TrainerSeen) -> bool:
    """Tell whether at most the world before it is still there, and may be."""
    if not trainer.open:
        return trainer.job.elastic or _are_swept(seen, trainer)
    return is_ahead(trainer) and len(trainer.open) == 1


def _are_swept(seen: Seen, trainer: TrainerSeen) -> bool:
    """Tell whether no process of an earlier generation is left on any node."""
    last = trainer.newest.number - 1
    mine = seen.me in trainer.newest.assigned.keys
    if mine and any(g.processes for g in trainer.earlier):
        return False
    before = trainer.previous.keys if trainer.previous else frozenset()
    both = (trainer.newest.assigned.keys & before) - {seen.me}
    return all(_has_swept(seen, trainer, key, last) for key in both)


def _has_swept(
    seen: Seen, trainer: TrainerSeen, key: LeaseKey, generation: int
) -> bool:
    beat = seen.peer(key).beat
    if beat is None or beat.trainer != trainer.name:
        return False
    return beat.swept_generation >= generation


def _are_up(seen: Seen, trainer: TrainerSeen, patience: Patience) -> bool:
    """Tell whether every member's agent is there for this trainer."""
    return all(
        _is_up(seen, trainer, member, patience)
        for member in trainer.newest.assigned.members
    )


def _is_up(
    seen: Seen, trainer: TrainerSeen, member: Member, patience: Patience
) -> bool:
    if seen.is_leaving(trainer, trainer.newest, member.key):
        return False
    if member.key == seen.me:
        return seen.occupied_by(but=trainer.name) is None
    peer = seen.peer(member.key)
    if not peer.has_beaten or seen.is_lost(member, patience):
        return False
    # One that another trainer still has processes on says so.
    return peer.beat is not None and peer.beat.trainer in {"", trainer.name}


def _running(
    seen: Seen,
    trainer: TrainerSeen,
    generation: GenerationSeen,
    world: WorldSeen,
    patience: Patience,
) -> tuple[Action, ...]:
    where = (trainer.name, generation.number)
    why = why_kill(seen, trainer, generation, world, patience)
    if why:
        return (Kill(*where, why),)
    why = why_stop(seen, trainer, generation, patience)
    if why and world.asked_s is None:
        return (AskToStop(*where, why),)
    return ()


def _gone(
    seen: Seen,
    trainer: TrainerSeen,
    generation: GenerationSeen,
    world: WorldSeen,
    patience: Patience,
) -> tuple[Action, ...]:
    """Clean up after a world whose launcher is gone, then say how it ended."""
    exit_s = world.exit_s or 0.0
    tidy: list[Action] = []
    if world.killed_s is None and world.lingers and exit_s < _CLIENTS_S:
        return ()
    if world.killed_s is None:
        tidy.append(Kill(trainer.name, generation.number, ""))
    if generation.processes and exit_s < patience.sweep_grace_s + _CLEAN_UP_S:
        return (*tidy, Sweep(trainer.name, generation.number))
    if not _is_known(seen, trainer, generation, world, patience):
        return tuple(tidy)
    return (*tidy, _ending(seen, trainer, generation, world, patience))


def _is_known(
    seen: Seen,
    trainer: TrainerSeen,
    generation: GenerationSeen,
    world: WorldSeen,
    patience: Patience,
) -> bool:
    """Tell whether it is known if a lease was lost: all beat since, or do not.

    A world that stopped well may have done so because a lease was lost, too: what
    sweeps the node of an agent that died is polite. That is not the program's doing.
    """
    needs_no_excuse = world.asked_s is not None or trainer.is_done
    if (generation.ended_well and needs_no_excuse) or seen.leaving_s is not None:
        return True
    exit_s = world.exit_s or 0.0
    members = (m for m in generation.assigned.members if m.key != seen.me)
    peers = [(m, seen.peer(m.key)) for m in members]
    return all(
        p.silent_s < exit_s or p.has_left or seen.is_lost(m, patience) for m, p in peers
    )


def _ending(
    seen: Seen,
    trainer: TrainerSeen,
    generation: GenerationSeen,
    world: WorldSeen,
    patience: Patience,
) -> WriteEnding:
    members = generation.assigned.members
    lost = any(
        seen.is_lost(m, patience) or seen.is_leaving(trainer, generation, m.key)
        for m in members
    )
    return WriteEnding(
        trainer.name,
        generation.number,
        was_launched=not waits(trainer, world),
        was_asked=world.asked_s is not None,
        was_killed=(world.killed_s or 0.0) > (world.exit_s or 0.0),
        lost_lease=lost,
        is_done=trainer.is_done,
        exit_code=world.exit_code,
        age_s=world.age_s,
    )


# ----------------------------------------------------------------------
# How a lease is given back: on notice, near its limit, or for want of work.

_LAST_S = 1.0
_LAST = 3.0  # farewells, until a lease no longer waits for daemons either
_LEAST_BOUND_S = 0.5


def leave_bound_s(*, kill_after_s: float, grace_s: float) -> float:
    """Return how long leaving may take, so that it ends before Slurm ends it.

    Args:
        kill_after_s: How long the trainer's program may take to stop.
        grace_s: What Slurm gives.
    """
    return max(_LEAST_BOUND_S, min(kill_after_s, grace_s - 2.0))


def limit_margin_s(*, limit_s: float, kill_after_s: float) -> float:
    """Return how long before its time limit a lease begins to leave.

    Limits were seen enforced up to 11 s late, and never early.
    """
    return min(kill_after_s, limit_s / 10) + 5.0


def notices(seen: Seen, trainer: TrainerSeen) -> tuple[WriteNotice, ...]:
    """Return where this lease has to say that it leaves."""
    if not trainer.must_leave:
        return ()
    return tuple(
        WriteNotice(trainer.name, generation.number)
        for generation in trainer.generations
        if _has_part(seen, generation) and seen.me not in generation.notices
    )


def goodbyes(
    seen: Seen, trainer: TrainerSeen, patience: Patience
) -> tuple[KillRanks, ...]:
    """Return the worlds whose ranks linger here while others wait for a node of theirs.

    What a program does after it has committed may take seconds. All ranks are killed,
    as a world ends only as a whole, and nothing but ranks: a launcher that loses its
    daemons takes longer to end.
    """
    return tuple(
        KillRanks(trainer.name, generation.number)
        for generation in trainer.generations
        if generation.processes
        and not generation.is_over
        and generation.has_said_goodbye(patience.farewell_s)
        and any(
            seen.is_leaving(trainer, generation, member.key)
            for member in generation.assigned.members
        )
    )


def leaving(seen: Seen, patience: Patience) -> tuple[Action, ...]:
    """Return whether this lease is given back now, whatever else there is."""
    if seen.leaving_s is None:
        is_idle = not seen.trainers and seen.idle_s >= patience.idle_s
        return (EndOwnJob("no work came"),) if is_idle else ()
    if seen.leaving_s >= seen.bound_s + _LAST_S:
        last = tuple(_last_words(seen))
        return (SweepAll(), *last, EndOwnJob("the time to leave is up"))
    if all(_is_free(seen, trainer, patience) for trainer in seen.trainers):
        return (EndOwnJob("told to leave"),)
    return (SweepAll(),) if seen.leaving_s >= seen.bound_s else ()


def _last_words(seen: Seen) -> Iterator[WriteEnding]:
    """Yield endings for what this lease heads: nobody else would say them."""
    for trainer in seen.trainers:
        for generation in trainer.generations:
            if generation.is_headed_by(seen.me) and not generation.is_over:
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


def _has_part(seen: Seen, generation: GenerationSeen) -> bool:
    return not generation.is_over and seen.me in generation.assigned.keys


def _is_free(seen: Seen, trainer: TrainerSeen, patience: Patience) -> bool:
    """Tell whether *trainer* needs nothing of this lease any more."""
    if seen.me in trainer.newest.assigned.keys:
        return False
    return not any(_is_busy(seen, one, patience) for one in trainer.generations)


def _is_busy(seen: Seen, generation: GenerationSeen, patience: Patience) -> bool:
    """Tell whether *generation* still needs this lease."""
    if generation.is_over or seen.me not in generation.assigned.keys:
        return False
    if generation.is_headed_by(seen.me):
        return True
    last_s = _LAST * patience.farewell_s
    return generation.processes > 0 and not generation.has_said_goodbye(last_s)


# ----------------------------------------------------------------------
# Generations whose head is lost, and leases that fell silent: who sees to them.


@dataclass(frozen=True, slots=True)
class Orphan:
    """A generation that is not over and whose head is gone; remembered."""

    trainer: str
    generation: int


def orphans_of(
    seen: Seen, trainer: TrainerSeen, patience: Patience
) -> tuple[Orphan, ...]:
    """Return the generations before the newest that nobody watches."""
    return tuple(
        Orphan(trainer.name, generation.number)
        for generation in trainer.open
        if _is_headless(seen, generation, patience)
    )


def see_to_orphans(
    seen: Seen,
    trainer: TrainerSeen,
    patience: Patience,
    *,
    ages_s: Mapping[object, float],
) -> tuple[Action, ...]:
    """Return what this agent does for generations whose head is gone.

    A head that is frozen, or cut off from the files, leaves a world that trains:
    the request to stop lets it commit before it is fenced.

    Args:
        seen: All that is known.
        trainer: The trainer.
        patience: Times to go by.
        ages_s: For how long each orphan has been one.
    """
    turn = _turn(seen, trainer, patience)
    if turn is None:
        return ()
    actions: list[Action] = []
    for generation in trainer.open:
        age_s = ages_s.get(Orphan(trainer.name, generation.number))
        if age_s is not None and age_s >= turn * patience.turn_s:
            waited_s = age_s - turn * patience.turn_s
            actions += _for_orphan(trainer, generation, patience, waited_s=waited_s)
    if turn == 0:
        actions += _silent_leases(seen, trainer, patience)
    return tuple(actions)


def _for_orphan(
    trainer: TrainerSeen,
    generation: GenerationSeen,
    patience: Patience,
    *,
    waited_s: float,
) -> Iterator[Action]:
    where = (trainer.name, generation.number)
    if not generation.outcome and waited_s < patience.rescue_s:
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


def _is_headless(seen: Seen, generation: GenerationSeen, patience: Patience) -> bool:
    head = generation.assigned.head
    if head is None or head.key == seen.me:
        return False
    return seen.is_lost(head, patience) or seen.peer(head.key).has_left


def _turn(seen: Seen, trainer: TrainerSeen, patience: Patience) -> int | None:
    """Return how many living leases are to see to it before this one."""
    order: dict[LeaseKey, None] = {}
    for generation in reversed(trainer.generations):
        for member in generation.assigned.members:
            gone = seen.peer(member.key).has_left or seen.is_lost(member, patience)
            if not gone:
                order.setdefault(member.key)
    turns = list(order)
    return turns.index(seen.me) if seen.me in order else None


def _silent_leases(
    seen: Seen, trainer: TrainerSeen, patience: Patience
) -> Iterator[EndLease]:
    """Yield the leases to end: silent ones that have no part in the newest.

    One whose agent never came is left to the broker: it holds no process of ours.
    A head's world is given its time to commit before.
    """
    mine = trainer.newest.assigned.keys
    open_ones = [generation.assigned for generation in trainer.open]
    before = [*open_ones, *([trainer.previous] if trainer.previous else [])]
    heads = {assigned.head.key for assigned in open_ones if assigned.head}
    members = {m.key: m for assigned in before for m in assigned.members}
    for key, member in members.items():
        came = seen.peer(key).beat is not None
        is_due = key not in seen.ended_leases and key not in heads
        if key not in mine and came and is_due and seen.is_lost(member, patience):
            yield EndLease(member)


# ----------------------------------------------------------------------
# Whether this lease keeps a spare, and for which trainer.

UNSEEN = "the trainer of the spare is not seen"
"""May be so for a moment, where its files cannot be read; remembered."""

_LOOKS = 3.0


def is_unseen(seen: Seen) -> bool:
    """Tell whether nothing is known of the trainer whose spare this lease has."""
    names = {trainer.name for trainer in seen.trainers}
    return seen.spare is not None and seen.spare.trainer not in names


def sparing(seen: Seen, patience: Patience, *, unseen_s: float) -> tuple[Action, ...]:
    """Return what this agent does about its spare.

    One that ended by itself is not started again: it would do the same.

    Args:
        seen: All that is known.
        patience: Times to go by.
        unseen_s: For how long its trainer has not been seen.
    """
    wanted = next((one for one in seen.trainers if _is_wanted(seen, one)), None)
    if seen.spare is None:
        if wanted is None or not wanted.newest.has_begun:
            return ()
        return (StartSpare(wanted.newest.assigned),)
    if seen.spare.is_asked or (wanted and _is_of_use(seen.spare, wanted)):
        return ()
    if is_unseen(seen) and unseen_s < _LOOKS * patience.scan_s:
        return ()
    return (EndSpare(),)


def _is_of_use(spare: SpareSeen, trainer: TrainerSeen) -> bool:
    """Tell whether *spare* is what *trainer* wants; after a failure it wants another.

    Its user may have mended the program since.
    """
    return spare.trainer == trainer.name and spare.generation > trainer.failed


def _is_wanted(seen: Seen, trainer: TrainerSeen) -> bool:
    is_going_on = not trainer.verdict.is_final
    is_here = seen.me in trainer.newest.assigned.keys and not trainer.must_leave
    asks = bool(trainer.job.launch.spare)
    return asks and is_going_on and is_here and not trainer.is_done


# ----------------------------------------------------------------------
# Who makes the next generation, when, and of which leases: without the broker.


class EndReason(StrEnum):
    """Why the newest generation cannot be the last."""

    FINAL = "final"
    LEAVING = "a lease leaves"
    LOST = "a lease is lost"
    OVER = "its world is over"


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason for a next generation; remembered, so that turns can be taken.

    Attributes:
        trainer: Whose.
        generation: The one that needs a successor.
        why: Why.
    """

    trainer: str
    generation: int
    why: EndReason


def cause_of(seen: Seen, trainer: TrainerSeen, patience: Patience) -> Cause | None:
    """Return why the newest generation of *trainer* needs a successor, if it does."""
    newest = trainer.newest
    if not newest.has_members:
        return None
    why = _why(seen, trainer, patience)
    return None if why is None else Cause(trainer.name, newest.number, why)


def succession(
    seen: Seen, trainer: TrainerSeen, patience: Patience, *, cause: Cause, age_s: float
) -> tuple[Propose, ...]:
    """Return the next generation, if it is this agent's turn to make it.

    A lease that leaves does, as soon as others that leave with it can have said so; of
    the others the first does, and the next ones only if nothing has come of it.

    Args:
        seen: All that is known.
        trainer: The trainer.
        patience: Times to go by.
        cause: Why there must be one.
        age_s: For how long that has been so.
    """
    survivors = _survivors(seen, trainer, patience, why=cause.why)
    delay_s = _delay_s(seen, trainer, survivors, cause=cause, patience=patience)
    if delay_s is None or age_s < delay_s:
        return ()
    size = 0 if cause.why is EndReason.FINAL else _largest(trainer, len(survivors))
    members = survivors[:size]
    if cause.why is not EndReason.OVER and members == trainer.newest.assigned.members:
        return ()
    assigned = Assigned(
        trainer=trainer.name,
        generation=cause.generation + 1,
        members=members,
        created_s=trainer.unix_s,
        author=lease_name(seen.me),
        reason=_reason(trainer, cause),
    )
    return (Propose(assigned),)


def _why(seen: Seen, trainer: TrainerSeen, patience: Patience) -> EndReason | None:
    newest = trainer.newest
    members = newest.assigned.members
    is_running = newest.world is not None and newest.world.exit_s is None
    if trainer.verdict.is_final or (trainer.is_done and not is_running):
        return EndReason.FINAL
    if newest.is_over:
        return EndReason.OVER
    if any(seen.is_leaving(trainer, newest, m.key) for m in members):
        return EndReason.LEAVING
    if any(seen.is_lost(m, patience) for m in members):
        return EndReason.LOST
    return None


def _survivors(
    seen: Seen, trainer: TrainerSeen, patience: Patience, *, why: EndReason
) -> tuple[Member, ...]:
    """Return the members that stay, in their order.

    Where one is lost, those that have been silent for half as long are taken for
    lost too: nodes of one rack or switch fall silent together.
    """
    doubtful_s = patience.silent_s / 2 if why is EndReason.LOST else patience.silent_s
    return tuple(
        member
        for member in trainer.newest.assigned.members
        if not seen.is_leaving(trainer, trainer.newest, member.key)
        and not seen.is_lost(member, patience)
        and not _is_doubtful(seen, member, doubtful_s)
    )


def _is_doubtful(seen: Seen, member: Member, doubtful_s: float) -> bool:
    peer = seen.peer(member.key)
    return peer.beat is not None and peer.silent_s >= doubtful_s


def _delay_s(
    seen: Seen,
    trainer: TrainerSeen,
    survivors: tuple[Member, ...],
    *,
    cause: Cause,
    patience: Patience,
) -> float | None:
    """Return for how long this agent leaves it to others; None for for ever."""
    if seen.me not in trainer.newest.assigned.keys:
        return None
    if trainer.must_leave:
        return patience.gather_s if cause.why is EndReason.LEAVING else 0.0
    order = [member.key for member in survivors]
    if seen.me not in order:
        return None
    turn = order.index(seen.me)
    if cause.why is EndReason.LEAVING:
        turn += 1  # whoever leaves does it
    return turn * patience.turn_s


def _largest(trainer: TrainerSeen, available_nodes: int) -> int:
    sizes = trainer.job.nodes.sizes
    fitting = bisect_right(sizes, available_nodes)
    return sizes[fitting - 1] if fitting else 0


def _reason(trainer: TrainerSeen, cause: Cause) -> str:
    if cause.why is not EndReason.FINAL:
        return f"generation {cause.generation}: {cause.why}"
    if trainer.verdict.is_final:
        return trainer.verdict.reason
    return "its work is done"


# ----------------------------------------------------------------------
# From what an agent knows to what it does: pure, and without a memory of its own.


def conditions(seen: Seen, patience: Patience) -> frozenset[object]:
    """Return what is amiss now; for how long it has been goes into ``decide``."""
    found: set[object] = set()
    for trainer in seen.trainers:
        cause = cause_of(seen, trainer, patience)
        if cause is not None:
            found.add(cause)
        found.update(orphans_of(seen, trainer, patience))
    if is_unseen(seen):
        found.add(UNSEEN)
    return frozenset(found)


def decide(
    seen: Seen, patience: Patience, *, ages_s: Mapping[object, float]
) -> tuple[Action, ...]:
    """Return what to do now, in order.

    Args:
        seen: All that is known.
        patience: Times to go by.
        ages_s: For how long each of the conditions has held.
    """
    actions: list[Action] = []
    for trainer in seen.trainers:
        actions += notices(seen, trainer)
        actions += goodbyes(seen, trainer, patience)
        actions += heading(seen, trainer, patience)
        cause = cause_of(seen, trainer, patience)
        if cause is not None:
            age_s = ages_s.get(cause, 0.0)
            actions += succession(seen, trainer, patience, cause=cause, age_s=age_s)
        actions += see_to_orphans(seen, trainer, patience, ages_s=ages_s)
    actions += sparing(seen, patience, unseen_s=ages_s.get(UNSEEN, 0.0))
    return (*actions, *leaving(seen, patience))
