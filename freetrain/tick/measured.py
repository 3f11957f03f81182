"""Speeds and costs as they were measured, before what users say; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from freetrain.errors import BadDataError
from freetrain.scaling.assumed import ASSUMED_RESCALE_S, ASSUMED_START_S
from freetrain.scaling.caution import cautious
from freetrain.scaling.estimate import estimate
from freetrain.scaling.fragment import Rescale
from freetrain.scaling.learned import LearnedScaling
from freetrain.scaling.prior import shown_by, site_prior
from freetrain.scaling.profiling import Stake, curve_values
from freetrain.scaling.state import from_state, to_state
from freetrain.tick.past import unit_of
from freetrain.tick.worth import IDLE, Speed, costs_s, speeds_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from freetrain.jobfile.job import TrainerJob
    from freetrain.scaling.fragment import Fragment
    from freetrain.scaling.prior import Prior
    from freetrain.scaling.profiling import Profiling
    from freetrain.tick.worth import Way


class Measured:
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

    def of(self, job: TrainerJob, scaling: Mapping[str, Any], way: Way = IDLE) -> Speed:
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
        way: Way,
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
) -> Measured:
    """Return speeds at a site where trainers have shown *scalings*."""
    shown = (shown_by(known_from(one), now_s=now_s) for one in scalings)
    prior = site_prior(one for one in shown if one is not None)
    return Measured(prior, now_s=now_s, profiling=profiling, deviations=deviations)


def with_fragments(
    scaling: Mapping[str, Any], fragments: Iterable[Fragment]
) -> dict[str, Any]:
    """Return *scaling* with what *fragments* show."""
    known = known_from(scaling)
    for fragment in fragments:
        known = known.with_fragment(fragment)
    return to_state(known)


def known_from(scaling: Mapping[str, Any]) -> LearnedScaling:
    """Return what was measured; nothing where another release wrote it."""
    try:
        return from_state(scaling)
    except BadDataError:
        return LearnedScaling()


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
