"""Made-up comparisons and forecasts for tests of their reports."""

import math
from dataclasses import replace

import numpy as np

from freetrain.lookahead.reliability import (
    AffinityBlock,
    AffinityMap,
    AgePart,
    ForecastRecord,
    ScorePart,
)
from freetrain.replay.engine import Step
from freetrain.replay.run import Completion, ReplayResult
from freetrain.report.summary import Comparison, HoleLengths

DAY_S = 86_400.0


def steps(days: float, *, parallel: int) -> tuple[Step, ...]:
    """Trainers that take turns and breathe with the pool, every five minutes."""
    made = []
    for k in range(int(days * DAY_S / 300)):
        idle = round(80 + 50 * math.sin(k / 90) + 20 * math.sin(k / 7))
        each = max(0, idle // parallel - k % 3)
        first = k // 40 * 3
        names = [f"t-{first + j:04d}" for j in range(parallel)]
        made.append(
            Step(
                time_s=300.0 * k,
                idle_nodes=idle,
                used_nodes=each * parallel,
                resized=tuple((name, each) for name in names),
                finished=tuple(f"t-{first - j:04d}" for j in (3, 2, 1))
                if k % 40 == 0 and k
                else (),
            )
        )
    return tuple(made)


def completions(count: int) -> tuple[Completion, ...]:
    """Trainers of which the last tenth did not finish."""
    return tuple(
        Completion(
            trainer=f"t-{k:04d}",
            arrival_s=36.0 * k,
            admitted_s=40.0 * k,
            finished_s=40.0 * k + 9e3 + 40 * k if k < 0.9 * count else None,
            samples=1.3e8,
            slowdown=5.0 + k / 50 if k < 0.9 * count else None,
        )
        for k in range(count)
    )


def result(policy: str = "freetrain", *, days: float = 1.0) -> ReplayResult:
    """One policy's replay, made up."""
    return ReplayResult(
        policy=policy,
        priority="throughput",
        accounting="real",
        samples=89.58e9,
        finished=90,
        end_s=days * DAY_S,
        images_per_s=89.58e9 / (days * DAY_S),
        eq_nodes=80.0,
        pool_node_s=80.0 * days * DAY_S,
        used_node_s=76.0 * days * DAY_S,
        rescale_samples=1.2e9,
        preempt_samples=0.9e9,
        start_samples=0.1e9,
        preemptions=1234,
        rescales=2345,
        events=6230,
        efficiency=0.93,
        coverage=0.95,
        solver_calls=6230,
        solver_s=1.25,
        solver_fallbacks=0,
        wall_s=2.5,
        peak_rss_bytes=200_000_000,
        steps=steps(days, parallel=10),
        completions=completions(100),
    )


def comparison(*policies: str, days: float = 1.0) -> Comparison:
    """Replays of made-up holes, the first policy the best."""
    names = policies or ("freetrain", "equal", "scavenger", "static")
    made = [
        replace(result(name, days=days), samples=(90 - 6 * k) * 1e9)
        for k, name in enumerate(names)
    ]
    return Comparison(
        command="freetrain replay log.csv",
        version="0.1.0",
        log="log.csv",
        read_as="12,345 holes on 1,024 nodes over 1 day.",
        figure_cautions=("Half of the nodes were idle for a while.",),
        log_cautions=("Nothing was left out.",),
        nodes=1024,
        span_s=days * DAY_S,
        hole_lengths=HoleLengths(np.geomspace(20, 1e5, 500), np.ones(500, np.int64)),
        trainers="hps: 1,000 ShuffleNets",
        trainer_count=100,
        parallel=10,
        results=tuple(made),
    )


NODES = ("n1", "n2", "n3", "x7")


def part(said: float, came: float, departures: float = 50.0) -> ScorePart:
    """A hundred forecasts."""
    return ScorePart(said=said, came=came, count=100.0, departures=departures)


def ages() -> tuple[AgePart, ...]:
    """Two classes of age and two of size, the last of each without an end."""
    return (
        AgePart(0.0, 70.0, 1, 1, part(0.4, 0.35)),
        AgePart(9_600.0, None, 1, 1, part(0.9, 0.95, 3.0)),
        AgePart(70.0, 150.0, 2, 4, part(0.5, 0.6)),
        AgePart(0.0, 70.0, 17, None, part(0.2, 0.1)),
    )


def affinity(names: tuple[str, ...] = NODES) -> AffinityMap:
    """Three nodes that leave together, and one that does not, of nine that left."""
    near, far = 0.8, 0.2
    return AffinityMap(
        nodes_left=9,
        cells=tuple((name,) for name in names),
        affinity=tuple(
            tuple(
                None if a == b else near if 3 not in (a, b) else far for b in range(4)
            )
            for a in range(4)
        ),
        blocks=(
            AffinityBlock(names[:3], near, far),
            AffinityBlock(names[3:], None, far),
        ),
    )


def forecasts(names: tuple[str, ...] = NODES) -> ForecastRecord:
    """Ten tenths, the last of them off and of few departures."""
    tenths = [part(k / 20 + 0.3, k / 20 + 0.32) for k in range(9)]
    return ForecastRecord(
        horizon_s=600.0,
        every_s=300.0,
        deciles=(*tenths, part(0.8, 0.5, 4.0)),
        by_age=ages(),
        affinity=affinity(names),
    )


def nothing() -> ForecastRecord:
    """What a replay leaves that was over before anything was due."""
    return ForecastRecord(600.0, 300.0, (), (), None)
