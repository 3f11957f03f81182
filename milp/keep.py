"""The plan that changes nothing: what stays when no better plan can be trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milp.objective import gains, plan_gain, total
from milp.problem import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from milp.problem import Problem, TrainerState


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


def _kept(trainer: TrainerState, lives_s: Sequence[float]) -> tuple[int, ...]:
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
        price: What a node of each class is worth to others.
    """
    left = list(counts)
    for index in sorted(range(len(left)), key=lambda k: (-price[k], k)):
        given_up = min(surplus, left[index])
        left[index] -= given_up
        surplus -= given_up
    return left
