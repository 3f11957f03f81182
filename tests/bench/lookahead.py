"""What looking ahead takes: in a tick, and at an event of a replay.

In a tick 100 trainers on 1,000 idle nodes, from nodes and forecasts to a verified
answer. In a replay 10 trainers on a machine of which half is idle and eight single
nodes change at each event, over what ``freetrain`` takes. On one core.
"""

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np

from freetrain.broker.decide import request_of
from freetrain.broker.pool import Foresight, PoolNode, Trainer, classify_by
from freetrain.lookahead.base import Prospect
from freetrain.planning.lookahead import Lookahead, ProvingSearch
from freetrain.planning.policy import Planned, Tools
from freetrain.planning.settings import HORIZON_S
from freetrain.replay.pool import PoolTimeline
from freetrain.replay.run import play
from freetrain.replay.settings import ReplaySettings
from freetrain.replay.trainers import builtin_trainers
from logs.trace import IdleTrace
from milp.planner import Planner
from milp.problem import throughput

_HIT_WEIGHT, _CHANGE_WEIGHT = 0.4, 1.3
"""About what is learned on Summit."""

_TRAINERS = 100
_NODES = 1_000
_LIMIT_S = 2.0
_MINUTES = 120


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
    yield from _events()
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


def _events() -> Iterator[str]:
    """Yield what an event of a replay takes, by the size of the machine."""
    for nodes in (1_000, 5_000, 10_000):
        timeline = _single_nodes(nodes)
        each_ms = [_event_ms(timeline, policy) for policy in ("freetrain", "lookahead")]
        yield (
            f"an event with {nodes:,} nodes, single ones change: {each_ms[1]:.2f} ms "
            f"looking ahead, {each_ms[0]:.2f} ms freetrain, "
            f"{each_ms[1] / each_ms[0]:.1f} times"
        )


def _event_ms(timeline: PoolTimeline, policy: str) -> float:
    """Return the median of milliseconds of processor time that an event takes."""
    at_s: list[float] = []
    play(
        timeline,
        [replace(trainer, arrival_s=0.0) for trainer in builtin_trainers("hps")],
        ReplaySettings(policy=policy, parallel=10, requeue=True),
        clock=time.process_time,
        on_progress=lambda _: at_s.append(time.process_time()),
    )
    return 1e3 * median([end_s - begin_s for begin_s, end_s in pairwise(at_s)])


def _single_nodes(nodes: int) -> PoolTimeline:
    """Return a pool of which four nodes leave and four others join each minute."""
    chance = random.Random(nodes)  # noqa: S311 -- load, not secrets
    since_s = {node: 0.0 for node in range(nodes) if chance.random() < 0.5}
    rows: list[tuple[float, int, float]] = []
    for minute in range(1, _MINUTES):
        left = chance.sample(sorted(since_s), 4)
        joined = chance.sample([n for n in range(nodes) if n not in since_s], 4)
        rows += [(since_s.pop(node), node, 60.0 * minute) for node in left]
        since_s |= dict.fromkeys(joined, 60.0 * minute)
    rows += [(begin_s, node, 60.0 * _MINUTES) for node, begin_s in since_s.items()]
    rows.sort()
    return PoolTimeline.from_trace(
        IdleTrace(
            source="single nodes",
            node_names=tuple(map(str, range(nodes))),
            node=np.array([row[1] for row in rows], dtype=np.int32),
            start_s=np.array([row[0] for row in rows]),
            end_s=np.array([row[2] for row in rows]),
        )
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
