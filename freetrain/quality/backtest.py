"""What a family would have said earlier, held against what came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from freetrain.quality.fit import fit_family

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from freetrain.quality.course import Course
    from freetrain.quality.families.interface import Family

CUTS = (0.3, 0.45, 0.6, 0.75, 0.9)
"""Of the points: where the past is cut, and the rest predicted."""

FEWEST_SEEN = 4
"""Points; before that, no family has anything to go by."""

NEAR = 0.15
"""Work ahead, as a share of the work done, that is near."""


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """One forecast of the past; arrays of shape (n,), one entry a point to come.

    Attributes:
        noise: What was known of the noise at the cut, in heights.
        ahead: Work ahead, as a share of the work done at the cut.
        misses: Heights by which the points were above what was forecast.
        weights: How many told points each stands for.
    """

    noise: float
    ahead: NDArray[np.float64]
    misses: NDArray[np.float64]
    weights: NDArray[np.float64]


def back_test(family: Family, course: Course) -> tuple[Trial, ...]:
    """Return *family*'s forecasts of parts of *course* from the parts before."""
    return tuple(_try(family, course, count) for count in _cuts(len(course)))


def error_of(trials: Iterable[Trial]) -> float:
    """Return the mean absolute miss: half of it near by, half over all that came.

    What is near decides who gets nodes next, what is far when a target is reached.
    In heights; inf without a trial.
    """
    errors = [(_mean_miss(trial, NEAR) + _mean_miss(trial)) / 2 for trial in trials]
    return float(np.mean(errors)) if errors else np.inf


def _cuts(count: int) -> list[int]:
    seen = {max(FEWEST_SEEN, round(share * count)) for share in CUTS}
    return sorted(cut for cut in seen if cut < count)


def _try(family: Family, course: Course, count: int) -> Trial:
    past = course.until(count)
    forecast = fit_family(family, past).forecast(course.work[count:])
    return Trial(
        noise=past.late_noise,
        ahead=course.work[count:] / course.work[count - 1] - 1,
        misses=course.heights[count:] - forecast,
        weights=course.weights[count:],
    )


def _mean_miss(trial: Trial, within: float = np.inf) -> float:
    counts = trial.ahead <= max(within, trial.ahead[0])
    return float(
        np.average(np.abs(trial.misses[counts]), weights=trial.weights[counts])
    )
