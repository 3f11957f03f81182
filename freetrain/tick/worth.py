"""How quick trainers are, and what rescales cost, as their users say; pure.

What is measured takes their place in ``measured``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from freetrain.scaling.assumed import (
    ASSUMED_EXPONENT,
    ASSUMED_RESCALE_S,
    ASSUMED_START_S,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from freetrain.jobfile.job import RescaleCosts, TrainerJob


@dataclass(frozen=True, slots=True, eq=False)
class Speed:
    """How quick one trainer is, and what rescales cost it.

    Attributes:
        samples_per_s: From 0 nodes to the most that it can use.
        grow_s: Seconds without training when nodes are added.
        shrink_s: Seconds without training when nodes are given up.
        start_s: Seconds without training when it starts from no nodes.
    """

    samples_per_s: NDArray[np.float64]
    grow_s: float
    shrink_s: float
    start_s: float


@dataclass(frozen=True, slots=True)
class Way:
    """How far a trainer is whose speed is asked for.

    Attributes:
        held: Nodes that it runs on now.
        remaining: Its work until it is finished, in the unit of its speeds; inf where
            nobody knows.
    """

    held: int = 0
    remaining: float = math.inf


IDLE = Way()


class Speeds(Protocol):
    """Says how quick trainers are, and what rescales cost them."""

    def of(self, job: TrainerJob, scaling: Mapping[str, Any], way: Way = IDLE) -> Speed:
        """Return how quick *job* is.

        Args:
            job: The trainer.
            scaling: What was measured of it (``scaling.state``), empty for nothing.
            way: How far it is.
        """
        ...


class AsSaid:
    """What users say, and what is assumed of all; a ``Speeds``."""

    def of(self, job: TrainerJob, scaling: Mapping[str, Any], way: Way = IDLE) -> Speed:
        """Return how quick *job* is by its own words."""
        del scaling, way
        return Speed(speeds_of(job), *costs_s(job.costs))


def speeds_of(job: TrainerJob, *, at_least: int = 0) -> NDArray[np.float64]:
    """Return samples a second from 0 nodes to the most that *job* can use.

    Between the points of ``scaling`` speed is linear; beyond the last, and where
    there are none, it grows as is assumed of all.

    Args:
        job: The trainer.
        at_least: Nodes up to which speeds are wanted in any case.
    """
    most = max(job.nodes.sizes[-1], at_least)
    counts = np.arange(most + 1, dtype=np.float64)
    if not job.scaling:
        return counts**ASSUMED_EXPONENT
    nodes = [0, *(count for count, _ in job.scaling)]
    speeds = np.interp(counts, nodes, [0.0, *(speed for _, speed in job.scaling)])
    last = nodes[-1]
    beyond = counts > last
    speeds[beyond] = job.scaling[-1][1] * (counts[beyond] / last) ** ASSUMED_EXPONENT
    return speeds


def costs_s(
    costs: RescaleCosts,
    assumed_s: tuple[float, float, float] = (
        ASSUMED_RESCALE_S,
        ASSUMED_RESCALE_S,
        ASSUMED_START_S,
    ),
) -> tuple[float, float, float]:
    """Return seconds without training at growing, shrinking and starting.

    Args:
        costs: What its user says.
        assumed_s: What counts where nothing is said.
    """
    grow_s, shrink_s, start_s = assumed_s
    return (
        grow_s if costs.grow_s is None else costs.grow_s,
        shrink_s if costs.shrink_s is None else costs.shrink_s,
        start_s if costs.start_s is None else costs.start_s,
    )
