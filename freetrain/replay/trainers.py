"""Trainers of a replay: work, speed by node count, costs, and true quality.

Also the sets of trainers that ship with us: the two of the published evaluation, and
sets drawn at random with recorded quality curves.
"""

from __future__ import annotations

import csv
import math
import random
from dataclasses import dataclass, replace
from importlib import resources
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from freetrain.errors import UsageError
from freetrain.losscurve.forecast import MetricDirection
from freetrain.priority.base import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray


TABLE = "summit_dnn_scaling.csv"


@dataclass(frozen=True, slots=True, eq=False)
class TrainerSpec:
    """One trainer of a replay.

    Attributes:
        name: Unique in the replay.
        samples: Work after which it is finished at the latest, in training samples,
            above 0; what its user says of it.
        arrival_s: When it is submitted, seconds from the start of the replay.
        fixed_nodes: The size it would ask for as an ordinary job that cannot
            rescale; what the ``scavenger`` policy gives it. None for the size with
            which such jobs train most, which ``run_replay`` looks for.
        weight: The user's weight, above 0.
        deadline_s: When it should be finished, seconds from the start of the
            replay; None for no deadline.
        target: The values of its metric that its user wants; None for none.
        quality: How good its model truly becomes, which no policy may see; None
            if the replay does not measure quality.
    """

    name: str
    scaling: Scaling
    samples: float
    arrival_s: float
    costs: Costs
    fixed_nodes: int | None = None
    weight: float = 1.0
    deadline_s: float | None = None
    target: Target | None = None
    quality: QualityTruth | None = None

    @property
    def work(self) -> float:
        """Samples after which it truly is finished: its final target ends it sooner."""
        final = None if self.target is None else self.target.final
        if self.quality is None or final is None:
            return self.samples
        reached = self.quality.reached_at(final)
        return self.samples if reached is None else min(self.samples, reached)

    @property
    def shortest_s(self) -> float:
        """The time it needs on its best size, alone and undisturbed."""
        best = self.scaling.best_samples_per_s
        return self.work / best if best > 0 else math.inf


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """A model's training speed by node count.

    Compared by identity: trainers of one model share one object.

    Attributes:
        model: The network's name.
        samples_per_s: Speed at 0 .. max nodes, float64, read-only; entry 0 is 0.
            May fall with more nodes.
        sizes: Node counts above 0 that it can run on, ascending.
    """

    model: str
    samples_per_s: NDArray[np.float64]
    sizes: tuple[int, ...]

    @property
    def best_samples_per_s(self) -> float:
        """Its speed at its best size."""
        return float(max(self.samples_per_s[size] for size in self.sizes))


def interpolate(
    model: str,
    points: Mapping[int, float],
    *,
    sizes: Iterable[int] | None = None,
) -> Scaling:
    """Return the scaling through *points*, linear between them.

    Args:
        model: The network's name.
        points: Speed in samples/s by node count above 0; 0 nodes train nothing.
        sizes: Node counts it can run on, each above 0 and at most the largest
            one measured; None for every count from 1 on.
    """
    measured = sorted(points.items())
    most = measured[-1][0]
    speeds = np.interp(
        np.arange(most + 1),
        [0, *(nodes for nodes, _ in measured)],
        [0.0, *(speed for _, speed in measured)],
    )
    speeds.setflags(write=False)
    chosen = range(1, most + 1) if sizes is None else sorted(set(sizes))
    return Scaling(model=model, samples_per_s=speeds, sizes=tuple(chosen))


