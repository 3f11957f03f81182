"""What the head of a generation does about its world."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.agent.actions import AskToStop, Kill, Launch, Sweep, WriteEnding
from freetrain.agent.stopping import is_ahead, waits, why_kill, why_stop

if TYPE_CHECKING:
    from freetrain.agent.actions import Action
    from freetrain.agent.patience import Patience
    from freetrain.agent.seen import GenerationSeen, Seen, TrainerSeen, WorldSeen
    from freetrain.broker.lease import LeaseKey
    from freetrain.exchange.assigned import Member

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
