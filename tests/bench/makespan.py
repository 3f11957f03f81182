"""How much sooner than under ``fair`` any plan at all could have finished.

The draws are those of docs/notes/priorities.md for ``specon``, whose published claim is
a makespan 24.7 % shorter: 24 trainers on eight nodes that nobody takes away.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean

from freetrain.losscurve.recorded import load
from freetrain.replay.accounting import usable_rates
from freetrain.replay.pool import DAY_S, PoolTimeline
from freetrain.replay.run import run_replay
from freetrain.replay.settings import ReplaySettings
from freetrain.replay.trainers import (
    QualityTruth,
    TrainerSpec,
    quality_trainers,
    truth_of,
)
from freetrain.report.quality import makespan_s

NODES, TRAINERS, SEEDS, LOADS = 8, 24, range(1, 6), (2.0, 10.0)
DAYS = 90.0
"""Long enough for all of them to finish."""


def lines(_: Path) -> Iterator[str]:
    """Yield, by load, the most that a makespan could shrink: mean, and most."""
    curves = tuple(_curves())
    for demanded in LOADS:
        shares = [_possible(curves, seed=seed, load=demanded) for seed in SEEDS]
        yield (
            f"load {demanded:g}: no plan can shorten the makespan of fair by more than "
            f"{100 * mean(shares):.1f} % (at the most {100 * max(shares):.1f} %)"
        )


def least_makespan_s(trainers: Sequence[TrainerSpec], nodes: int) -> float:
    """Return what no plan can go below, rescales free and all known in advance.

    What arrives from some time on takes its node-seconds, on whichever sizes these
    are fewest; and nobody is faster than alone on its best size.
    """
    first_s = min(one.arrival_s for one in trainers)
    ends_s = [one.arrival_s + _least(one, nodes, is_shared=False) for one in trainers]
    for start_s in {one.arrival_s for one in trainers}:
        later = [one for one in trainers if one.arrival_s >= start_s]
        node_s = sum(_least(one, nodes, is_shared=True) for one in later)
        ends_s.append(start_s + node_s / nodes)
    return max(ends_s) - first_s


def _least(one: TrainerSpec, nodes: int, *, is_shared: bool) -> float:
    """Return the fewest node-seconds of *one*'s work, or the fewest seconds."""
    rates = enumerate(usable_rates(one.scaling)[: nodes + 1])
    return min(
        one.work / rate * (n if is_shared else 1) for n, rate in rates if rate > 0
    )


def _possible(curves: Sequence[QualityTruth], *, seed: int, load: float) -> float:
    trainers = quality_trainers(TRAINERS, curves, seed=seed, nodes=NODES, load=load)
    result = run_replay(
        PoolTimeline.dedicated(NODES, DAYS * DAY_S),
        trainers,
        ReplaySettings(priority="fair", parallel=None, record_steps=False),
        clock=time.perf_counter,
    )
    took_s = makespan_s(result)
    assert took_s is not None, "somebody has not finished"
    return 1 - least_makespan_s(trainers, NODES) / took_s


def _curves() -> Iterator[QualityTruth]:
    for name, curve in load().items():
        for series in (curve.loss, curve.validation):
            samples, values = series.samples.tolist(), series.values.tolist()
            yield truth_of(samples, values, series.better, name=name)
