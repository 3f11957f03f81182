"""What node counts are worth to the planner, and what rescales cost, live."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from freetrain.replay.settings import Objective
from milp.curve import speed_up, throughput, weighted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from freetrain.jobfile.job import RescaleCosts, TrainerJob
    from milp.problem import Curve

ASSUMED_POWER = 0.9
"""Speed on n nodes is taken to be n ** 0.9 of one node's until more is known."""

ASSUMED_RESCALE_S = 3.0
ASSUMED_START_S = 5.0
"""A clean rescale without a checkpoint took 0.75 s on the test cluster."""


def curve_of(job: TrainerJob, objective: Objective) -> Curve:
    """Return what each node count is worth."""
    sizes = job.nodes.sizes
    speeds = speeds_of(job)
    if objective is Objective.THROUGHPUT:
        return throughput(speeds, sizes)
    relative = speed_up(speeds, sizes)
    if objective is Objective.SPEEDUP:
        return relative
    return weighted(relative, job.weight)


def speeds_of(job: TrainerJob) -> NDArray[np.float64]:
    """Return samples a second from 0 nodes to the most that *job* can use.

    Between the points of ``scaling`` speed is linear; beyond the last, and where
    there are none, it grows as is assumed of all.
    """
    counts = np.arange(job.nodes.sizes[-1] + 1, dtype=np.float64)
    if not job.scaling:
        return counts**ASSUMED_POWER
    nodes = [0, *(count for count, _ in job.scaling)]
    speeds = np.interp(counts, nodes, [0.0, *(speed for _, speed in job.scaling)])
    last = nodes[-1]
    beyond = counts > last
    speeds[beyond] = job.scaling[-1][1] * (counts[beyond] / last) ** ASSUMED_POWER
    return speeds


def costs_s(costs: RescaleCosts) -> tuple[float, float, float]:
    """Return seconds without training at growing, shrinking and starting."""
    return (
        ASSUMED_RESCALE_S if costs.grow_s is None else costs.grow_s,
        ASSUMED_RESCALE_S if costs.shrink_s is None else costs.shrink_s,
        ASSUMED_START_S if costs.start_s is None else costs.start_s,
    )
