"""Fit all shapes of a grid at once: the linear parameters follow from the shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROUNDS = 4
"""Of reweighting; a further one moves nothing that the noise does not hide."""

TINY = 1e-30


@dataclass(frozen=True, slots=True, eq=False)
class Projected:
    """The best floor and gain of each shape; all of shape (g,).

    Attributes:
        costs: Robust sum of squares.
        gains: 0 or more.
        floors: At least the lowest that was allowed.
    """

    costs: NDArray[np.float64]
    gains: NDArray[np.float64]
    floors: NDArray[np.float64]


def project(
    basis: NDArray[np.float64],
    heights: NDArray[np.float64],
    weights: NDArray[np.float64],
    *,
    lowest: float,
    scatter: float,
) -> Projected:
    """Return the robust least-squares floor and gain of each row of *basis*.

    The loss is SciPy's ``soft_l1``: squares up to about *scatter*, lines beyond,
    so that a spike pulls no harder than a bad point. Solved by reweighting.

    Args:
        basis: Shape (g, n), falling along each row.
        heights: Shape (n,).
        weights: Above 0, shape (n,).
        lowest: No floor is below this.
        scatter: Residuals beyond it count as lines, above 0.
    """
    top = basis[:, :1]
    scaled = basis / np.maximum(top, TINY)
    trust = np.broadcast_to(weights, scaled.shape)
    roots = np.sqrt(weights) / scatter
    for _ in range(ROUNDS):
        gains, floors = _solve(scaled, heights, trust, lowest)
        misses = roots * (heights - floors[:, None] - gains[:, None] * scaled)
        stretch = np.sqrt(1 + misses**2)
        trust = weights / stretch
    costs = 2 * (stretch - 1).sum(axis=1)
    return Projected(costs, gains / np.maximum(top[:, 0], TINY), floors)


def _solve(
    basis: NDArray[np.float64],
    heights: NDArray[np.float64],
    trust: NDArray[np.float64],
    lowest: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return gains and floors of weighted least squares within their bounds."""
    total = trust.sum(axis=1)
    weighted = trust * basis
    first = weighted.sum(axis=1)
    height = trust @ heights
    cross = weighted @ heights
    square = np.einsum("gn,gn->g", weighted, basis)
    spread = np.maximum(square - first**2 / total, TINY)
    gains = np.maximum((cross - first * height / total) / spread, 0.0)
    floors = (height - gains * first) / total
    at_bound = np.maximum((cross - lowest * first) / np.maximum(square, TINY), 0.0)
    low = floors < lowest
    return np.where(low, at_bound, gains), np.where(low, lowest, floors)
