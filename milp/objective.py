"""The gain of a plan (docs/model.md, M0)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from milp.problem import Problem, TrainerState


def gain(trainer: TrainerState, nodes: int, t_fwd_s: float) -> float:
    """Return what *trainer* gains over the look-ahead by running on *nodes*.

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


def gains(trainer: TrainerState, t_fwd_s: float) -> NDArray[np.float64]:
    """Return the gain at every node count, ``-inf`` where it is not allowed.

    To the last bit what :func:`gain` returns. A trainer that may use no class is
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
    for one in gain_by_trainer:
        summed += one
    return summed


def plan_gain(problem: Problem, counts: Sequence[Sequence[int]]) -> float:
    """Return the objective value of *counts*, shape (trainers, classes)."""
    return total(
        [
            gain(trainer, sum(row), problem.t_fwd_s)
            for trainer, row in zip(problem.trainers, counts, strict=True)
        ]
    )
