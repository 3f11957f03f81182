"""A planner's answer: a verified plan and how good it is, or an error.

A plan is counts of nodes; :func:`assign` turns them into node sets. This module loads
neither NumPy nor PuLP, so that what only shows or compares answers starts quickly.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import StrEnum
from heapq import nlargest
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Sequence


class MilpError(Exception):
    """The planner could not do what was asked of it."""


class MalformedProblemError(MilpError):
    """A curve or a problem breaks its own definition: tell the user."""


class SolverUnavailableError(MilpError):
    """The solver is not installed: the user installs it or chooses another."""


class SolverFailedError(MilpError):
    """A solver crashed or gave no solution: keep the plan; the next call may do."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How many nodes of which class each trainer gets.

    Attributes:
        counts: [x_jk] Nodes by trainer (rows, in the problem's order) and class.
        gain: Objective value, in objective units over t_fwd.
        bound: No plan gains more; equal to ``gain`` where the plan is proven optimal.
    """

    counts: tuple[tuple[int, ...], ...]
    gain: float
    bound: float


class PlanStatus(StrEnum):
    """How far an answer can be trusted to be the best one."""

    PROVEN = "proven optimal"
    INCUMBENT = "incumbent"
    KEPT = "kept"


class SolverStatus(StrEnum):
    """What a solver claims to have found."""

    OPTIMUM = "optimum"
    INCUMBENT = "incumbent"
    NOTHING = "nothing within the limit"
    INFEASIBLE = "infeasible"


class Judged(NamedTuple):
    """A plan's gain by the objective that it was made by.

    Attributes:
        gain: In that objective's units.
        bound: No plan gains more, in the same units.
        is_m0: Whether that objective is the problem's M0.
    """

    gain: float
    bound: float
    is_m0: bool = False


@dataclass(slots=True)
class Answer:
    """A plan that has been verified.

    Attributes:
        plan: Breaks no constraint of docs/reference/model.md.
        outcome: Proven optimal, the best found, or the present plan because nothing
            better could be trusted.
        reason: Why, where there is more to say; for people.
    """

    plan: Plan
    outcome: PlanStatus
    reason: str = ""

    @property
    def judged(self) -> Judged:
        """Its gain by M0."""
        return Judged(self.plan.gain, self.plan.bound, is_m0=True)

    @property
    def gap(self) -> float:
        """How far it is below the bound at most; see ``gap``."""
        return gap(self.plan.gain, self.plan.bound)


_ROUNDING = 1e-9
"""Share up to which a gain and its bound differ by rounding alone."""


def gap(gain: float, bound: float) -> float:
    """Return how far a plan is below its bound at most, over the larger of the two.

    ::

        (bound - gain) / max(|bound|, |gain|)

    For a plan that gains anything this is the share of the bound that it misses. It is
    over 1 where the plan loses and another may gain, and a share of the loss where all
    lose.

    Args:
        gain: Of the plan, in any unit.
        bound: No plan gains more, in the same unit.

    Returns:
        0 for a plan that is proven the best, up to 2.
    """
    scale = max(abs(bound), abs(gain))
    missing = bound - gain
    return missing / scale if missing > _ROUNDING * scale else 0.0


Node = TypeVar("Node", bound="Hashable")


def assign(
    counts: Sequence[Sequence[int]],
    held: Sequence[Collection[Node]],
    *,
    free: Iterable[Node],
    rank: Callable[[Node], Any],
    class_of: Callable[[Node], int] | None = None,
) -> tuple[frozenset[Node], ...]:
    """Choose each trainer's nodes for *counts*, without migration (M4).

    First the shrinking trainers give up their nodes of lowest rank; then the growing
    ones, in order, take the free nodes of highest rank, those just given up among
    them. Ranked by remaining life, a trainer keeps the nodes that live longest; ranked
    by node number, the result is that of the published replay.

    Args:
        counts: [x_jk] Nodes by trainer and class.
        held: Nodes that each trainer holds now.
        free: Idle nodes that no trainer holds.
        rank: Any sort key; equal ranks are taken in the order met.
        class_of: A node's class; None where there is one class only.

    Returns:
        Nodes by trainer. In each class the old and the new set are nested.

    Raises:
        MalformedProblemError: The counts ask for more free nodes than there are.
    """
    find_class = class_of or (lambda _: 0)
    pools = _by_class(free, find_class)
    mine = [_by_class(nodes, find_class) for nodes in held]
    for row, groups in zip(counts, mine, strict=True):
        for index, count in enumerate(row):
            if count < len(groups[index]):
                kept = nlargest(count, groups[index], key=rank)
                pools[index] += sorted(set(groups[index]) - set(kept), key=rank)
                groups[index] = kept
    for index in range(max(map(len, counts), default=0)):
        _grow(counts, mine, index=index, pool=pools[index], rank=rank)
    return tuple(
        frozenset(n for group in groups.values() for n in group) for groups in mine
    )


def _grow(
    counts: Sequence[Sequence[int]],
    mine: Sequence[dict[int, list[Node]]],
    *,
    index: int,
    pool: list[Node],
    rank: Callable[[Node], Any],
) -> None:
    """Serve the trainers that grow in class *index* from *pool*, in order."""
    wanted = [
        max(0, row[index] - len(groups[index]))
        for row, groups in zip(counts, mine, strict=True)
    ]
    if sum(wanted) > len(pool):
        raise MalformedProblemError(
            f"the plan needs {sum(wanted)} free nodes of class {index}, but there "
            f"are {len(pool)}. No node was assigned; plan again with fresh counts."
        )
    best = iter(nlargest(sum(wanted), pool, key=rank))
    for more, groups in zip(wanted, mine, strict=True):
        groups[index] += [next(best) for _ in range(more)]


def _by_class(
    nodes: Iterable[Node], class_of: Callable[[Node], int]
) -> dict[int, list[Node]]:
    groups: dict[int, list[Node]] = defaultdict(list)
    for node in nodes:
        groups[class_of(node)].append(node)
    return groups
