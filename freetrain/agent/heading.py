"""What the head of a generation does about its world."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.agent.actions import AskToStop, Kill, Launch, Sweep, WriteEnding

if TYPE_CHECKING:
    from freetrain.agent.actions import Action
    from freetrain.agent.patience import Patience
    from freetrain.agent.seen import GenerationSeen, Seen, TrainerSeen, WorldSeen
    from freetrain.broker.lease import LeaseKey
    from freetrain.exchange.assigned import Member

_HEAD_LAST = 5.0
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


def is_ahead(trainer: TrainerSeen) -> bool:
    """Tell whether a world of *trainer* may start while the one before trains."""
    return trainer.job.elastic and trainer.job.launch.ahead


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
    why = _why_kill(seen, trainer, generation, world, patience)
    if why:
        return (Kill(*where, why),)
    why = _why_stop(seen, trainer, generation, patience)
    if why and world.asked_s is None:
        return (AskToStop(*where, why),)
    return ()


def _why_kill(
    seen: Seen,
    trainer: TrainerSeen,
    generation: GenerationSeen,
    world: WorldSeen,
    patience: Patience,
) -> str:
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
    if generation is not trainer.newest and _waits(trainer, world):
        return "a later generation came before it began"
    is_late = world.age_s >= patience.begin_patience_s
    if trainer.job.elastic and not generation.has_begun and is_late:
        return f"it did not begin within {patience.begin_patience_s:g} s"
    return ""


def _waits(trainer: TrainerSeen, world: WorldSeen) -> bool:
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


def _why_stop(
    seen: Seen, trainer: TrainerSeen, generation: GenerationSeen, patience: Patience
) -> str:
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
    if not _is_known(seen, generation, world, patience):
        return tuple(tidy)
    return (*tidy, _ending(seen, trainer, generation, world, patience))


def _is_known(
    seen: Seen, generation: GenerationSeen, world: WorldSeen, patience: Patience
) -> bool:
    """Tell whether it is known if a lease was lost: all beat since, or do not."""
    if generation.ended_well or seen.leaving_s is not None:
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
        was_launched=not _waits(trainer, world),
        was_asked=world.asked_s is not None,
        was_killed=(world.killed_s or 0.0) > (world.exit_s or 0.0),
        lost_lease=lost,
        is_done=trainer.is_done,
        exit_code=world.exit_code,
        age_s=world.age_s,
    )
