"""Whether a training has gone wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from freetrain.quality.scale import Scale

FEWEST_POINTS = 4

TAIL = 3
TAIL_SHARE = 0.02
"""Of the values: the last, whose middle has to be bad. One bad value is a spike."""

LOST_OF_GAIN = 0.5
LOST_OF_NOISE = 8.0
LOST_OF_VALUE = 0.01


def is_diverging(values: NDArray[np.float64], scale: Scale, *, broken: int) -> bool:
    """Tell whether the last values are not numbers, or far worse than the best.

    Far is more than half of what was ever gained, more than the noise explains, and
    more than a hundredth of the value itself: a warm-up may be a little worse than
    the very start.

    Args:
        values: The usable ones, in order, shape (n,).
        scale: Of the same history.
        broken: How many values that were not finite came after the last usable one.
    """
    if broken:
        return True
    if values.size < FEWEST_POINTS:
        return False
    tail = max(TAIL, int(TAIL_SHARE * values.size))
    lost = scale.sign * (scale.best - float(np.median(values[-tail:])))
    return lost > max(
        LOST_OF_GAIN * scale.gained,
        LOST_OF_NOISE * scale.noise,
        LOST_OF_VALUE * max(abs(scale.best), abs(scale.start)),
    )