def in_leases(trainers: Sequence[TrainerSpec], gpus: int) -> tuple[TrainerSpec, ...]:
    """Return *trainers*, whose counts are GPUs, with counts of leases of *gpus* each.

    Raises:
        UsageError: One of them runs on no number of such leases.
    """
    made: dict[Scaling, Scaling] = {}
    for trainer in trainers:
        each = trainer.scaling
        sizes = tuple(size // gpus for size in each.sizes if size % gpus == 0)
        if not sizes:
            raise UsageError(
                f"trainer {trainer.name} runs on up to {each.sizes[-1]} GPUs, and on "
                f"no number of leases of {gpus} GPUs; nothing was replayed. Leave it "
                f"out, or choose smaller leases."
            )
        if each not in made:
            made[each] = Scaling(each.model, each.samples_per_s[::gpus], sizes)
    return tuple(
        replace(
            trainer,
            scaling=made[trainer.scaling],
            fixed_nodes=_in_leases(trainer.fixed_nodes, gpus),
        )
        for trainer in trainers
    )


def _in_leases(fixed_gpus: int | None, gpus: int) -> int | None:
    """Return a fixed size in leases; None where it is no number of them."""
    return None if fixed_gpus is None or fixed_gpus % gpus else fixed_gpus // gpus


def measured_points() -> dict[str, dict[int, float]]:
    """Return images/s by model and node count, as measured on Summit.

    Source: published with BFTrainer (arXiv 2106.12091); ships as a table.
    """
    text = resources.files("freetrain.replay").joinpath(TABLE).read_text("utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if line[0] != "#")
    points: dict[str, dict[int, float]] = {}
    for row in rows:
        by_nodes = points.setdefault(row["model"], {})
        by_nodes[int(row["nodes"])] = float(row["images_per_s"])
    return points


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """What changing a trainer's nodes costs.

    Attributes:
        grow_s: Seconds without training when nodes are added.
        shrink_s: Seconds without training when nodes are given up or lost.
        start_s: Seconds without training when it starts from no nodes.
        checkpoint_every_s: Time between two commits; on average half of it is
            lost when a node leaves without notice. 0 commits every step.
    """

    grow_s: float
    shrink_s: float
    start_s: float = 0.0
    checkpoint_every_s: float = 0.0

    def times(self, factor: float) -> Costs:
        """Every cost times *factor*; the checkpoint interval stays."""
        return Costs(
            grow_s=self.grow_s * factor,
            shrink_s=self.shrink_s * factor,
            start_s=self.start_s * factor,
            checkpoint_every_s=self.checkpoint_every_s,
        )


@dataclass(frozen=True, slots=True, eq=False)
class QualityTruth:
    """A recorded curve: the metric after so many samples, known to the replay alone.

    Attributes:
        samples: Where the metric is evaluated, samples since the training began,
            float64, ascending, 0 or more, the last above 0.
        values: The metric there, float64; may be nan or infinite.
        better: Which values are good.
        name: What the curve was recorded from.
    """

    samples: NDArray[np.float64]
    values: NDArray[np.float64]
    better: MetricDirection
    name: str = ""

    def scaled_to(self, samples: float) -> QualityTruth:
        """Return the same curve, stretched so that its last point is at *samples*."""
        # Divided first: the last point is at *samples* to the bit, not just past it.
        return replace(self, samples=self.samples / self.samples[-1] * samples)

    def quality(self, *, until: float = math.inf) -> NDArray[np.float64]:
        """Return the best so far at each evaluation, as a share of the best of all.

        0 at the first finite value, 1 at the best one, never falling: a trainer
        keeps its best checkpoint. All 0 if no value is better than the first.

        Args:
            until: Samples after which the training ends; later evaluations are not
                counted in.
        """
        values = self.values[self.samples <= until]
        signed = -values if self.better is MetricDirection.LOWER else values
        usable = np.isfinite(signed)
        if not usable.any():
            return np.zeros(len(signed))
        first = signed[usable][0]
        best = np.maximum.accumulate(np.where(usable, signed, first).clip(min=first))
        span = best[-1] - first
        return (best - first) / span if span > 0 else np.zeros(len(best))

    def reached_at(self, value: float) -> float | None:
        """Return the samples of the first evaluation as good as *value*, or None."""
        points = zip(self.samples.tolist(), self.values.tolist(), strict=True)
        good = (at for at, found in points if self.better.is_reached(value, found))
        return next(good, None)

    def value_at_quality(self, quality: float) -> float:
        """Return the first evaluated value of at least *quality*, from 0 to 1."""
        place = int(np.searchsorted(self.quality(), quality))
        return float(self.values[min(place, len(self.values) - 1)])


def truth_of(
    samples: Sequence[float],
    values: Sequence[float],
    better: MetricDirection,
    *,
    name: str,
) -> QualityTruth:
    """Return the curve through points in any order; of equal places the last stays.

    Raises:
        UsageError: There are fewer than two places, or one is negative or not finite.
    """
    points = dict(sorted(zip(samples, values, strict=True), key=lambda pair: pair[0]))
    where = np.array(list(points), dtype=np.float64)
    if len(where) < 2 or not np.isfinite(where).all() or where[0] < 0:  # noqa: PLR2004
        raise UsageError(
            f"the quality curve {name!r} has {len(where)} different places; expected "
            f"2 or more, finite and not negative. Nothing was replayed."
        )
    evaluated = np.array(list(points.values()), dtype=np.float64)
    for array in (where, evaluated):
        array.setflags(write=False)
    return QualityTruth(where, evaluated, better, name)


# The sets of the published evaluation

BUILTIN_NAMES = ("hps", "imagenet")
IMAGENET_MODELS = (
    "AlexNet",
    "vgg16",
    "resnet18",
    "DenseNet",
    "mnasnet1",
    "shufflenet",
    "mobilenet",
)
HPS_COUNT = 1_000
IMAGENET_COUNT = 1_001

SAMPLES = 1.3e8
"""About 100 epochs of ImageNet."""

ARRIVAL_EVERY_S = 36.0
GROW_S = 18.0
SHRINK_S = 12.0
START_S = 18.0

CHECKPOINT_EVERY_S = 60.0
"""Young's rule, sqrt(2 x 1 s to write x 1,192 s between losses) = 49 s, rounded up:
1,192 s is the mean hole of the Summit log; the largest, vgg16, has 138 M weights."""


def builtin_trainers(name: str) -> tuple[TrainerSpec, ...]:
    """Return the built-in set *name*: ``hps`` or ``imagenet``.

    ``hps`` is a hyper-parameter search, 1,000 identical ShuffleNets;
    ``imagenet`` is 1,001 trainers that cycle through seven networks.

    Raises:
        UsageError: There is no such set.

    Source: BFTrainer (arXiv 2106.12091), as its replay scripts set it up.
    """
    if name == "hps":
        return _set(("shufflenet",), count=HPS_COUNT)
    if name == "imagenet":
        return _set(IMAGENET_MODELS, count=IMAGENET_COUNT)
    raise UsageError(
        f"there is no built-in set of trainers {name!r}; nothing was replayed. "
        f"Choose one of {', '.join(BUILTIN_NAMES)}, or name a TOML file."
    )


def _set(models: tuple[str, ...], *, count: int) -> tuple[TrainerSpec, ...]:
    points = measured_points()
    scalings = [interpolate(model, points[model]) for model in models]
    costs = Costs(
        grow_s=GROW_S,
        shrink_s=SHRINK_S,
        start_s=START_S,
        checkpoint_every_s=CHECKPOINT_EVERY_S,
    )
    return tuple(
        _alike_trainer(k, scaling=scalings[k % len(scalings)], costs=costs)
        for k in range(count)
    )


def _alike_trainer(k: int, *, scaling: Scaling, costs: Costs) -> TrainerSpec:
    return TrainerSpec(
        name=f"{scaling.model}-{k + 1:04d}",
        scaling=scaling,
        samples=SAMPLES,
        arrival_s=k * ARRIVAL_EVERY_S,
        costs=costs,
    )


# Sets drawn at random, with quality curves

T = TypeVar("T")

LEAST_S, MOST_S = 20 * 60.0, 6 * 3_600.0
"""Of work on one node; drawn so that every doubling is as likely."""

MOST_NODES = (4, 8, 16, 32)

RESTARTS_S = (15.0, 25.0, 50.0, 80.0)
"""Measured for ncf, deepspeech2, cifar10 and yolov3 (Sia, SOSP 2023)."""

DELIVER = (0.6, 0.9)

FINAL = (0.95, 1.0)
"""Quality at which the tiers of the target lie."""

SLACK = (2.0, 8.0)
"""Arrival to deadline, over the time alone on the best size."""


def quality_trainers(
    count: int,
    curves: Sequence[QualityTruth],
    *,
    seed: int,
    nodes: float,
    load: float,
) -> tuple[TrainerSpec, ...]:
    """Return *count* trainers with curves out of *curves*.

    Arrivals are a Poisson process.

    Args:
        count: Trainers.
        curves: Recorded curves to draw from.
        seed: Of the random draws.
        nodes: Idle nodes on average, above 0.
        load: Work that arrives, in seconds on one node and up to where the trainers
            will end, over the node-seconds available. Above 1 trainers pile up for as
            long as they arrive.

    Raises:
        UsageError: There are no curves.
    """
    if not curves:
        raise UsageError("there are no quality curves to draw from. Name a folder.")
    # Of all of random, only random() is promised to be the same in every release.
    draws = random.Random(seed).random  # noqa: S311  trainers, no secret
    points = measured_points()
    made, slacks, waits = [], [], []
    for k in range(count):
        made.append(_drawn_trainer(k, curves, points, draws))
        slacks.append(_between(SLACK, draws()))
        waits.append(-math.log(1.0 - draws()))
    one_node_s = sum(
        trainer.work / trainer.scaling.samples_per_s.item(1) for trainer in made
    )
    gap_s = one_node_s / count / (load * nodes)
    arrivals_s = accumulate((gap_s * wait for wait in waits), initial=0.0)
    return tuple(map(_arriving, made, arrivals_s, slacks))


def _arriving(trainer: TrainerSpec, arrival_s: float, slack: float) -> TrainerSpec:
    deadline_s = arrival_s + slack * trainer.shortest_s
    return replace(trainer, arrival_s=arrival_s, deadline_s=deadline_s)


def _drawn_trainer(
    k: int,
    curves: Sequence[QualityTruth],
    points: dict[str, dict[int, float]],
    draws: Callable[[], float],
) -> TrainerSpec:
    truth = _pick(curves, draws())
    model, most_nodes = _pick(sorted(points), draws()), _pick(MOST_NODES, draws())
    scaling = _scaling(points, model, most_nodes)
    one_node_s = LEAST_S * (MOST_S / LEAST_S) ** draws()
    samples = one_node_s * float(scaling.samples_per_s[1])
    restart_s = _pick(RESTARTS_S, draws())
    target = _target(truth, _between(DELIVER, draws()), _between(FINAL, draws()))
    return TrainerSpec(
        name=f"{truth.name}-{k + 1:03d}",
        scaling=scaling,
        samples=samples,
        arrival_s=0.0,
        costs=Costs(
            grow_s=restart_s,
            shrink_s=restart_s,
            start_s=restart_s,
            checkpoint_every_s=CHECKPOINT_EVERY_S,
        ),
        target=target,
        quality=truth.scaled_to(samples),
    )


def _scaling(
    points: dict[str, dict[int, float]], model: str, most_nodes: int
) -> Scaling:
    measured = points[model].items()
    return interpolate(model, {n: rate for n, rate in measured if n <= most_nodes})


def _target(truth: QualityTruth, deliver: float, final: float) -> Target | None:
    """Return the target at these qualities, None if nothing is ever learnt."""
    if truth.quality()[-1] <= 0:
        return None
    return Target(
        deliver=truth.value_at_quality(deliver), final=truth.value_at_quality(final)
    )


def _pick(choices: Sequence[T], draw: float) -> T:
    return choices[int(draw * len(choices))]


def _between(bounds: tuple[float, float], draw: float) -> float:
    return bounds[0] + draw * (bounds[1] - bounds[0])
