"""Which waiting leases serve what is wanted, what is missing, and what is too much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from freetrain.broker.lease import IntentOutcome, Lease, LeaseState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from freetrain.broker.lease import Intent
    from freetrain.broker.limits import Limits
    from freetrain.broker.wanted import WantedLeases

    Waiting: TypeAlias = Intent | Lease


@dataclass(frozen=True, slots=True)
class Supply:
    """How what waits compares with what is wanted.

    Attributes:
        deficits: Requests, each with how many leases it still lacks; the longest
            first.
        surplus: Waiting leases that serve no request.
    """

    deficits: tuple[tuple[WantedLeases, int], ...]
    surplus: tuple[Lease, ...]


def under_way(intents: Iterable[Intent]) -> tuple[Intent, ...]:
    """Return the intents of which nobody knows yet whether Slurm has them."""
    return tuple(i for i in intents if i.outcome is IntentOutcome.OPEN)


def match(
    requests: Sequence[WantedLeases],
    leases: Iterable[Lease],
    intents: Iterable[Intent],
    *,
    now_s: float,
    limits: Limits,
) -> Supply:
    """Compare what waits with what is wanted.

    Submissions under way count like leases that wait, once for each task: whether
    Slurm took them is unknown, and asking again would ask twice.
    """
    waiting: list[Waiting] = [i for i in under_way(intents) for _ in range(i.tasks)]
    waiting += [lease for lease in leases if _waits(lease)]
    deficits = []
    for request in requests:
        missing = len(request.nodes)
        for one in sorted(waiting, key=_longest_first):
            if missing and _serves(one, request, now_s=now_s, limits=limits):
                waiting.remove(one)
                missing -= 1
        if missing:
            deficits.append((request, missing))
    surplus = [w for w in waiting if isinstance(w, Lease) and _can_start(w, now_s)]
    return Supply(tuple(deficits), tuple(surplus))


def _waits(lease: Lease) -> bool:
    return lease.state is LeaseState.PENDING and lease.cancel_s is None


def _longest_first(one: Waiting) -> tuple[bool, int]:
    return (isinstance(one, Lease), -one.limit_min)


def _serves(
    one: Waiting, request: WantedLeases, *, now_s: float, limits: Limits
) -> bool:
    """Tell whether *one*, which was asked for earlier, is what *request* asks.

    It must be over before the hole is, but for what Slurm itself shifts plans by,
    and long enough not to waste the hole.
    """
    return (
        one.shape == request.shape
        and request.limit_min <= 2 * one.limit_min
        and one.limit_min <= request.most_limit_min
        and one.deadline_s <= request.end_s + limits.start_slack_s
        and _can_start(one, now_s)
    )


def _can_start(one: Waiting, now_s: float) -> bool:
    """Tell whether there is time left; where there is none, Slurm removes it."""
    return now_s + 60.0 * one.limit_min <= one.deadline_s
