"""What trying sizes costs and brings: ``python -m tests.scaling.tables [SEED ...]``.

Speed tables drawn by formula from seeds, of trainers that rise, saturate, fall, have a
smooth peak, or are jagged. Each trains alone on 64 free nodes for about six hours: how
much longer it takes than with its true table known. Then 20 trainers on 64 nodes, of
each family and mixed: the median time to completion, and node-seconds, over those with
true tables. Ticks are a minute apart, a rescale takes 30 s, and speeds vary by 3 %.
Seeds below 100 were in view when the rule was made; give others for a figure.
"""

import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from statistics import fmean, median, stdev
from types import MappingProxyType

from freetrain.losscurve.forecast import MetricPoint
from freetrain.replay.engine import Engine
from freetrain.replay.policies.base import Change, StatedTrainer, View
from freetrain.replay.policies.ratings import GivenSpeeds, LearnedSpeeds, Speeds
from freetrain.replay.pool import PoolTimeline
from freetrain.replay.trainers import Costs, Scaling, TrainerSpec, interpolate
from freetrain.scaling import Profiling
from tests.scaling.summit import Case, played, write

NODES = 64
DOUBLINGS = tuple(2**k for k in range(7))
HOUR_S = 3600.0
COSTS = Costs(grow_s=30.0, shrink_s=30.0, start_s=30.0)
NOISE = 0.03
TABLES = 10
TRAINERS = 20

Draw = random.Random
Shape = Callable[[Draw], Callable[[int], float]]


def rising(draw: Draw) -> Callable[[int], float]:
    power = draw.uniform(0.75, 1.0)
    return lambda n: n**power


def saturating(draw: Draw) -> Callable[[int], float]:
    half = 2.0 ** draw.uniform(1.0, 4.0)
    return lambda n: n * (1.0 + half) / (n + half)


def falling(draw: Draw) -> Callable[[int], float]:
    top, power, fall = draw.choice((1, 2, 4, 8)), draw.uniform(0.3, 0.9), draw.random()
    return lambda n: min(n, top) ** power * max(1.0, n / top) ** -(0.1 + fall)


def peaked(draw: Draw) -> Callable[[int], float]:
    top = draw.uniform(0.5, 5.5)
    bend = math.log(2.0) / (2.0 * top) * draw.uniform(0.5, 1.0)
    return lambda n: math.exp(bend * (top**2 - (math.log2(n) - top) ** 2))


def cliff(draw: Draw) -> Callable[[int], float]:
    last, power, drop = draw.randint(1, 40), draw.uniform(0.7, 1.0), draw.random()
    return lambda n: n**power * (1.0 if n <= last else 0.05 + 0.65 * drop)


def jagged(draw: Draw) -> Callable[[int], float]:
    smooth = draw.choice((rising, saturating, falling, peaked, cliff))(draw)
    factors = [draw.uniform(0.75, 1.0) for _ in range(NODES + 1)]
    return lambda n: smooth(n) * factors[n]


FAMILIES: Mapping[str, Shape] = MappingProxyType(
    {
        "rising": rising,
        "saturating": saturating,
        "falling": falling,
        "peaked": peaked,
        "cliff": cliff,
        "jagged": jagged,
    }
)


def table(family: str, seed: int, sizes: Sequence[int] = DOUBLINGS) -> Scaling:
    """Return the table number *seed* of *family*, for sizes up to 64 nodes."""
    draw = random.Random(f"{family} {seed}")  # noqa: S311 - no secret
    shape, scale = FAMILIES[family](draw), 10.0 ** draw.uniform(0.0, 4.0)
    points = {n: scale * shape(n) for n in sizes}
    return interpolate(f"{family}-{seed}", points, sizes=sizes)


@dataclass(frozen=True, slots=True)
class NoisyTrainer:
    """A trainer as policies see it, whose reported samples vary."""

    serial: int
    spec: StatedTrainer
    arrival_s: float
    held: AbstractSet[int]
    done: float
    points: Sequence[MetricPoint]


