"""Priorities against equal shares in turns: ``python -m tests.priority.measure -h``.

Every priority replays the same trainers on the same nodes. ``NAME+truth`` is given
their true curves in place of forecasts, so that a reader sees what prediction is worth,
and what is left. ``attained``, the least attained service first, is a yardstick that is
no priority of FreeTrain's.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from freetrain.losscurve.fit import LossForecasts
from freetrain.losscurve.forecast import Expected, MetricDirection, MetricPoint
from freetrain.losscurve.recorded import load
from freetrain.planning.policy import make_policy
from freetrain.priority.base import (
    DEFAULT_GAIN,
    Priority,
    RatingBasis,
    WithHysteresis,
    priority_named,
)
from freetrain.priority.shortest import Shortest
from freetrain.replay.policies.ratings import (
    GivenSpeeds,
    RatedAtEveryEvent,
    RatedOnce,
)
from freetrain.replay.policies.registry import PlannedPolicy, SolverUse, tools_for
from freetrain.replay.pool import PoolTimeline
from freetrain.replay.run import engine_for, result_of
from freetrain.replay.settings import LOOK_EVERY_S, ReplaySettings
from freetrain.replay.trainers import QualityTruth, quality_trainers, truth_of
from freetrain.replay.trainers_file import read_curve
from freetrain.report.quality import Score, against, cell, quality_of, sweep_rows
from freetrain.text import DAY_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from freetrain.priority.base import Contender
    from freetrain.replay.run import ReplayResult
    from freetrain.replay.trainers import TrainerSpec

BASELINE = "fair:turn_s=600"
"""SLAQ's yardstick gives every job a share all the time; turns do so where there are
more trainers than nodes."""

TRUTH = "+truth"

DAYS = 90.0
"""Long enough for all of them to finish."""


# True curves in place of forecasts


@dataclass(frozen=True, slots=True)
class TrueForecast:
    """Knows the rest of a curve: the best value so far, between two evaluations linear.

    Attributes:
        better: Which values are good.
        points: The newest value, which makes it trusted.
        samples: Where the metric is evaluated, from 0 on.
        best: The best value by then.
        truth: The whole curve.
        is_diverging: Whether no value is better than the first.
    """

    better: MetricDirection
    points: tuple[MetricPoint, ...]
    samples: NDArray[np.float64]
    best: NDArray[np.float64]
    truth: QualityTruth
    is_diverging: bool
    family: str = "the truth"

    def expected(self, samples: float) -> Expected:
        """Return the best value by then."""
        value = float(np.interp(samples, self.samples, self.best))
        return Expected(value, value, value)

    def quality(self, value: float) -> float:
        """Return *value* as quality: 1 is the best by the end of the work."""
        first, last = self.best.item(0), self.best.item(-1)
        return 0.0 if first == last else (value - first) / (last - first)

    def samples_to(self, value: float) -> float:
        """Return when the metric reaches *value*."""
        reached = self.truth.reached_at(value)
        return math.inf if reached is None else reached


class Trusted(tuple[MetricPoint, ...]):
    """One value that counts as so many that a forecast is trusted."""

    __slots__ = ()

    def __len__(self) -> int:
        """Return how many values it counts as."""
        return 1_000


class TrueForecasts(LossForecasts):
    """Gives the true curve of each trainer, from its arrival on."""

    def __init__(self, trainers: Sequence[TrainerSpec]) -> None:
        super().__init__()
        self._trainers = trainers

    def update(
        self, name: str, points: Sequence[MetricPoint], better: MetricDirection
    ) -> TrueForecast | None:
        """Return the truth about the trainer whose serial number is *name*."""
        trainer = self._trainers[int(name)]
        truth = trainer.quality
        if truth is None or not np.isfinite(truth.values).any():
            return None
        finite = truth.values[np.isfinite(truth.values)]
        quality = truth.quality(until=trainer.work)
        kept = np.where(np.isfinite(truth.values), truth.values, finite[0])
        way = np.minimum if better is MetricDirection.LOWER else np.maximum
        best = way.accumulate(way(kept, finite[0]))[: len(quality)]
        newest = points[-1] if points else MetricPoint(0.0, 0.0, finite.item(0))
        return TrueForecast(
            better=better,
            points=Trusted((newest,)),
            samples=np.concatenate([[0.0], truth.samples[: len(best)]]),
            best=np.concatenate([finite[:1], best]),
            truth=truth,
            is_diverging=not quality.any(),
        )


class Attained(Shortest):
    """A yardstick: equal shares of the nodes for those that have had least of them."""

    name = "attained"

    def waits_by_s(self, contender: Contender, samples_per_s: float) -> float:
        """Return the seconds of the work done on one node."""
        return contender.done_samples / samples_per_s


YARDSTICKS = {"attained": Attained}


# Replays


def replayed(
    entrant: str, trainers: Sequence[TrainerSpec], *, nodes: int
) -> ReplayResult:
    """Replay *trainers* on so many nodes of their own under ``NAME:SETTING=VALUE``."""
    plain = entrant.removesuffix(TRUTH)
    name, _, given = plain.partition(":")
    own = [pair.partition("=") for pair in given.split(",") if pair]
    settings = ReplaySettings(
        priority="fair" if name in YARDSTICKS else name,
        priority_settings=tuple((key, float(value)) for key, _, value in own),
        parallel=None,
        record_steps=False,
        look_every_s=LOOK_EVERY_S,
    )
    if name in YARDSTICKS:
        priority: Priority = WithHysteresis(YARDSTICKS[name](), DEFAULT_GAIN)
    else:
        priority = priority_named(name, dict(settings.priority_settings))
    use, clock = SolverUse(), time.perf_counter
    planning = make_policy(settings.policy, tools_for(settings, clock, use))
    t_fwd_s = settings.t_fwd_s
    forecasts = TrueForecasts(trainers) if entrant != plain else LossForecasts()
    curves = (
        RatedOnce(priority, GivenSpeeds(), t_fwd_s=t_fwd_s)
        if priority.basis is RatingBasis.TRAINER
        else RatedAtEveryEvent(
            priority,
            GivenSpeeds(),
            forecasts if priority.basis is RatingBasis.LOSSES else None,
            t_fwd_s=t_fwd_s,
        )
    )
    policy = PlannedPolicy(settings.policy, planning, curves, t_fwd_s=t_fwd_s)
    timeline = PoolTimeline.dedicated(nodes, DAYS * DAY_S)
    engine = engine_for(timeline, trainers, settings, policy)
    engine.run(None)
    return result_of(engine, settings, use, efficiency=None, forecasts=None)


def scored(
    entrants: Iterable[str],
    trainers: Sequence[TrainerSpec],
    *,
    nodes: int,
    load: float,
    seed: int,
) -> Iterator[Score]:
    """Yield the scores of *entrants* against ``BASELINE``."""
    baseline = replayed(BASELINE, trainers, nodes=nodes)
    for entrant in entrants:
        result = replayed(entrant, trainers, nodes=nodes)
        yield Score(
            priority=entrant,
            load=load,
            seed=seed,
            quality=quality_of(result),
            against=against(result, baseline),
        )


def recorded_curves() -> Iterator[QualityTruth]:
    """Yield the loss and the validation metric of each recorded training."""
    for name, curve in load().items():
        for series in (curve.loss, curve.validation):
            samples, values = series.samples.tolist(), series.values.tolist()
            yield truth_of(samples, values, series.better, name=name)


def curves_below(folder: Path) -> Iterator[QualityTruth]:
    """Yield the curves of the column ``metric``; the better values are at its end."""
    for file in sorted(folder.rglob("*.csv")):
        curve = read_curve(file, "metric", MetricDirection.HIGHER)
        is_falling = curve.values[-1] < curve.values[0]
        yield replace(
            curve,
            better=MetricDirection.LOWER if is_falling else curve.better,
            name=f"{file.parent.name}.{file.stem}",
        )


def main(arguments: Sequence[str]) -> None:
    """Print a table for each load: a row for each figure, a column for each entrant."""
    parser = argparse.ArgumentParser(prog="python -m tests.priority.measure")
    parser.add_argument("entrants", nargs="+", metavar="NAME[:SETTING=X,...][+truth]")
    parser.add_argument("--pool", type=int, default=8, help="nodes")
    parser.add_argument("--trainers", type=int, default=24)
    parser.add_argument("--loads", type=float, nargs="+", default=[10.0])
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--curves", type=Path, help="a folder; else the recorded ones")
    asked = parser.parse_args(arguments)
    curves = tuple(curves_below(asked.curves) if asked.curves else recorded_curves())
    for load_ in asked.loads:
        scores: list[Score] = []
        for seed in asked.seeds:
            trainers = quality_trainers(
                asked.trainers, curves, seed=seed, nodes=asked.pool, load=load_
            )
            scores += scored(
                asked.entrants, trainers, nodes=asked.pool, load=load_, seed=seed
            )
        sys.stdout.write("\n".join(_table(asked.entrants, scores, load_)) + "\n\n")
        sys.stdout.flush()


def _table(
    entrants: Sequence[str], scores: Sequence[Score], load_: float
) -> Iterator[str]:
    yield f"| load {load_:g} | " + " | ".join(entrants) + " |"
    yield "|---" * (len(entrants) + 1) + "|"
    for row in sweep_rows():
        cells = [
            cell(row, [score for score in scores if score.priority == entrant])
            for entrant in entrants
        ]
        yield f"| {row.title.strip()} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main(sys.argv[1:])
