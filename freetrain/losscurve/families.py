"""Shapes that loss curves take, one module each, behind ``interface.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


# ----------------------------------------------------------------------
# Shapes to try, as a grid.


def grid(*axes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return every combination of the *axes*' entries, one a row, read-only."""
    columns = [axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")]
    shapes = np.stack(columns, axis=1)
    shapes.flags.writeable = False
    return shapes


# ----------------------------------------------------------------------
# What a family of curves is to those who fit it.

if TYPE_CHECKING:
    Basis = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """Curves ``floor + gain * basis(work; shape)`` with a gain of 0 or more.

    The basis falls towards 0 as work grows, so a curve only ever gets better and has
    an end. Floor and gain are linear and never searched for: given a shape, they
    follow (variable projection, Golub and Pereyra 1973).

    Attributes:
        name: What people are told was chosen.
        parameters: Numbers that a fit is free to choose, floor and gain included.
        shapes: Where the search starts: shapes to try, shape (g, parameters - 2),
            read-only, its rows ordered as a grid; its columns' extremes are the
            bounds.
        basis: From work above 0, shape (n,), and shapes, shape (g, parameters - 2),
            to the basis of each, shape (g, n), finite, 0 or more.
    """

    name: str
    parameters: int
    shapes: NDArray[np.float64]
    basis: Basis


# ----------------------------------------------------------------------
# Exponential decay: every step takes away the same share of what is left.


def _basis_exponential(
    work: NDArray[np.float64], shapes: NDArray[np.float64]
) -> NDArray[np.float64]:
    (tau,) = shapes.T[:, :, None]
    return np.asarray(np.exp(-work / tau))


EXPONENTIAL = Family(
    "exponential", 3, grid(np.geomspace(0.02, 5, 32)), _basis_exponential
)
"""``c + a * exp(-k / tau)``; the same curves as SLAQ's ``mu ** (k - b) + c``."""

# ----------------------------------------------------------------------
# No further gain: the level of the last values is all there will be.

_SHAPES = np.zeros((1, 0))
_SHAPES.flags.writeable = False


def _basis_flat(
    work: NDArray[np.float64], shapes: NDArray[np.float64]
) -> NDArray[np.float64]:
    return np.zeros((len(shapes), work.size))


FLAT = Family("no further gain", 1, _SHAPES, _basis_flat)
"""``c``, which follows the last values; what every other family has to beat."""

# ----------------------------------------------------------------------
# Optimus: what is left falls as one over the work.


def _basis_inverse_linear(
    work: NDArray[np.float64], shapes: NDArray[np.float64]
) -> NDArray[np.float64]:
    (late,) = shapes.T[:, :, None]
    return np.asarray(late / (work + late))


INVERSE_LINEAR = Family(
    "inverse linear", 3, grid(np.geomspace(0.003, 5, 32)), _basis_inverse_linear
)
"""``c + gain * s / (k + s)``: ``1 / (a * k + b) + c`` of Optimus (EuroSys 2018)."""

# ----------------------------------------------------------------------
# SLAQ: what is left falls as one over a square of the work.


def _basis_inverse_quadratic(
    work: NDArray[np.float64], shapes: NDArray[np.float64]
) -> NDArray[np.float64]:
    late, bend = shapes.T[:, :, None]
    return np.asarray(late / (late + (1 - bend) * work + bend * work**2))


INVERSE_QUADRATIC = Family(
    "inverse quadratic",
    4,
    grid(np.geomspace(0.003, 5, 16), np.linspace(0, 1, 5)),
    _basis_inverse_quadratic,
)
"""``1 / (a * k ** 2 + b * k + c) + d`` of SLAQ (SoCC 2017), all 0 or more."""

# ----------------------------------------------------------------------
# The power law: every further gain takes a multiple of the work.


def _basis_power(
    work: NDArray[np.float64], shapes: NDArray[np.float64]
) -> NDArray[np.float64]:
    (alpha,) = shapes.T[:, :, None]
    return np.asarray(work**-alpha)


POWER = Family("power law", 3, grid(np.geomspace(0.05, 4, 32)), _basis_power)
"""``c + a * k ** -alpha``, as learning curves of many kinds are found to go."""

# ----------------------------------------------------------------------
# The power law that began some work ago, or after a start of another kind.


def _basis_shifted_power(
    work: NDArray[np.float64], shapes: NDArray[np.float64]
) -> NDArray[np.float64]:
    alpha, late = shapes.T[:, :, None]
    return np.asarray((work + late) ** -alpha)


SHIFTED_POWER = Family(
    "shifted power law",
    4,
    grid(np.geomspace(0.05, 6, 16), np.geomspace(0.01, 1, 6)),
    _basis_shifted_power,
)
"""``c + a * (k + s) ** -alpha``; Optimus is its alpha of 1."""

# ----------------------------------------------------------------------
# The families that are tried.

CURVES: tuple[Family, ...] = (
    POWER,
    EXPONENTIAL,
    INVERSE_LINEAR,
    INVERSE_QUADRATIC,
    SHIFTED_POWER,
)
KNOWN: tuple[Family, ...] = (FLAT, *CURVES)
