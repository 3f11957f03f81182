"""The gain of a plan, the plan that changes nothing, and checks of both.

The checks are plain Python, whatever a solver claimed: they share with the solvers
nothing but the objective's definition. Numbers are those of docs/reference/model.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from milp.errors import MalformedProblemError
from milp.problem import Plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from milp.problem import Problem, ProblemTrainer


def gain(trainer: ProblemTrainer, nodes: int, t_fwd_s: float) -> float:
    """Return the gain of *trainer* over the look-ahead by running on *nodes*.

    The trainer earns its steady worth for the whole look-ahead and pays for a
    change in work it does not do meanwhile; C is the count it holds now::

        T_fwd O(n) - O(C) (Rup [n > C] + Rdw [n < C]) - [C = 0] Rst O(n)

    Args:
        trainer: The trainer as it stands.
        nodes: Nodes after the decision, 0 to wait; at most the curve's end.
        t_fwd_s: Look-ahead, seconds.

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

    The same as :func:`gain` to the last bit. A trainer that may use no class is
    allowed 0 nodes only.

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
    """Add gains up in the trainers' order, as every solver here does."""
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
    """Return the counts held now.

    A trainer that cannot run on what it holds (it lost nodes, or may no longer
    use them) falls back to its largest size below; it gives up the shortest-lived
    classes first.

    Returns:
        A plan that breaks no constraint; its bound is :func:`loose_bound`.
    """
    lives_s = [node_class.life_s for node_class in problem.classes]
    counts = tuple([_kept(trainer, lives_s) for trainer in problem.trainers])
    gain = plan_gain(problem, counts)
    return Plan(counts, gain, max(gain, loose_bound(problem)))


def loose_bound(problem: Problem) -> float:
    """Return the gain if every trainer had its best size, as if nodes abounded."""
    return total([float(gains(t, problem.t_fwd_s).max()) for t in problem.trainers])


def _kept(trainer: ProblemTrainer, lives_s: Sequence[float]) -> tuple[int, ...]:
    usable = range(len(lives_s)) if trainer.usable is None else trainer.usable
    kept = [n if index in usable else 0 for index, n in enumerate(trainer.held)]
    fitting = [size for size in trainer.curve.sizes if size <= sum(kept)]
    surplus = sum(kept) - max(fitting, default=0)
    return tuple(drop(kept, surplus, [-life_s for life_s in lives_s]))


def drop(counts: Sequence[int], surplus: int, price: Sequence[float]) -> list[int]:
    """Take *surplus* nodes out of *counts*, dearest classes first.

    Args:
        counts: Nodes by class.
        surplus: Nodes to give up, at most all.
        price: Of a node of each class.
    """
    left = list(counts)
    for index in sorted(range(len(left)), key=lambda k: (-price[k], k)):
        given_up = min(surplus, left[index])
        left[index] -= given_up
        surplus -= given_up
    return left


# A claimed gain may add up in another order than ours.
_RELATIVE_ROUNDING = 1e-9


def violations(problem: Problem, plan: Plan) -> tuple[str, ...]:
    """Return what is wrong with *plan*, one sentence for each broken constraint.

    Every constraint of docs/reference/model.md is checked: whole counts (M1), sizes
    (M2), capacity (M3), no migration (M4), usable classes (M5), and the claimed gain
    and bound (M6).

    Returns:
        Empty for a sound plan.
    """
    broken = constraint_violations(problem, plan.counts)
    return broken or tuple(_wrong_gain(problem, plan))


def constraint_violations(
    problem: Problem, counts: Sequence[Sequence[int]]
) -> tuple[str, ...]:
    """Return which of M1 to M5 *counts* break, shape (trainers, classes) or not."""
    misshapen = tuple(_misshapen(problem, counts))
    if misshapen:
        return misshapen
    per_trainer = [
        broken
        for trainer, row in zip(problem.trainers, counts, strict=True)
        for broken in _trainer_violations(trainer, row)
    ]
    return (*per_trainer, *_over_capacity(problem, counts))


def check_problem(problem: Problem) -> None:
    """Refuse a problem that contradicts itself.

    Raises:
        MalformedProblemError: Counts of the wrong length or sign, more nodes held
            than there are or than the curve reaches, times that are negative or
            not finite, two trainers of one name.
    """
    faults = tuple(_faults(problem))
    if faults:
        raise MalformedProblemError(
            f"the planning problem contradicts itself: {'; '.join(faults)}. "
            f"Nothing was planned."
        )


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
        return broken  # most trainers keep what they hold; a replay plans often
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
        given = sum([row[index] for row in counts])
        if given > node_class.nodes:
            yield (
                f"M3: {given} nodes given of class {node_class.name}, which has "
                f"{node_class.nodes}"
            )


def _wrong_gain(problem: Problem, plan: Plan) -> Iterator[str]:
    gain = plan_gain(problem, plan.counts)
    if not math.isclose(gain, plan.gain, rel_tol=_RELATIVE_ROUNDING, abs_tol=1e-9):
        yield f"M6: claims a gain of {plan.gain!r}, but its counts gain {gain!r}"
    slack = _RELATIVE_ROUNDING * abs(plan.gain) + 1e-9
    if not plan.bound >= plan.gain - slack:
        yield f"M6: claims the bound {plan.bound!r} under its gain {plan.gain!r}"


def _faults(problem: Problem) -> Iterator[str]:
    if not 0.0 <= problem.t_fwd_s < math.inf:
        yield f"a look-ahead of {problem.t_fwd_s} s"
    if len({trainer.name for trainer in problem.trainers}) < len(problem.trainers):
        yield "two trainers have one name"
    classes = len(problem.classes)
    for trainer in problem.trainers:
        if fault := _held_fault(trainer, classes):
            yield fault
        if fault := _cost_fault(trainer):
            yield fault
    for index, node_class in enumerate(problem.classes):
        held = sum([t.held[index] for t in problem.trainers if index < len(t.held)])
        if not 0 <= held <= node_class.nodes:
            yield f"class {node_class.name}: {held} of {node_class.nodes} nodes held"


def _held_fault(trainer: ProblemTrainer, classes: int) -> str:
    held = trainer.held
    if len(held) != classes or (held and min(held) < 0):
        return f"{trainer.name} holds {held} of {classes} classes"
    if sum(held) >= len(trainer.curve.value_per_s):
        return f"{trainer.name} holds more nodes than its curve reaches"
    return ""


def _cost_fault(trainer: ProblemTrainer) -> str:
    up_s, down_s, start_s = trainer.up_s, trainer.down_s, trainer.start_s
    if (
        0.0 <= up_s < math.inf
        and 0.0 <= down_s < math.inf
        and 0.0 <= start_s < math.inf
    ):
        return ""
    return f"{trainer.name} has costs of {(up_s, down_s, start_s)} s"
