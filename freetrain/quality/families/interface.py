"""What a family of curves is to those who fit it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Family(Protocol):
    """Curves ``floor + gain * basis(work; shape)`` with a gain of 0 or more.

    The basis falls towards 0 as work grows, so a curve only ever gets better and has
    an end. Floor and gain are linear and never searched for: given a shape, they
    follow (variable projection, Golub and Pereyra 1973).

    Attributes:
        name: What people are told was chosen.
        parameters: Numbers that a fit is free to choose, floor and gain included.
        shapes: Where the search starts: shapes to try, shape (g, parameters - 2),
            its rows ordered as a grid; its columns' extremes are the bounds.
    """

    name: str
    parameters: int

    @property
    def shapes(self) -> NDArray[np.float64]:
        """Shapes to try."""
        ...

    def basis(
        self, work: NDArray[np.float64], shapes: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the basis of each shape.

        Args:
            work: Above 0, shape (n,).
            shapes: Shape (g, parameters - 2).

        Returns:
            Shape (g, n), finite, 0 or more.
        """
        ...
