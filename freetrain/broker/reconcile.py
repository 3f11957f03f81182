"""Wanted against actual: what to do about the difference.

Pure, and without memory: called again on what its actions lead to, it does nothing;
called again after only some of them, or none, were carried out, it does the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.broker.actions import Assign, Submit
from freetrain.broker.brakes import allowance
from freetrain.broker.endings import chosen, due, grouped
from freetrain.broker.generations import generations
from freetrain.broker.supply import match

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from freetrain.broker.actions import Action, Cancel
    from freetrain.broker.actual import Actual
    from freetrain.broker.lease import Intent
    from freetrain.broker.limits import Limits
    from freetrain.broker.supply import Supply
    from freetrain.broker.wanted import Wanted


def reconcile(
    wanted: Wanted, actual: Actual, intents: Iterable[Intent], limits: Limits
) -> tuple[Action, ...]:
    """Return what to do, in the order in which to do it.

    New generations come first, so that survivors know before anybody leaves; then
    what others wait for; then what nobody wants; submissions last. Where the caps
    cut the list short, the next tick goes on.

    Args:
        wanted: What the plan asks for.
        actual: What is so.
        intents: Every intent that may still have jobs.
        limits: Caps and patience.
    """
    intents = tuple(intents)
    supply = match(
        wanted.requests, actual.leases, intents, now_s=actual.now_s, limits=limits
    )
    churn = max(0, limits.most_churn - actual.pace.churned)
    by_choice = chosen(wanted, actual, supply.surplus)[:churn]
    may = allowance(actual, intents, limits, churn=churn - len(by_choice))
    calls: tuple[Cancel | Submit, ...] = (
        *grouped(due(wanted, actual, limits)),
        *grouped(by_choice),
        *_submits(supply, may.leases, limits),
    )
    new = (Assign(one) for one in generations(wanted, actual, limits))
    return (*new, *calls[: limits.most_calls])


def _submits(supply: Supply, most: int, limits: Limits) -> Iterator[Submit]:
    """Yield one job array, or a few, for each request that lacks leases."""
    for request, missing in supply.deficits:
        tasks = min(missing, most)
        most -= tasks
        while tasks > 0:
            size = min(tasks, limits.most_array_tasks)
            tasks -= size
            yield Submit(request.shape, request.limit_min, request.deadline_s, size)
