"""How good a trainer's model truly becomes, by samples; known to the replay alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from freetrain.errors import UsageError
from freetrain.quality.outlook import Better

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class QualityTruth:
    """A recorded curve: what an evaluation says after so many samples.

    Attributes:
        samples: Where the metric is evaluated, samples since the training began,
            float64, ascending, 0 or more, the last above 0.
        values: The metric there, float64; may be nan or infinite.
        better: Which values are good.
        name: What the curve was recorded from.
    """

    samples: NDArray[np.float64]
    values: NDArray[np.float64]
    better: Better
    name: str = ""

    def scaled_to(self, samples: float) -> QualityTruth:
        """Return the same curve, stretched so that its last point is at *samples*."""
        # Divided first: the last point is at *samples* to the bit, not just past it.
        return replace(self, samples=self.samples / self.samples[-1] * samples)

    def quality(self, *, until: float = math.inf) -> NDArray[np.float64]:
        """Return the best so far at each evaluation, as a share of the best of all.

        0 at the first finite value, 1 at the best one, never falling: who trains
        keeps the best checkpoint. All 0 where nothing betters the first.

        Args:
            until: Samples after which the training ends; later evaluations are not
                counted in.
        """
        values = self.values[self.samples <= until]
        signed = -values if self.better is Better.LOWER else values
        usable = np.isfinite(signed)
        if not usable.any():
            return np.zeros(len(signed))
        first = signed[usable][0]
        best = np.maximum.accumulate(np.where(usable, signed, first).clip(min=first))
        span = best[-1] - first
        return (best - first) / span if span > 0 else np.zeros(len(best))

    def reached_at(self, value: float) -> float | None:
        """Return the samples of the first evaluation as good as *value*, or None."""
        told = zip(self.samples.tolist(), self.values.tolist(), strict=True)
        good = (where for where, one in told if self.better.is_reached(value, one))
        return next(good, None)

    def value_at_quality(self, quality: float) -> float:
        """Return the first evaluated value of at least *quality*, from 0 to 1."""
        place = int(np.searchsorted(self.quality(), quality))
        return float(self.values[min(place, len(self.values) - 1)])


def truth_of(
    samples: Sequence[float], values: Sequence[float], better: Better, *, name: str
) -> QualityTruth:
    """Return the curve through points in any order; of equal places the last stays.

    Raises:
        UsageError: There are fewer than two places, or one is negative or not finite.
    """
    points = dict(sorted(zip(samples, values, strict=True), key=lambda pair: pair[0]))
    where = np.array(list(points), dtype=np.float64)
    if len(where) < 2 or not np.isfinite(where).all() or where[0] < 0:  # noqa: PLR2004
        raise UsageError(
            f"the quality curve {name!r} has {len(where)} different places; expected "
            f"2 or more, finite and not negative. Nothing was replayed."
        )
    told = np.array(list(points.values()), dtype=np.float64)
    for array in (where, told):
        array.setflags(write=False)
    return QualityTruth(where, told, better, name)
