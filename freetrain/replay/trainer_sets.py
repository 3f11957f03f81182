"""Sets of trainers: the two of the published evaluation, and drawn ones with curves."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

from freetrain.errors import UsageError
from freetrain.priority.base import Target
from freetrain.replay.trainers import (
    Costs,
    TrainerSpec,
    interpolate,
    measured_points,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from freetrain.replay.trainers import QualityTruth, Scaling

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
FIXED_NODES = 8

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
        fixed_nodes=FIXED_NODES,
    )


@dataclass(frozen=True, slots=True)
class Demand:
    """How much work the trainers bring to the nodes.

    Attributes:
        nodes: Idle nodes on average, above 0.
        load: Work that arrives, in seconds on one node and up to where the trainers
            will end, over the node-seconds available. Above 1 trainers pile up for as
            long as they arrive.
    """

    nodes: float
    load: float


def quality_trainers(
    count: int, curves: Sequence[QualityTruth], *, seed: int, demand: Demand
) -> tuple[TrainerSpec, ...]:
    """Return *count* trainers with curves out of *curves*.

    Arrivals are a Poisson process of the rate that *demand* asks for.

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
    gap_s = one_node_s / count / (demand.load * demand.nodes)
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
        fixed_nodes=min(FIXED_NODES, scaling.sizes[-1]),
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
