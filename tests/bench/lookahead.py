"""What planning by expected lives takes in a tick: 100 trainers, 1,000 idle nodes.

From nodes and forecasts to a verified answer, as a tick does it, on one core.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from freetrain.broker.decide import request_of
from freetrain.broker.pool import Foresight, PoolNode, Trainer, classify_by
from freetrain.lookahead.base import Prospect
from freetrain.planning.lookahead import Lookahead, ProvingSearch
from freetrain.planning.policy import Planned, Tools
from freetrain.planning.settings import HORIZON_S
from milp.planner import Planner
from milp.problem import throughput

_HIT_WEIGHT, _CHANGE_WEIGHT = 0.4, 1.3
"""About what is learned on Summit."""

_TRAINERS = 100
_NODES = 1_000
_LIMIT_S = 2.0


@dataclass(frozen=True, slots=True)
class _Groups:
    """Forecasts of so many groups, the prospects drawn at random."""

    groups: int
    prospects: tuple[Prospect, ...]

    def group(self, node: str) -> str:
        return f"group {int(node) % self.groups}"

    def size(self, node: str) -> int:
        return len(range(int(node) % self.groups, _NODES, self.groups))

    def prospect(self, node: str, usable_s: float) -> Prospect:
        del usable_s
        return self.prospects[int(node) % self.groups]


def lines(shared: Path) -> Iterator[str]:
    """Yield a row for each case."""
    del shared
    for groups in (8, 100, 300, _NODES):
        chance = random.Random(groups)  # noqa: S311 -- load, not secrets
        began_s, cpu_s = time.perf_counter(), time.process_time()
        classes, answer = _plan(groups, chance)
        took_s, used_s = time.perf_counter() - began_s, time.process_time() - cpu_s
        yield (
            f"look ahead, {_TRAINERS} trainers, {_NODES} nodes in {groups} groups "
            f"({classes} classes): {took_s:.2f} s by the clock, {used_s:.2f} s of "
            f"processor time, limit {_LIMIT_S:.0f} s; {answer.outcome}, "
            f"at most {answer.gap:.2%} below the best; {answer.reason}"
        )


def _plan(groups: int, chance: random.Random) -> tuple[int, Planned]:
    forecast = _Groups(groups, tuple(_prospect(chance) for _ in range(groups)))
    pool = tuple(
        PoolNode(str(k), frozenset({"any"}), float("inf")) for k in range(_NODES)
    )
    trainers = [_trainer(k, chance) for k in range(_TRAINERS)]
    foresight = Foresight(
        forecast=forecast,
        horizon_s=HORIZON_S,
        hit_weight=_HIT_WEIGHT,
        change_weight=_CHANGE_WEIGHT,
    )
    policy = Lookahead(
        Tools(
            solver=Planner,
            start_solver=Planner,
            search=lambda: ProvingSearch(_LIMIT_S, time.monotonic),
        )
    )
    classes, expected = classify_by(foresight, pool, now_s=0.0)
    request = request_of(trainers, classes, t_fwd_s=120.0, forecast=expected)
    return len(classes.classes), policy.plan(request)


def _prospect(chance: random.Random) -> Prospect:
    return Prospect(chance.uniform(100.0, HORIZON_S), chance.random(), chance.random())


def _trainer(k: int, chance: random.Random) -> Trainer:
    most, bend = chance.randint(4, 64), chance.uniform(0.6, 1.0)
    worth = throughput([n**bend for n in range(most + 1)])
    cost_s = chance.uniform(1.0, 30.0)
    return Trainer(f"t{k}", worth, "any", cost_s, cost_s, cost_s, loss_s=cost_s)
