"""The linear relaxation of the one-class problem, in closed form (model.md, R1-R3).

With one capacity, relaxing "whole sizes" leaves each trainer the upper concave
hull of its gains, and all hull segments of all trainers are bought steepest
first. The slope at which the pool runs out is the price of a node.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class Hull(NamedTuple):
    """Rising segments of the concave hull of a trainer's gains.

    Attributes:
        slopes: Gain a node, falling, all above 0, shape (segments,).
        widths: Nodes, shape (segments,).
    """

    slopes: NDArray[np.float64]
    widths: NDArray[np.float64]


def corners(row: NDArray[np.float64]) -> list[tuple[int, float]]:
    """Return the upper concave hull of gains at 0 .. max nodes, as (nodes, gain).

    ``-inf`` entries do not count; falling segments are left out. Every pass drops
    what lies on or under the line between its neighbours; a few passes do.
    """
    sizes = np.flatnonzero(row[: int(row.argmax()) + 1] > -np.inf)
    while True:
        values = row[sizes]
        slopes = (values[1:] - values[:-1]) / (sizes[1:] - sizes[:-1])
        is_corner = np.ones(len(sizes), dtype=bool)
        is_corner[1:-1] = slopes[1:] < slopes[:-1]
        if is_corner.all():
            break
        sizes = sizes[is_corner]
    return list(zip(sizes.tolist(), values.tolist(), strict=True))


def hull_of(row: NDArray[np.float64]) -> Hull:
    """Return the rising hull segments of gains at 0 .. max nodes."""
    hull = corners(row)
    segments = [(_slope(a, b), b[0] - a[0]) for a, b in pairwise(hull)]
    both = np.array(segments, dtype=np.float64).reshape(-1, 2)
    return Hull(both[:, 0], both[:, 1])


def node_price(hulls: Sequence[Hull], pool_nodes: int) -> float:
    """Return the gain of the last node that the relaxation buys, 0 if all fit."""
    if not hulls:
        return 0.0
    slopes = np.concatenate([hull.slopes for hull in hulls])
    order = np.argsort(-slopes)
    bought = np.concatenate([hull.widths for hull in hulls])[order].cumsum()
    last = int(bought.searchsorted(pool_nodes, side="right"))
    return float(slopes[order[last]]) if last < len(order) else 0.0


def _slope(left: tuple[int, float], right: tuple[int, float]) -> float:
    return (right[1] - left[1]) / (right[0] - left[0])
