"""The last digits of a fit, between the shapes of the grid."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from freetrain.quality.fit import fading_weights, lowest_floor, scatter_of, with_lag

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from freetrain.quality.course import Course
    from freetrain.quality.fit import Fit

MOST_EVALUATIONS = 30


def polished(fit: Fit, course: Course) -> Fit:
    """Return *fit* with all of its parameters at the robust least-squares minimum.

    SciPy's trust-region reflective method, from the grid's best shape and within the
    grid's bounds; ``soft_l1`` as in the grid search.
    """
    if fit.family.parameters == 1 or len(course) <= fit.family.parameters:
        return fit
    from scipy.optimize import least_squares  # noqa: PLC0415 - half a second to import

    lowest = fit.family.shapes.min(axis=0)
    highest = fit.family.shapes.max(axis=0)
    scale = _scale(fit, course)
    roots = np.sqrt(fading_weights(course)) / scatter_of(course)

    def misses(parameters: NDArray[np.float64]) -> NDArray[np.float64]:
        *shape, gain, floor = parameters
        basis = fit.family.basis(course.work, np.array([shape]))[0] / scale
        return np.asarray(roots * (floor + gain * basis - course.heights))

    low = np.array([*lowest, 0.0, lowest_floor(course)])
    high = np.array([*highest, np.inf, np.inf])
    start = np.array([*fit.shape, fit.gain * scale, fit.floor])
    found = least_squares(
        misses,
        np.clip(start, low, high),
        bounds=(low, high),
        loss="soft_l1",
        x_scale="jac",
        max_nfev=MOST_EVALUATIONS,
    )
    *shape, gain, floor = found.x
    better = replace(
        fit, shape=np.array(shape), gain=float(gain) / scale, floor=float(floor)
    )
    return with_lag(better, course)


def _scale(fit: Fit, course: Course) -> float:
    """Return the basis at the first point: divided by it, gains are heights."""
    first = fit.family.basis(course.work[:1], fit.shape[None, :])[0, 0]
    return max(float(first), 1e-30)
