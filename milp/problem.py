"""The planning problem and its answer: what every solver takes and returns.

Symbols in brackets are those of docs/model.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """What a trainer's work is worth by node count, and which counts it can use.

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
class TrainerState:
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
        trainers: [J] Trainers, in order of admission.
        t_fwd_s: [T_fwd] Look-ahead over which a plan's gain is counted, seconds.
    """

    classes: tuple[NodeClass, ...]
    trainers: tuple[TrainerState, ...]
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
