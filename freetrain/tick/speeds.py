"""How quick trainers are by node count, and what rescales cost them; pure.

``StatedSpeeds`` goes by what users say, ``MeasuredSpeeds`` by what trainers showed.
Where neither says anything, both go by what is assumed of all trainers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from freetrain.planning.rating import (
    ASSUMED_COSTS_S,
    learned_costs_s,
    learned_speeds,
)
from freetrain.scaling import ASSUMED_EXPONENT, LearnedScaling, shown_by, site_prior
from freetrain.tick.history import known_from, unit_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from freetrain.config.job import RescaleCosts, TrainerJob
    from freetrain.planning.rating import RescaleCostsS
    from freetrain.scaling import Prior, Profiling


@dataclass(frozen=True, slots=True, eq=False)
class Speed:
    """How quick one trainer is, and what rescales cost it.

    Attributes:
        samples_per_s: By node count, from 0 to the most that it can use; in the unit
            of its work where that is not samples.
        grow_s: Seconds without training when nodes are added.
        shrink_s: Seconds without training when nodes are given up.
        start_s: Seconds without training when it starts from no nodes.
    """

    samples_per_s: NDArray[np.float64]
    grow_s: float
    shrink_s: float
    start_s: float


class Speeds(Protocol):
    """Knows how quick trainers are, and what rescales cost them."""

    def of(
        self,
        job: TrainerJob,
        scaling: Mapping[str, Any],
        *,
        held: int = 0,
        remaining: float = math.inf,
    ) -> Speed:
        """Return how quick *job* is.

        Args:
            job: The trainer.
            scaling: What was measured of it (``scaling.to_state``), empty for nothing.
            held: Nodes that it runs on now.
            remaining: Its work until it is finished, in the unit of its speeds; inf
                where that is unknown.
        """
        ...


class StatedSpeeds:
    """What users say of their trainers."""

    def of(
        self,
        job: TrainerJob,
        scaling: Mapping[str, Any],
        *,
        held: int = 0,
        remaining: float = math.inf,
    ) -> Speed:
        """Return how quick *job* is by its job file."""
        del scaling, held, remaining
        return Speed(speeds_of(job), *costs_s(job.costs))


class MeasuredSpeeds:
    """What trainers showed, and until then what users say."""

    def __init__(
        self,
        prior: Prior,
        *,
        now_s: float,
        profiling: Profiling | None = None,
        deviations: float = 0.0,
    ) -> None:
        """Measure by what trainers showed.

        Args:
            prior: What is expected of a trainer at this site.
            now_s: Unix time.
            profiling: How trainers try sizes; None where they do not.
            deviations: By how many standard deviations speeds of trainers that wait
                are lowered.
        """
        self._prior = prior
        self._now_s = now_s
        self._profiling = profiling
        self._deviations = deviations

    def of(
        self,
        job: TrainerJob,
        scaling: Mapping[str, Any],
        *,
        held: int = 0,
        remaining: float = math.inf,
    ) -> Speed:
        """Return how quick *job* was measured to be; its stated costs count first.

        Speeds of a trainer that waits are lowered by their uncertainty. Where trainers
        may try sizes, speeds of a running one include what it may hope for.
        """
        known = known_from(scaling)
        rescales_s = costs_s(job.costs, learned_costs_s(known))
        if job.scaling and not known.seen:
            return Speed(speeds_of(job), *rescales_s)
        speeds = learned_speeds(
            known,
            job.nodes.sizes,
            held=held,
            now_s=self._now_s,
            prior=self._prior,
            deviations=self._deviations,
            # Only trainers that run, and were seen to, try sizes.
            profiling=self._profiling if held and known.seen else None,
            remaining_samples=remaining,
            costs_s=rescales_s,
            stated=_stated(job, known),
        )
        return Speed(speeds, *rescales_s)


def measured_by(
    scalings: Iterable[Mapping[str, Any]],
    *,
    now_s: float,
    profiling: Profiling | None = None,
    deviations: float = 0.0,
) -> MeasuredSpeeds:
    """Return speeds at a site where trainers have shown *scalings*."""
    shown = (shown_by(known_from(scaling), now_s=now_s) for scaling in scalings)
    prior = site_prior(speeds for speeds in shown if speeds is not None)
    return MeasuredSpeeds(
        prior, now_s=now_s, profiling=profiling, deviations=deviations
    )


def speeds_of(job: TrainerJob, *, at_least: int = 0) -> NDArray[np.float64]:
    """Return stated samples a second, from 0 nodes to the most that *job* can use.

    Between the points of ``scaling`` speed is linear; beyond the last, and where there
    are none, it grows as is assumed of all.

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
    assumed_s: RescaleCostsS = ASSUMED_COSTS_S,
) -> RescaleCostsS:
    """Return seconds without training at growing, shrinking and starting.

    Args:
        costs: What the user says.
        assumed_s: The same three, for those that the user does not give.
    """
    grow_s, shrink_s, start_s = assumed_s
    return (
        grow_s if costs.grow_s is None else costs.grow_s,
        shrink_s if costs.shrink_s is None else costs.shrink_s,
        start_s if costs.start_s is None else costs.start_s,
    )


def _stated(job: TrainerJob, known: LearnedScaling) -> dict[int, float] | None:
    """Return what the user says, in the unit in which speeds were measured.

    Users state samples. Where the program reports only steps or epochs, the shape of
    the stated curve still holds: it is scaled to the speed of the smallest size seen.
    """
    if not job.scaling:
        return None
    stated = dict(job.scaling)
    if unit_of(job) == "samples" or not known.seen:
        return stated
    nodes = min(known.seen)
    measured_per_s = known.seen[nodes][-1].samples_per_s
    factor = measured_per_s / float(speeds_of(job, at_least=nodes)[nodes])
    return {n: speed * factor for n, speed in stated.items()}
