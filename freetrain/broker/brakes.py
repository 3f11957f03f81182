"""What keeps the broker from asking for leases."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.broker.pace import paused_until_s
from freetrain.broker.supply import under_way

if TYPE_CHECKING:
    from collections.abc import Iterable

    from freetrain.broker.actual import Actual
    from freetrain.broker.lease import Intent
    from freetrain.broker.limits import Limits


class Brake(StrEnum):
    """Why no more leases are asked for."""

    PLAN_UNKNOWN = "Slurm's plan could not be read whole"
    PAUSED = "leases failed to start repeatedly"
    YIELDING = "nodes are being given up to others"
    LEASE_CAP = "as many leases as the site allows"
    TICK_CAP = "as many new leases as one tick may ask for"
    CHURN_CAP = "as many leases as may come and go"


@dataclass(frozen=True, slots=True, order=True)
class Allowance:
    """How many leases may be asked for.

    Attributes:
        leases: How many.
        brake: What does not let it be more.
    """

    leases: int
    brake: Brake


def allowance(
    actual: Actual, intents: Iterable[Intent], limits: Limits, *, churn: int
) -> Allowance:
    """Return how many leases may be asked for now.

    Args:
        actual: What is so.
        intents: Every intent that may still have jobs.
        limits: The caps.
        churn: How many leases may still come and go.
    """
    stop = _stop(actual, limits)
    if stop is not None:
        return Allowance(0, stop)
    live = sum(lease.is_live for lease in actual.leases)
    live += sum(intent.tasks for intent in under_way(intents))
    return min(
        Allowance(max(0, limits.most_leases - live), Brake.LEASE_CAP),
        Allowance(limits.most_new_leases, Brake.TICK_CAP),
        Allowance(max(0, churn), Brake.CHURN_CAP),
    )


def _stop(actual: Actual, limits: Limits) -> Brake | None:
    if not actual.is_plan_known:
        return Brake.PLAN_UNKNOWN
    until_s = paused_until_s(actual.pace, limits)
    if until_s is not None and actual.now_s < until_s:
        return Brake.PAUSED
    return Brake.YIELDING if actual.claims.awaited else None
