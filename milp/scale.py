"""How gains are scaled for solvers, whose tolerances are absolute."""

from __future__ import annotations

_LARGEST_GAIN = 1e4
_NOTHING = 1e-200


def scale_of(largest: float) -> float:
    """Return what gains are multiplied by so that the largest is 10,000.

    Args:
        largest: The largest absolute gain. What is next to nothing stays as it is: the
            quotient would be infinite, which no program takes.
    """
    return _LARGEST_GAIN / largest if largest > _NOTHING else 1.0
