"""From a metric to quality: signed, 0 at the start, 1 at the best that was shown."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.quality.course import SMALLEST_SPAN
from freetrain.quality.noise import noise_of
from freetrain.quality.outlook import Better
from freetrain.quality.spikes import find_spikes

if TYPE_CHECKING:
    from freetrain.quality.thinning import Thinned


@dataclass(frozen=True, slots=True)
class Scale:
    """What qualities are measured by, in the metric's own unit.

    Attributes:
        sign: 1 where more is better, -1 where less is.
        start: Where the trainer began.
        best: The best value it has shown, spikes set aside.
        worst: The worst value it has shown, spikes set aside.
        unit: The difference that is a quality of 1, above 0.
        noise: Standard deviation of single values.
    """

    sign: int
    start: float
    best: float
    worst: float
    unit: float
    noise: float

    def quality(self, value: float) -> float:
        """Return *value* as quality; what is not finite is the worst value shown."""
        known = value if math.isfinite(value) else self.worst
        return self.sign * (known - self.start) / self.unit

    @property
    def gained(self) -> float:
        """The best value's gain over the start, 0 or more."""
        return self.sign * (self.best - self.start)


def scale_of(thinned: Thinned, better: Better) -> Scale:
    """Return the scale of a whole history.

    A trainer that never got better than it began, by more than its noise, has no
    gain to measure by: its unit is all that its values span.
    """
    kept = ~find_spikes(thinned.values, thinned.weights)
    values = thinned.values[kept]
    sign = 1 if better is Better.HIGHER else -1
    noise = noise_of(values, thinned.weights[kept])
    start, best = float(values[0]), float(sign * (sign * values).max())
    worst = float(sign * (sign * values).min())
    gain = sign * (best - start)
    tiny = SMALLEST_SPAN * max(abs(best), abs(worst), SMALLEST_SPAN)
    unit = gain if gain > max(noise, tiny) else max(noise, abs(best - worst), tiny)
    return Scale(sign, start, best, worst, unit, noise)
