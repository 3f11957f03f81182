"""What a family of curves is to those who fit it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

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
