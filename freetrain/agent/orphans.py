"""Generations whose head is lost, and leases that fell silent: who sees to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.agent.actions import EndLease, RequestStop, WriteEnding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from freetrain.agent.actions import Action
    from freetrain.agent.patience import Patience
    from freetrain.agent.seen import GenerationSeen, Seen, TrainerSeen
    from freetrain.broker.lease import LeaseKey


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
