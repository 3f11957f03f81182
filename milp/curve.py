"""Curves: what a trainer's work is worth by node count.

Every curve of a problem should come from here: solvers rely on float64,
read-only values and on ascending sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from milp.errors import MalformedProblemError
from milp.problem import Curve

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray


def custom(value_per_s: ArrayLike, sizes: Iterable[int] | None = None) -> Curve:
    """Return a curve of any finite shape.

    Args:
        value_per_s: Objective units a second at 0 .. max nodes, shape (max + 1,);
            entry 0 is 0. It is copied.
        sizes: Node counts above 0 that the trainer can use, in any order; None
            for all of 1 .. max.

    Raises:
        MalformedProblemError: A value is not finite, entry 0 is not 0, or a size
            is missing from the curve.
    """
    values = np.array(value_per_s, dtype=np.float64)
    _check_values(values)
    allowed = range(1, len(values)) if sizes is None else sorted(set(sizes))
    if len(allowed) == 0 or allowed[0] < 1 or allowed[-1] >= len(values):
        raise MalformedProblemError(
            f"sizes {list(allowed)} do not fit a curve of 0 to {len(values) - 1} "
            f"nodes. Give at least one size from 1 to {len(values) - 1}."
        )
    values.flags.writeable = False
    return Curve(values, tuple(int(size) for size in allowed))


def throughput(samples_per_s: ArrayLike, sizes: Iterable[int] | None = None) -> Curve:
    """Return the curve that counts samples; arguments as for :func:`custom`."""
    return custom(samples_per_s, sizes)


def speed_up(samples_per_s: ArrayLike, sizes: Iterable[int] | None = None) -> Curve:
    """Return throughput over that of one node; arguments as for :func:`custom`.

    A trainer that cannot run on one node is measured against the per-node
    throughput on its smallest size, as if it scaled linearly up to there.

    Raises:
        MalformedProblemError: The trainer does no work on its smallest size, so
            that nothing can be measured against it.
    """
    raw = custom(samples_per_s, sizes)
    smallest = raw.sizes[0]
    one_node_per_s = raw.value_per_s[smallest] / smallest
    if one_node_per_s <= 0:
        raise MalformedProblemError(
            f"no speed-up over {smallest} nodes, where throughput is "
            f"{raw.value_per_s[smallest]:g} samples a second. Give a throughput "
            f"above 0 there, or use the throughput objective."
        )
    return custom(raw.value_per_s / one_node_per_s, raw.sizes)


def weighted(curve: Curve, weight: float) -> Curve:
    """Return *curve* with every value times *weight*, which is above 0."""
    if not weight > 0:
        raise MalformedProblemError(
            f"weight {weight:g} is not above 0. To keep a trainer from running, "
            f"leave it out of the problem."
        )
    return custom(curve.value_per_s * weight, curve.sizes)


def _check_values(values: NDArray[np.float64]) -> None:
    if values.ndim != 1 or values.size <= 1:
        raise MalformedProblemError(
            f"a curve needs one value for each of 0 to at least 1 nodes; got an "
            f"array of shape {values.shape}."
        )
    if not np.isfinite(values).all() or values[0] != 0.0:
        raise MalformedProblemError(
            "a curve's values must be finite, and 0 at 0 nodes; got "
            f"{values[0]:g} at 0 nodes, {int((~np.isfinite(values)).sum())} not finite."
        )