class NoisySpeeds(LearnedSpeeds):
    """Learns from intervals that each are wrong by 3 % or so."""

    def __init__(self, profiling: Profiling | None) -> None:
        super().__init__(profiling, deviations=0.0)
        self._draw = random.Random(0)  # noqa: S311 - no secret
        self._done: dict[int, tuple[float, float]] = {}

    def scalings(self, view: View) -> Sequence[Scaling]:
        for trainer in view.trainers:
            true, reported = self._done.get(trainer.serial, (0.0, 0.0))
            more = (trainer.done - true) * self._draw.gauss(1.0, NOISE)
            self._done[trainer.serial] = trainer.done, reported + more
        return super().scalings(self._noisy(view))

    def decided(self, view: View, changes: Sequence[Change]) -> None:
        super().decided(self._noisy(view), changes)

    def _noisy(self, view: View) -> View:
        trainers = [
            NoisyTrainer(
                own.serial,
                own.spec,
                own.arrival_s,
                own.held,
                self._done[own.serial][1],
                own.points,
            )
            for own in view.trainers
        ]
        return replace(view, trainers=trainers)


def play(trainers: Sequence[TrainerSpec], speeds: Speeds) -> Engine:
    """Return the replay of *trainers* on 64 nodes until all have finished."""
    case = Case(tuple(trainers), len(trainers), is_speed_up=True)
    return played(PoolTimeline.dedicated(NODES, 1000 * HOUR_S), case, speeds)


def trainer(scaling: Scaling, hours: float, *, arrival_s: float = 0.0) -> TrainerSpec:
    """Return a trainer that takes so many hours on its best size."""
    samples = scaling.best_samples_per_s * hours * HOUR_S
    name = f"{scaling.model}-{arrival_s:g}"
    return TrainerSpec(name, scaling, samples, arrival_s, COSTS)


def took_s(engine: Engine) -> list[float]:
    """Return seconds from arrival to completion of every trainer."""
    return [(run.finished_s or math.inf) - run.arrival_s for run in engine.queue.runs]


def lost_alone(scaling: Scaling, hours: float = 6.0) -> float:
    """Return by what share speed is lower than with the true table, alone."""
    own = (trainer(scaling, hours),)
    (true_s,), (learned_s,) = (
        took_s(play(own, speeds)) for speeds in (GivenSpeeds(), learning())
    )
    return 1.0 - true_s / learned_s


def contending(families: Sequence[str], seed: int) -> tuple[TrainerSpec, ...]:
    """Return 20 trainers of one to six hours that arrive within an hour."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    return tuple(
        trainer(
            table(families[k % len(families)], 1000 * seed + k),
            draw.uniform(1.0, 6.0),
            arrival_s=draw.uniform(0.0, HOUR_S),
        )
        for k in range(TRAINERS)
    )


def lost_contending(trainers: Sequence[TrainerSpec]) -> tuple[float, float]:
    """Return by what share median completion and node-seconds are more."""
    true, learned = (play(trainers, own) for own in (GivenSpeeds(), learning()))
    by_completion = median(took_s(learned)) / median(took_s(true))
    by_node_s = learned.tally.used_node_s / true.tally.used_node_s
    return by_completion - 1.0, by_node_s - 1.0


def learning() -> LearnedSpeeds:
    return NoisySpeeds(Profiling())


def lines(seeds: Sequence[int]) -> Iterator[str]:
    """Yield a row a family, as it comes."""
    for sizes in (DOUBLINGS, tuple(range(1, NODES + 1))):
        for family in FAMILIES:
            lost = [
                100 * lost_alone(table(family, TABLES * seed + k, sizes))
                for seed in seeds
                for k in range(TABLES)
            ]
            yield (
                f"alone, {len(sizes):2} sizes, {family:10} "
                f"mean {fmean(lost):5.1f} %, worst {max(lost):5.1f} %"
            )
    for name in (*FAMILIES, "mixed"):
        families = tuple(FAMILIES) if name == "mixed" else (name,)
        lost_s = [lost_contending(contending(families, seed)) for seed in seeds]
        completion, node_s = (_with_error(own) for own in zip(*lost_s, strict=True))
        yield (
            f"20 trainers, {name:10} median completion {completion}, "
            f"node-seconds {node_s}"
        )


def _with_error(shares: Sequence[float]) -> str:
    """Return the mean in %, with its standard error where there are several."""
    error = stdev(shares) / math.sqrt(len(shares)) if len(shares) > 1 else math.nan
    return f"{100 * fmean(shares):+5.1f} ± {100 * error:.1f} %"


if __name__ == "__main__":
    sys.exit(write(lines([int(word) for word in sys.argv[1:]] or (0,))))
