"""The planning problem, the gain of a plan, and checks of both.

A class of nodes has a capacity in *units*, and a trainer takes *leases* of a width of
its own in it. A whole node is a unit and a lease, unless widths say otherwise; where
nodes are shared a unit is a GPU. Every solver takes a :class:`Problem` and returns a
:class:`~milp.answer.Plan`. The checks are plain Python and share with the solvers
nothing but the objective's definition. Symbols in brackets and numbered constraints are
those of docs/reference/model.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from milp.answer import MalformedProblemError, Plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """A trainer's worth by count of nodes (leases), and the counts that it can use.

    Compared and hashed by identity, so that solvers can cache by it. May be non-concave
    and non-monotone.

    Attributes:
        value_per_s: [O_j] Objective units a second at 0 .. max nodes, float64,
            read-only; entry 0 is 0.
        sizes: Node counts above 0 that the trainer can use, ascending; its
            smallest and largest are [Nmin_j] and [Nmax_j].
    """

    value_per_s: NDArray[np.float64]
    sizes: tuple[int, ...]


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

    For a trainer that cannot run on one node, over the per-node throughput on its
    smallest size, as if it scaled linearly up to there.

    Raises:
        MalformedProblemError: The throughput on the smallest size is not above 0.
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


@dataclass(slots=True)
class NodeClass:
    """Idle nodes, or blocks of nodes, that are alike to the planner.

    The planner counts units and places no lease. So where leases share nodes, the
    caller makes the classes such that any counts within capacity can be packed. It cuts
    nodes into blocks, each held lease being a block of its own, and puts blocks of one
    size into a class. Only trainers whose width divides that size may use the class,
    and of the widths that are used there each divides the next.

    Attributes:
        name: For messages and reports.
        nodes: Units of capacity now, held and free, 0 or more: nodes, or GPUs where
            nodes are shared.
        life_s: How long they are expected to stay idle.
    """

    name: str
    nodes: int
    life_s: float = math.inf


@dataclass(frozen=True, slots=True, eq=False)
class ProblemTrainer:
    """A trainer of a planning problem.

    Compared and hashed by identity, so that solvers can keep plans by it.

    Attributes:
        name: Unique in the problem.
        curve: [O_j] Its worth by count of leases.
        held: [C_jk] Leases it holds now, by class; all of them on idle nodes.
        up_s: [Rup_j] Seconds of its present worth that growing costs.
        down_s: [Rdw_j] Seconds of its present worth that shrinking costs.
        start_s: [Rst_j] Seconds of its new worth that starting from 0 costs.
        usable: Classes it may use, by index; None for all.
        widths: [w_jk] Units that one lease takes, by class; None for one of each.
    """

    name: str
    curve: Curve
    held: tuple[int, ...]
    up_s: float
    down_s: float
    start_s: float = 0.0
    usable: frozenset[int] | None = None
    widths: tuple[int, ...] | None = None

    def width(self, k: int) -> int:
        """Return the units of class *k* that one lease takes."""
        return 1 if self.widths is None else self.widths[k]


@dataclass(slots=True)
class Problem:
    """Which trainer gets how many leases of which class, for the next t_fwd.

    Attributes:
        classes: [K] Node classes.
        trainers: [J] Trainers; a plan has a row for each, in this order.
        t_fwd_s: [T_fwd] Look-ahead over which a plan's gain is counted, seconds.
    """

    classes: tuple[NodeClass, ...]
    trainers: tuple[ProblemTrainer, ...]
    t_fwd_s: float


def as_one_class(problem: Problem) -> Problem:
    """Return *problem* as if its nodes were all alike and any trainer could use each.

    A trainer's leases are all as wide as its narrowest. No plan of *problem* gains more
    than the best plan of this one.
    """
    nodes = sum(known.nodes for known in problem.classes)
    trainers = [
        replace(
            trainer, held=(sum(trainer.held),), usable=None, widths=_narrowest(trainer)
        )
        for trainer in problem.trainers
    ]
    return Problem((NodeClass("any", nodes),), tuple(trainers), problem.t_fwd_s)


def _narrowest(trainer: ProblemTrainer) -> tuple[int] | None:
    """Return the least width of the classes that it may use or has leases in."""
    if trainer.widths is None:
        return None
    is_its = [
        held > 0 or trainer.usable is None or k in trainer.usable
        for k, held in enumerate(trainer.held)
    ]
    return (min(compress(trainer.widths, is_its), default=1),)


SOLVER_TOLERANCE = 1e-6
"""Relative; what solvers call optimal may lie this far under the optimum."""


def gain(trainer: ProblemTrainer, nodes: int, t_fwd_s: float) -> float:
    """Return the gain of *trainer* over the look-ahead by running on *nodes*.

    It earns its worth for the whole look-ahead, less the work that it misses during a
    change; C is the count it holds now::

        T_fwd O(n) - O(C) (Rup [n > C] + Rdw [n < C]) - [C = 0] Rst O(n)

    Args:
        trainer: Before the decision.
        nodes: Leases after it, 0 to wait; at most the curve's end.
        t_fwd_s: Look-ahead.

    Returns:
        Objective units; below 0 where the change costs more than the work is worth.

    Source:
        Objective of BFTrainer (arXiv:2106.12091) as its authors coded it, where
        Rst is 0.
    """
    held = sum(trainer.held)
    worth = trainer.curve.value_per_s
    change_s = 0.0
    if nodes > held:
        change_s = trainer.up_s
    elif nodes < held:
        change_s = trainer.down_s
    value = t_fwd_s * worth.item(nodes) - worth.item(held) * change_s
    return value - trainer.start_s * worth.item(nodes) if held == 0 else value


def gains(trainer: ProblemTrainer, t_fwd_s: float) -> NDArray[np.float64]:
    """Return the gain at every node count, ``-inf`` where it is not allowed.

    The same as :func:`gain` to the last bit.

    Returns:
        Shape (max nodes + 1,), read-only, at 0 .. max nodes.
    """
    worth = trainer.curve.value_per_s
    held = sum(trainer.held)
    counts = np.arange(len(worth))
    change_s = np.where(
        counts > held, trainer.up_s, np.where(counts < held, trainer.down_s, 0.0)
    )
    row: NDArray[np.float64] = t_fwd_s * worth - worth[held] * change_s
    if held == 0:
        row -= trainer.start_s * worth
    allowed = np.zeros(len(worth), dtype=bool)
    allowed[[0, *trainer.curve.sizes]] = True
    row[~allowed] = -np.inf
    row.flags.writeable = False
    return row


def total(gain_by_trainer: Sequence[float]) -> float:
    """Add gains up in the trainers' order, so that all solvers round alike."""
    summed = 0.0
    for gained in gain_by_trainer:
        summed += gained
    return summed


