"""Where the present phase of a training began.

A step of the learning rate, or a change of the data, starts another curve: what came
before says little of what will come. No step is seen before it happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from freetrain.quality.families.known import CURVES
from freetrain.quality.families.power import POWER
from freetrain.quality.fit import scatter_of
from freetrain.quality.projection import project
from freetrain.quality.spikes import running_median

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from freetrain.quality.course import Course
    from freetrain.quality.families.interface import Family

FEWEST_POINTS = 12
"""With fewer, two curves fit anything."""

FEWEST_IN_PHASE = 5

SPLITS = 20
"""Tried at first; then those between the best and its neighbours."""

GAIN_OF_SPLIT = 8.0
"""By what number of squared deviations a second curve must fit better, for each of
the natural logarithms of the number of points: twice what BIC asks for its four
parameters, because the place of the split was searched for."""

LEAST_JUMP = 0.05
"""In heights, at the split from one curve to the other; in noise, four."""

JUMP_OF_NOISE = 4.0

LEAST_BEND = 3.0
"""By what factor slopes differ at a split without a jump."""

WARM_UP_SHARE = 1 / 3
WARM_UP_DROP = 0.02
"""In heights: less is no descent yet, nor is twice the noise."""

FALL_OF_DROP = 4.0
"""By how much more must be gained in as many points again: a slow start that goes on
as slowly is no warm-up."""


def warm_up_end(course: Course) -> int:
    """Return the index of the first point that is not warm-up.

    Warm-up is what comes before the descent: a rise, or a plateau, that ends within
    the first third of the points.
    """
    limit = int(WARM_UP_SHARE * len(course))
    if limit < FEWEST_IN_PHASE:
        return 0
    calm = running_median(course.heights)
    drop = max(2 * course.noise, WARM_UP_DROP)
    high = np.flatnonzero(calm[: limit + 1] >= calm[: limit + 1].max() - drop)
    last = int(high[-1])
    fall = calm[last] - calm[min(2 * last, len(course) - 1)]
    return last if 1 < last < limit and fall > FALL_OF_DROP * drop else 0


def phase_start(course: Course) -> int:
    """Return the index of the first point of the present phase; 0 for one phase.

    Two power laws, one up to a split and one from there on, against the best of all
    families for the whole: the best split counts where it fits far better, and level
    or slope break there.
    """
    count = len(course)
    asked = GAIN_OF_SPLIT * np.log(count)
    if count < FEWEST_POINTS:
        return 0
    cost = min(_Segment(course, 0, count, family).cost for family in CURVES)
    cost = min(cost, _cost_of_smooth(course))
    if cost < asked:
        return 0
    split, cost_of_two = _best_split(course)
    return split if cost - cost_of_two > asked and _breaks(course, split) else 0


def _best_split(course: Course) -> tuple[int, float]:
    """Return the index at which two curves fit best, and what they leave."""
    first, last = FEWEST_IN_PHASE, len(course) - FEWEST_IN_PHASE
    stride = max(1, (last - first) // SPLITS)
    splits = range(first, last + 1, stride)
    costs = {split: _cost_of_two(course, split) for split in splits}
    best = min(costs, key=costs.__getitem__)
    around = range(max(first, best - stride + 1), min(last + 1, best + stride))
    costs |= {split: _cost_of_two(course, split) for split in around if split != best}
    best = min(costs, key=costs.__getitem__)
    return best, costs[best]


def _cost_of_smooth(course: Course) -> float:
    """Return what a cubic leaves: no family, but one phase all the same."""
    roots = np.sqrt(course.weights)
    # Asked for all it knows, NumPy does not print that points are unevenly spread.
    cubic, _ = np.polynomial.Polynomial.fit(
        course.work, course.heights, 3, w=roots, full=True
    )
    misses = roots * (course.heights - cubic(course.work)) / scatter_of(course)
    return float(8 * np.sum(np.sqrt(1 + misses**2) - 1))


class _Segment:
    """A family's curve through some of a course's points, all weighing as told."""

    def __init__(
        self, course: Course, start: int, stop: int, family: Family = POWER
    ) -> None:
        self._family = family
        step = course.work[start] - course.work[start - 1] if start else 0.0
        self._origin = course.work[start] - step if start else 0.0
        work = self._work(course.work[start:stop])
        found = project(
            family.basis(work, family.shapes),
            course.heights[start:stop],
            course.weights[start:stop],
            lowest=-1.0,
            scatter=scatter_of(course),
        )
        best = int(np.argmin(found.costs))
        self.cost = 4 * float(found.costs[best])
        self._shape = family.shapes[best : best + 1]
        self._gain, self._floor = found.gains[best], found.floors[best]

    def height(self, work: float) -> float:
        """Return the curve at *work*."""
        basis = self._family.basis(self._work(np.array([work])), self._shape)
        return float(self._floor + self._gain * basis[0, 0])

    def _work(self, work: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(work - self._origin)


def _cost_of_two(course: Course, split: int) -> float:
    before = _Segment(course, 0, split)
    return before.cost + _Segment(course, split, len(course)).cost


def _breaks(course: Course, split: int) -> bool:
    """Tell whether level or slope break at *split*, by the curves of both sides."""
    before = _Segment(course, 0, split)
    after = _Segment(course, split, len(course))
    end, start = course.work[split - 1], course.work[split]
    # A fall of one step is what any steep curve does: only what the curve before
    # would not have done by then is a jump.
    jump = abs(before.height(start) - after.height(start))
    if jump > max(LEAST_JUMP, JUMP_OF_NOISE * course.noise):
        return True
    further = start + (course.work[-1] - start) / 4
    old = before.height(end) - before.height(further)
    new = after.height(start) - after.height(further)
    return max(old, new) > LEAST_JUMP and max(old, new) > LEAST_BEND * min(old, new)
