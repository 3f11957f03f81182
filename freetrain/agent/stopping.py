"""Why a world that runs is asked to stop, or killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freetrain.agent.patience import Patience
    from freetrain.agent.seen import GenerationSeen, Seen, TrainerSeen, WorldSeen

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
