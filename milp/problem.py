"""The planning problem, its answer, and curves of a trainer's worth by node count.

Every solver takes a :class:`Problem` and returns a :class:`Plan`. Symbols in brackets
are those of docs/reference/model.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from milp.errors import MalformedProblemError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """A trainer's worth by node count, and the counts that it can use.

    Compared and hashed by identity, so that solvers may keep what they derive
    from a curve between two calls. May be non-concave and non-monotone.

    Attributes:
        value_per_s: [O_j] Objective units a second at 0 .. max nodes, float64,
            read-only; entry 0 is 0.
        sizes: Node counts above 0 that the trainer can use, ascending; its
            smallest and largest are [Nmin_j] and [Nmax_j].
    """

    value_per_s: NDArray[np.float64]
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NodeClass:
    """Idle nodes that the planner need not tell apart.

    Attributes:
        name: For messages and reports.
        nodes: How many there are now, 0 or more.
        life_s: How long they are expected to stay idle, seconds.
    """

    name: str
    nodes: int
    life_s: float = math.inf


@dataclass(frozen=True, slots=True)
class ProblemTrainer:
    """A trainer as the planner sees it.

    Attributes:
        name: Unique in the problem.
        curve: [O_j] Its worth by node count.
        held: [C_jk] Nodes it holds now, by class; all of them still idle.
        up_s: [Rup_j] Seconds of its present worth that growing costs.
        down_s: [Rdw_j] Seconds of its present worth that shrinking costs.
        start_s: [Rst_j] Seconds of its new worth that starting from 0 costs.
        usable: Classes it may use, by index; None for all.
    """

    name: str
    curve: Curve
    held: tuple[int, ...]
    up_s: float
    down_s: float
    start_s: float = 0.0
    usable: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Which trainer gets how many nodes of which class, for the next t_fwd.

    Attributes:
        classes: [K] Node classes.
        trainers: [J] Trainers; a plan has a row for each, in this order.
        t_fwd_s: [T_fwd] Look-ahead over which a plan's gain is counted, seconds.
    """

    classes: tuple[NodeClass, ...]
    trainers: tuple[ProblemTrainer, ...]
    t_fwd_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """An answer to a problem.

    Attributes:
        counts: [x_jk] Nodes by trainer (rows, in the problem's order) and class.
        gain: Objective value, in objective units over t_fwd.
        bound: The best value that any plan can have, as far as proven; equal to
            ``gain`` where the plan is proven optimal.
    """

    counts: tuple[tuple[int, ...], ...]
    gain: float
    bound: float


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


SOLVER_TOLERANCE = 1e-6
"""Relative; what solvers call optimal may lie this far under the optimum."""

_LARGEST_GAIN = 1e4
_NOTHING = 1e-200


def scale_of(largest: float) -> float:
    """Return what gains are multiplied by so that the largest is 10,000.

    Args:
        largest: The largest absolute gain. What is next to nothing stays as it is: the
            quotient would be infinite, which no program takes.
    """
    return _LARGEST_GAIN / largest if largest > _NOTHING else 1.0
