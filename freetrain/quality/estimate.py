"""From told values to an outlook."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from freetrain.quality.choice import Choice, choose
from freetrain.quality.course import course_of, frame_of
from freetrain.quality.divergence import is_diverging
from freetrain.quality.families.flat import FLAT
from freetrain.quality.fit import fit_family
from freetrain.quality.fitted import FittedOutlook
from freetrain.quality.history import History
from freetrain.quality.interval import spread_of
from freetrain.quality.phases import phase_start, warm_up_end
from freetrain.quality.polish import polished
from freetrain.quality.scale import scale_of
from freetrain.quality.thinning import thin

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from freetrain.quality.course import Course, Frame
    from freetrain.quality.outlook import Better, Point

FEWEST_POINTS = 3
"""Usable ones; two are a line through anything."""


def outlook_of(points: Iterable[Point], better: Better) -> FittedOutlook | None:
    """Return what *points* say of what is to come, or None where they say nothing.

    Args:
        points: In the order in which they were told; anything may be among them.
        better: Which values are good.

    Returns:
        None with fewer than three usable points.
    """
    return outlook_from(History(points), better)


def outlook_from(history: History, better: Better) -> FittedOutlook | None:
    """Return the outlook of a history; as :func:`outlook_of`."""
    samples, values = history.samples, history.values
    if samples.size < FEWEST_POINTS:
        return None
    scale = scale_of(thin(samples, values), better)
    diverging = is_diverging(values, scale, broken=history.broken)
    start = 0 if diverging else present_start(samples, values, better)
    course, frame = framed(samples[start:], values[start:], better)
    choice = Choice(FLAT, ()) if diverging else choose(course)
    return FittedOutlook(
        better=better,
        points=history.points,
        is_diverging=diverging,
        phase_samples=float(samples[start]),
        frame=frame,
        fit=polished(fit_family(choice.family, course), course),
        spread=spread_of(course, choice.trials),
        scale=scale,
    )


def present_start(
    samples: NDArray[np.float64], values: NDArray[np.float64], better: Better
) -> int:
    """Return how many points are warm-up or of earlier phases.

    Args:
        samples: Ascending, shape (n,).
        values: Finite, shape (n,).
        better: Which values are good.
    """
    course = framed(samples, values, better)[0]
    warm = int(np.sum(course.weights[: warm_up_end(course)]))
    course = framed(samples[warm:], values[warm:], better)[0]
    return warm + int(np.sum(course.weights[: phase_start(course)]))


def framed(
    samples: NDArray[np.float64], values: NDArray[np.float64], better: Better
) -> tuple[Course, Frame]:
    """Return points as a course, and its frame; arguments as above."""
    thinned = thin(samples, values)
    frame = frame_of(thinned, better)
    return course_of(thinned, frame).without_spikes(), frame
