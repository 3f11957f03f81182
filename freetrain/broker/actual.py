"""What is so, as reconciling takes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from freetrain.broker.claims import NO_CLAIMS, Claims
from freetrain.broker.pace import NOTHING_LATELY, Pace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.broker.belief import Extra
    from freetrain.broker.lease import Assignment, Lease, LeaseKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Actual:
    """What is so.

    Attributes:
        leases: What is believed of our leases.
        assignments: The newest generation of every trainer that has one, those
            that want no more nodes included.
        now_s: When the look was taken, by slurmctld's clock.
        pool_nodes: Nodes that can be planned with; a lease elsewhere has lost its
            hole.
        extras: Jobs that stand for no lease.
        claims: Nodes that others' jobs could start on; none where Slurm preempts.
        pace: What happened lately.
        silent: Leases that no new generation may be formed of, because their agents
            have not come up, are leaving, or are not heard any more.
        absent: Leases of which no agent was ever heard.
        unheard_s: For how long running leases have not been heard; since they
            started where nobody ever was.
        is_plan_known: Whether Slurm's plan is known well enough to take new holes.
    """

    leases: tuple[Lease, ...]
    assignments: tuple[Assignment, ...]
    now_s: float
    pool_nodes: frozenset[str]
    extras: tuple[Extra, ...] = ()
    claims: Claims = NO_CLAIMS
    pace: Pace = NOTHING_LATELY
    silent: frozenset[LeaseKey] = frozenset()
    absent: frozenset[LeaseKey] = frozenset()
    unheard_s: Mapping[LeaseKey, float] = field(default_factory=dict)
    is_plan_known: bool = True