def plan_gain(problem: Problem, counts: Sequence[Sequence[int]]) -> float:
    """Return the objective value of *counts*, shape (trainers, classes)."""
    return total(
        [
            gain(trainer, sum(row), problem.t_fwd_s)
            for trainer, row in zip(problem.trainers, counts, strict=True)
        ]
    )


def keep(problem: Problem) -> Plan:
    """Return the plan of the counts held now; it breaks no constraint.

    A trainer that cannot run on its nodes (it lost some, or may no longer use them)
    falls back to its largest size below, and gives up the shortest-lived classes first.
    """
    lives_s = [node_class.life_s for node_class in problem.classes]
    counts = tuple([_kept(trainer, lives_s) for trainer in problem.trainers])
    gain = plan_gain(problem, counts)
    return Plan(counts, gain, max(gain, loose_bound(problem)))


def loose_bound(problem: Problem) -> float:
    """Return the gain if every trainer had its best size."""
    return total([float(gains(t, problem.t_fwd_s).max()) for t in problem.trainers])


def _kept(trainer: ProblemTrainer, lives_s: Sequence[float]) -> tuple[int, ...]:
    usable = range(len(lives_s)) if trainer.usable is None else trainer.usable
    kept = [n if index in usable else 0 for index, n in enumerate(trainer.held)]
    fitting = [size for size in trainer.curve.sizes if size <= sum(kept)]
    surplus = sum(kept) - max(fitting, default=0)
    return tuple(drop(kept, surplus, [-life_s for life_s in lives_s]))


def drop(counts: Sequence[int], surplus: int, price: Sequence[float]) -> list[int]:
    """Take *surplus* leases, at most all, out of *counts*, dearest classes first.

    Of classes that are equally dear the one named last gives first.
    """
    left = list(counts)
    for index in sorted(range(len(left)), key=lambda k: (-price[k], -k)):
        given_up = min(surplus, left[index])
        left[index] -= given_up
        surplus -= given_up
    return left


# A claimed gain may add up in another order than ours.
_RELATIVE_ROUNDING = 1e-9


def violations(problem: Problem, plan: Plan) -> tuple[str, ...]:
    """Return a sentence for each constraint that *plan* breaks.

    Whole counts (M1), sizes (M2), capacity (M3), no migration (M4), usable classes
    (M5), and the claimed gain and bound (M6).
    """
    broken = constraint_violations(problem, plan.counts)
    return broken or tuple(_wrong_gain(problem, plan))


def constraint_violations(
    problem: Problem, counts: Sequence[Sequence[int]]
) -> tuple[str, ...]:
    """Return a sentence for each of M1 to M5 that *counts* break, of any shape."""
    misshapen = tuple(_misshapen(problem, counts))
    if misshapen:
        return misshapen
    per_trainer = [
        broken
        for trainer, row in zip(problem.trainers, counts, strict=True)
        for broken in _trainer_violations(trainer, row)
    ]
    return (*per_trainer, *_over_capacity(problem, counts))


def _misshapen(problem: Problem, counts: Sequence[Sequence[int]]) -> Iterator[str]:
    """M1: a whole number, 0 or more, for each trainer and class."""
    if len(counts) != len(problem.trainers):
        yield f"M1: {len(counts)} rows for {len(problem.trainers)} trainers"
        return
    classes = len(problem.classes)
    for trainer, row in zip(problem.trainers, counts, strict=True):
        if len(row) != classes:
            yield f"M1: {trainer.name}: {len(row)} counts for {classes} classes"
        for count in row:
            if type(count) is not int or count < 0:
                yield f"M1: {trainer.name}: {count!r} is not a whole number of nodes"


