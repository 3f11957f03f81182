"""Whether a training has gone wrong, without fitting anything to it; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.quality.divergence import is_diverging as _is_diverging
from freetrain.quality.history import History
from freetrain.quality.scale import scale_of
from freetrain.quality.thinning import thin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.quality.outlook import Better, Point


def is_diverging(points: Sequence[Point], better: Better) -> bool:
    """Tell whether the last of *points* are no numbers, or far worse than the best."""
    history = History(points)
    if not history.points:
        return history.broken > 0
    samples, values = history.samples, history.values
    scale = scale_of(thin(samples, values), better)
    return _is_diverging(values, scale, broken=history.broken)
