"""Who makes the next generation, when, and of which leases: without the broker."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.agent.actions import Propose
from freetrain.exchange.assigned import Assigned
from freetrain.exchange.layout import lease_name

if TYPE_CHECKING:
    from freetrain.agent.patience import Patience
    from freetrain.agent.seen import Seen, TrainerSeen
    from freetrain.exchange.assigned import Member


class Why(StrEnum):
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
    why: Why


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
    size = 0 if cause.why is Why.FINAL else _largest(trainer, len(survivors))
    members = survivors[:size]
    if cause.why is not Why.OVER and members == trainer.newest.assigned.members:
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


def _why(seen: Seen, trainer: TrainerSeen, patience: Patience) -> Why | None:
    newest = trainer.newest
    members = newest.assigned.members
    is_running = newest.world is not None and newest.world.exit_s is None
    if trainer.verdict.is_final or (trainer.is_done and not is_running):
        return Why.FINAL
    if newest.is_over:
        return Why.OVER
    if any(seen.is_leaving(trainer, newest, m.key) for m in members):
        return Why.LEAVING
    if any(seen.is_lost(m, patience) for m in members):
        return Why.LOST
    return None


def _survivors(
    seen: Seen, trainer: TrainerSeen, patience: Patience, *, why: Why
) -> tuple[Member, ...]:
    """Return the members that stay, in their order.

    Where one is lost, those that have been silent for half as long are taken for
    lost too: nodes of one rack or switch fall silent together.
    """
    doubtful_s = patience.silent_s / 2 if why is Why.LOST else patience.silent_s
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
        return patience.gather_s if cause.why is Why.LEAVING else 0.0
    order = [member.key for member in survivors]
    if seen.me not in order:
        return None
    turn = order.index(seen.me)
    if cause.why is Why.LEAVING:
        turn += 1  # whoever leaves does it
    return turn * patience.turn_s


def _largest(trainer: TrainerSeen, available_nodes: int) -> int:
    sizes = trainer.job.nodes.sizes
    fitting = bisect_right(sizes, available_nodes)
    return sizes[fitting - 1] if fitting else 0


def _reason(trainer: TrainerSeen, cause: Cause) -> str:
    if cause.why is not Why.FINAL:
        return f"generation {cause.generation}: {cause.why}"
    if trainer.verdict.is_final:
        return trainer.verdict.reason
    return "its work is done"