def _trainer_violations(trainer: ProblemTrainer, row: Sequence[int]) -> list[str]:
    broken = []
    nodes = sum(row)
    if nodes != 0 and not is_size(nodes, trainer.curve.sizes):
        broken.append(f"M2: {trainer.name}: {nodes} nodes is not a size it can use")
    if row == trainer.held and trainer.usable is None:
        return broken  # quick, as most trainers keep their nodes
    held = sum(trainer.held)
    for index, (count, before) in enumerate(zip(row, trainer.held, strict=True)):
        if (nodes >= held and count < before) or (nodes <= held and count > before):
            broken.append(
                f"M4: {trainer.name}: goes from {held} to {nodes} nodes, but from "
                f"{before} to {count} in class {index}"
            )
        if count > 0 and trainer.usable is not None and index not in trainer.usable:
            broken.append(
                f"M5: {trainer.name}: {count} nodes of class {index}, not usable"
            )
    return broken


def is_size(nodes: int, sizes: Sequence[int]) -> bool:
    """Tell whether *nodes* is one of *sizes*, which ascend."""
    index = bisect_left(sizes, nodes)
    return index < len(sizes) and sizes[index] == nodes


def _over_capacity(problem: Problem, counts: Sequence[Sequence[int]]) -> Iterator[str]:
    for index, node_class in enumerate(problem.classes):
        given = units_used(problem, counts, index)
        if given > node_class.nodes:
            yield (
                f"M3: {given} nodes given of class {node_class.name}, which has "
                f"{node_class.nodes}"
            )


def units_used(problem: Problem, counts: Sequence[Sequence[int]], k: int) -> int:
    """Return the units of class *k* that leases of *counts* take."""
    return sum(
        [
            row[k] * trainer.width(k)
            for trainer, row in zip(problem.trainers, counts, strict=True)
        ]
    )


def _wrong_gain(problem: Problem, plan: Plan) -> Iterator[str]:
    gain = plan_gain(problem, plan.counts)
    if not math.isclose(gain, plan.gain, rel_tol=_RELATIVE_ROUNDING, abs_tol=1e-9):
        yield f"M6: claims a gain of {plan.gain!r}, but its counts gain {gain!r}"
    slack = _RELATIVE_ROUNDING * abs(plan.gain) + 1e-9
    if not plan.bound >= plan.gain - slack:
        yield f"M6: claims the bound {plan.bound!r} under its gain {plan.gain!r}"


def check_problem(problem: Problem) -> None:
    """Refuse a problem that contradicts itself.

    Raises:
        MalformedProblemError: Counts or widths of the wrong length or sign, more
            nodes held than there are or than the curve reaches, times that are
            negative or not finite, two trainers of one name.
    """
    faults = tuple(_faults(problem))
    if faults:
        raise MalformedProblemError(
            f"the planning problem contradicts itself: {'; '.join(faults)}. "
            f"Nothing was planned."
        )


def _faults(problem: Problem) -> Iterator[str]:
    if not 0.0 <= problem.t_fwd_s < math.inf:
        yield f"a look-ahead of {problem.t_fwd_s} s"
    if len({trainer.name for trainer in problem.trainers}) < len(problem.trainers):
        yield "two trainers have one name"
    classes = len(problem.classes)
    for trainer in problem.trainers:
        if fault := _held_fault(trainer, classes):
            yield fault
        if fault := _width_fault(trainer, classes):
            yield fault
        if fault := _cost_fault(trainer):
            yield fault
    for index, node_class in enumerate(problem.classes):
        held = sum(
            [
                t.held[index] * t.width(index)
                for t in problem.trainers
                if index < len(t.held) and not _width_fault(t, classes)
            ]
        )
        if not 0 <= held <= node_class.nodes:
            yield f"class {node_class.name}: {held} of {node_class.nodes} nodes held"


def _held_fault(trainer: ProblemTrainer, classes: int) -> str:
    held = trainer.held
    if len(held) != classes or (held and min(held) < 0):
        return f"{trainer.name} holds {held} of {classes} classes"
    if sum(held) >= len(trainer.curve.value_per_s):
        return f"{trainer.name} holds more nodes than its curve reaches"
    return ""


def _width_fault(trainer: ProblemTrainer, classes: int) -> str:
    widths = trainer.widths
    if widths is None or (len(widths) == classes and min(widths, default=1) >= 1):
        return ""
    return f"{trainer.name} has widths {widths} for {classes} classes"


def _cost_fault(trainer: ProblemTrainer) -> str:
    up_s, down_s, start_s = trainer.up_s, trainer.down_s, trainer.start_s
    if (
        0.0 <= up_s < math.inf
        and 0.0 <= down_s < math.inf
        and 0.0 <= start_s < math.inf
    ):
        return ""
    return f"{trainer.name} has costs of {(up_s, down_s, start_s)} s"
