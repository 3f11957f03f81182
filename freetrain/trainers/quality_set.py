"""A mix of trainers with recorded quality curves, for comparing priorities.

Everything is drawn from one seed, so that the same seed is the same trainers under
every priority; another load only moves their arrivals apart or together.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

from freetrain.errors import UsageError
from freetrain.priority.interface import Target
from freetrain.trainers.builtin import CHECKPOINT_EVERY_S, FIXED_NODES
from freetrain.trainers.scaling import interpolate, measured_points
from freetrain.trainers.spec import Costs, TrainerSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from freetrain.trainers.quality import QualityTruth
    from freetrain.trainers.spec import Scaling

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


@dataclass(frozen=True, slots=True)
class Demand:
    """How much the trainers ask of the nodes.

    Attributes:
        nodes: Idle nodes on average, above 0.
        load: Work that arrives, in seconds on one node and up to where the trainers
            will end, over node-seconds there are. Above 1 trainers pile up for as
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
        made.append(_trainer(k, curves, points, draws))
        slacks.append(_between(SLACK, draws()))
        waits.append(-math.log(1.0 - draws()))
    one_node_s = sum(one.work / one.scaling.samples_per_s.item(1) for one in made)
    gap_s = one_node_s / count / (demand.load * demand.nodes)
    arrivals_s = accumulate((gap_s * wait for wait in waits), initial=0.0)
    return tuple(map(_arriving, made, arrivals_s, slacks))


def _arriving(one: TrainerSpec, arrival_s: float, slack: float) -> TrainerSpec:
    deadline_s = arrival_s + slack * one.shortest_s
    return replace(one, arrival_s=arrival_s, deadline_s=deadline_s)


def _trainer(
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
    """Return the target at these qualities, None where nothing is ever learnt."""
    if truth.quality()[-1] <= 0:
        return None
    return Target(
        deliver=truth.value_at_quality(deliver), final=truth.value_at_quality(final)
    )


def _pick(choices: Sequence[T], draw: float) -> T:
    return choices[int(draw * len(choices))]


def _between(bounds: tuple[float, float], draw: float) -> float:
    return bounds[0] + draw * (bounds[1] - bounds[0])
