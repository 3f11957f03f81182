"""Forecasts that are known beforehand, and decisions by them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from freetrain.broker.decide import Decision, decide_leases
from freetrain.broker.limits import Limits
from freetrain.broker.pool import Foresight, Trainer
from freetrain.lookahead.base import Prospect
from freetrain.lookahead.live import LiveForecast, PoolSnapshot
from freetrain.planning.lookahead import Lookahead, ProvingSearch
from freetrain.planning.policy import Tools
from milp.planner import Planner
from milp.problem import throughput
from tests.broker.broker_records import NOW_S, generation, lease, situation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from freetrain.broker.pool import Forecast
    from freetrain.lookahead.promises import Promise
    from slurm.holes import Hole

HORIZON_S = 400.0
STAYS = Prospect(HORIZON_S, 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Told:
    """A forecast that says what it was told to; groups are in the pool unless told."""

    groups: Mapping[str, str] = field(default_factory=dict)
    prospects: Mapping[str, Prospect] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    def group(self, node: str) -> str:
        return self.groups.get(node, node)

    def size(self, node: str) -> int:
        group = self.group(node)
        known = sum(other == group for other in self.groups.values())
        return self.sizes.get(group, max(1, known))

    def prospect(self, node: str, usable_s: float) -> Prospect:
        found = self.prospects.get(self.group(node), STAYS)
        if usable_s < HORIZON_S:
            return Prospect(min(found.life_s, usable_s), 1.0, 1.0)
        return found


def foresight(forecast: Forecast, **changes: float) -> Foresight:
    """Return what plans by *forecast* to a horizon of 400 s."""
    usual = {"horizon_s": HORIZON_S, "hit_weight": 0.25, "change_weight": 1.0}
    return Foresight(forecast=forecast, **(usual | changes))


def lookahead(*, limit_s: float = 60.0) -> Lookahead:
    """Return the policy, as a tick makes it."""
    return Lookahead(
        Tools(
            solver=Planner,
            start_solver=Planner,
            search=lambda: ProvingSearch(limit_s, lambda: 0.0),
        )
    )


def watched(*, promised: Mapping[str, Promise] | None = None) -> LiveForecast:
    forecast = LiveForecast(HORIZON_S)
    sight = PoolSnapshot(
        frozenset({f"n{k}" for k in range(8)}), frozenset(), promised or {}
    )
    forecast.look(NOW_S, sight)
    return forecast


def decided(  # noqa: PLR0913 - one fact each
    trainers: tuple[Trainer, ...],
    found: Sequence[Hole] | Mapping[str, Sequence[Hole]],
    *leased: int,
    by: Foresight | None = None,
    limit_s: float = 60.0,
    background: frozenset[str] = frozenset(),
    most_leases: int = 64,
) -> Decision:
    """Decide with leases on some nodes; by speed alone without a forecast."""
    seen = situation(
        *(lease(k, f"n{k}") for k in leased),
        holes=found if isinstance(found, dict) else {"any": found},
        trainers=trainers,
        background=background,
    )
    policy, limits = lookahead(limit_s=limit_s), Limits(most_leases=most_leases)
    return decide_leases(seen, policy, limits, t_fwd_s=HORIZON_S, foresight=by)


def trainer(
    name: str,
    most: int,
    *tasks: int,
    cost_s: float = 5.0,
    loss_s: float | None = None,
) -> Trainer:
    newest = generation(name, *tasks) if tasks else None
    worth = throughput([n**0.9 for n in range(most + 1)])
    lost_s = cost_s if loss_s is None else loss_s
    return Trainer(name, worth, "any", cost_s, cost_s, cost_s, newest, lost_s)
