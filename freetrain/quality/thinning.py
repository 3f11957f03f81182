"""Many values by few: what a fit costs must not grow with the history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_POINTS = 120


@dataclass(frozen=True, slots=True, eq=False)
class Thinned:
    """Points that stand for one or more told ones, ascending; all of shape (m,).

    Attributes:
        samples: Mean samples of those they stand for.
        values: Median value; half of a bin may be spikes.
        weights: How many they stand for; they sum to the number of told points.
    """

    samples: NDArray[np.float64]
    values: NDArray[np.float64]
    weights: NDArray[np.float64]


def thin(
    samples: NDArray[np.float64],
    values: NDArray[np.float64],
    *,
    most: int = MOST_POINTS,
) -> Thinned:
    """Return at most *most* points for any number of them.

    Half of the bins are equally wide in the count of points and half on its
    logarithm: the start, where curves bend, keeps its detail, and so does the end.

    Args:
        samples: Ascending, shape (n,).
        values: Finite, shape (n,).
        most: At least 4.
    """
    count = samples.size
    if count <= most:
        return Thinned(samples, values, np.ones(count))
    half = most // 2
    edges = np.concatenate(
        (np.geomspace(1, count, half), np.linspace(0, count, half, endpoint=False))
    )
    starts = np.unique(np.append(edges.astype(np.int64), 0))
    starts = starts[starts < count]
    weights = np.diff(np.append(starts, count)).astype(np.float64)
    means = np.add.reduceat(samples, starts) / weights
    medians = [np.median(bin_) for bin_ in np.split(values, starts[1:])]
    return Thinned(means, np.array(medians), weights)
