"""How quick trainers are, and what rescales cost: as users say, and as measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from freetrain.scaling import (
    ASSUMED_EXPONENT,
    ASSUMED_RESCALE_S,
    ASSUMED_START_S,
    LearnedScaling,
    Rescale,
    Stake,
    cautious,
    curve_values,
    estimate,
    shown_by,
    site_prior,
)
from freetrain.tick.history import known_from, unit_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from freetrain.config.job import RescaleCosts, TrainerJob
    from freetrain.scaling import Prior, Profiling


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
class TrainerPosition:
    """How far a trainer is whose speed is asked for.

    Attributes:
        held: Nodes that it runs on now.
        remaining: Its work until it is finished, in the unit of its speeds; inf where
            nobody knows.
    """

    held: int = 0
    remaining: float = math.inf


IDLE = TrainerPosition()


class Speeds(Protocol):
    """Says how quick trainers are, and what rescales cost them."""

    def of(
        self, job: TrainerJob, scaling: Mapping[str, Any], way: TrainerPosition = IDLE
    ) -> Speed:
        """Return how quick *job* is.

        Args:
            job: The trainer.
            scaling: What was measured of it (``scaling.state``), empty for nothing.
            way: How far it is.
        """
        ...


class StatedSpeeds:
    """What users say, and what is assumed of all; a ``Speeds``."""

    def of(
        self, job: TrainerJob, scaling: Mapping[str, Any], way: TrainerPosition = IDLE
    ) -> Speed:
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


class MeasuredSpeeds:
    """What trainers showed; a ``worth.Speeds``."""

    def __init__(
        self,
        prior: Prior,
        *,
        now_s: float,
        profiling: Profiling | None = None,
        deviations: float = 0.0,
    ) -> None:
        """Begin.

        Args:
            prior: What is expected of trainers here.
            now_s: The moment.
            profiling: Who is to try sizes; None for nobody.
            deviations: By how much speeds of those that wait are lowered.
        """
        self._prior = prior
        self._now_s = now_s
        self._profiling = profiling
        self._deviations = deviations

    def of(
        self, job: TrainerJob, scaling: Mapping[str, Any], way: TrainerPosition = IDLE
    ) -> Speed:
        """Return what was measured of *job*, but for costs that it says itself.

        Speeds of one that waits are lowered as far as they are not sure. Where trainers
        may try sizes, those of a running one hold what it may hope.
        """
        known = known_from(scaling)
        grow_s, shrink_s, start_s = costs_s(job.costs, _costs_s(known))
        speeds = self._samples_per_s(
            job, known, way, back_and_forth_s=grow_s + shrink_s
        )
        return Speed(speeds, grow_s, shrink_s, start_s)

    def _samples_per_s(
        self,
        job: TrainerJob,
        known: LearnedScaling,
        way: TrainerPosition,
        *,
        back_and_forth_s: float,
    ) -> NDArray[np.float64]:
        """Return measured speeds; before the first, those that *job* says."""
        if job.scaling and not known.seen:
            return speeds_of(job)
        most, user = job.nodes.sizes[-1], _user(job, known)
        found = cautious(
            estimate(known, most, now_s=self._now_s, prior=self._prior, user=user),
            held=way.held,
            deviations=self._deviations,
        )
        if self._profiling is None or not way.held or not known.seen:
            return found.samples_per_s
        stake = Stake(
            remaining_samples=way.remaining,
            # Whoever gives nodes for a trial up and takes them back pays as well.
            rescale_s=2.0 * back_and_forth_s,
            held=way.held,
            smallest=job.nodes.sizes[0],
        )
        return curve_values(found, profiling=self._profiling, stake=stake)


def measured_by(
    scalings: Iterable[Mapping[str, Any]],
    *,
    now_s: float,
    profiling: Profiling | None = None,
    deviations: float = 0.0,
) -> MeasuredSpeeds:
    """Return speeds at a site where trainers have shown *scalings*."""
    shown = (shown_by(known_from(one), now_s=now_s) for one in scalings)
    prior = site_prior(one for one in shown if one is not None)
    return MeasuredSpeeds(
        prior, now_s=now_s, profiling=profiling, deviations=deviations
    )


def _costs_s(known: LearnedScaling) -> tuple[float, float, float]:
    return (
        known.cost_s(Rescale.GROW, assumed_s=ASSUMED_RESCALE_S),
        known.cost_s(Rescale.SHRINK, assumed_s=ASSUMED_RESCALE_S),
        known.cost_s(Rescale.START, assumed_s=ASSUMED_START_S),
    )


def _user(job: TrainerJob, known: LearnedScaling) -> dict[int, float] | None:
    """Return what its user says, in the unit in which it was measured.

    Users say samples. Where the program tells only steps or epochs, what they say of
    the shape still holds: it is brought to the speed of the smallest size seen.
    """
    if not job.scaling:
        return None
    said = dict(job.scaling)
    if unit_of(job) == "samples" or not known.seen:
        return said
    nodes = min(known.seen)
    measured_per_s = known.seen[nodes][-1].samples_per_s
    factor = measured_per_s / float(speeds_of(job, at_least=nodes)[nodes])
    return {n: speed * factor for n, speed in said.items()}
