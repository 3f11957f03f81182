"""Forecasts that are known beforehand, and decisions by them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from freetrain.broker.belief import Belief
from freetrain.broker.decide import Decision, Look, decide
from freetrain.broker.limits import Limits
from freetrain.broker.pool import Trainer
from freetrain.lookahead.base import Prospect
from freetrain.lookahead.live import LiveForecast, PoolSnapshot
from freetrain.tick.lookahead import Ahead, Foresight
from freetrain.tick.planners import InOrder
from milp.planner import Planner
from milp.problem import throughput
from tests.broker.broker_records import NOW_S, generation, lease

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.lookahead.promises import Promise
    from slurm.holes import Hole

HORIZON_S = 400.0
STAYS = Prospect(HORIZON_S, 0.0, 1.0)
AHEAD = Ahead(
    horizon_s=HORIZON_S,
    hit_weight=0.25,
    change_weight=1.0,
    losses_s={},
    limit_s=60.0,
    clock=lambda: 0.0,
)


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


def watched(*, promised: Mapping[str, Promise] | None = None) -> LiveForecast:
    forecast = LiveForecast(HORIZON_S)
    sight = PoolSnapshot(
        frozenset({f"n{k}" for k in range(8)}), frozenset(), promised or {}
    )
    forecast.look(NOW_S, sight)
    return forecast


def decided(
    trainers: tuple[Trainer, ...],
    holes: tuple[Hole, ...],
    *leased: int,
    forecast: LiveForecast | Told | None = None,
    ahead: Ahead = AHEAD,
    background: frozenset[str] = frozenset(),
) -> Decision:
    """Decide with leases on some nodes; by speed alone where nothing is foretold."""
    planner, in_order = Planner(), partial(InOrder, background=background)
    look = Look(
        now_s=NOW_S,
        holes={"any": holes},
        belief=Belief(tuple(lease(k, f"n{k}") for k in leased), ()),
        trainers=trainers,
        assignments=tuple(t.assignment for t in trainers if t.assignment),
    )
    foresight = Foresight(forecast, ahead, planner, in_order) if forecast else None
    return decide(
        look, in_order(planner), Limits(), t_fwd_s=HORIZON_S, foresight=foresight
    )


def trainer(name: str, most: int, *tasks: int, cost_s: float = 5.0) -> Trainer:
    newest = generation(name, *tasks) if tasks else None
    worth = throughput([n**0.9 for n in range(most + 1)])
    return Trainer(name, worth, "any", cost_s, cost_s, cost_s, newest)
