"""How a lease is given back: on notice, near its limit, or for want of work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.agent.actions import (
    EndOwnJob,
    KillRanks,
    SweepAll,
    WriteEnding,
    WriteNotice,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.agent.actions import Action
    from freetrain.agent.patience import Patience
    from freetrain.agent.seen import GenerationSeen, Seen, TrainerSeen

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
