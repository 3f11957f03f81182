"""What the exact solver derives from curves, kept between two calls.

A replay asks for the same few gains again and again: a curve, a count held and
three costs make a row. Rows lie in one matrix, so that the rows of a problem
are one gather.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from milp.objective import gains
from milp.relaxation import hull_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from milp.problem import Curve, Problem, TrainerState
    from milp.relaxation import Hull

# 32 MB; a replay of one log uses a few hundred rows of some hundred sizes.
_MOST_CELLS = 1 << 22

_Key = tuple["Curve", tuple[int, ...], float, float, float, bool]


class RowTable:
    """Gains and hulls by trainer state, for one look-ahead at a time; bounded."""

    def __init__(self) -> None:
        self._clear(t_fwd_s=0.0, sizes=1)

    def rows_of(self, problem: Problem) -> tuple[NDArray[np.float64], list[Hull]]:
        """Return gains, shape (trainers, sizes), and hulls of *problem*'s trainers.

        Sizes run from 0 to the largest that any of its trainers allows.
        """
        sizes = max([len(t.curve.value_per_s) for t in problem.trainers], default=1)
        if (
            problem.t_fwd_s != self._t_fwd_s
            or sizes > self._gains.shape[1]
            or self._gains.size > _MOST_CELLS
        ):
            self._clear(t_fwd_s=problem.t_fwd_s, sizes=max(sizes, self._gains.shape[1]))
        indices = [self._index(trainer) for trainer in problem.trainers]
        rows = self._gains[indices, :sizes]
        return rows, [self._hulls[index] for index in indices]

    def _clear(self, *, t_fwd_s: float, sizes: int) -> None:
        self._t_fwd_s = t_fwd_s
        self._index_by_key: dict[_Key, int] = {}
        self._hulls: list[Hull] = []
        self._gains = np.full((64, sizes), -np.inf)

    def _index(self, trainer: TrainerState) -> int:
        usable = trainer.usable is None or 0 in trainer.usable
        key = (
            trainer.curve,
            trainer.held,
            trainer.up_s,
            trainer.down_s,
            trainer.start_s,
            usable,
        )
        index = self._index_by_key.get(key)
        return self._add(trainer, key) if index is None else index

    def _add(self, trainer: TrainerState, key: _Key) -> int:
        usable = key[-1]
        row = gains(trainer, self._t_fwd_s)[: None if usable else 1]
        index = len(self._hulls)
        if index == len(self._gains):
            self._gains = np.vstack((self._gains, np.full_like(self._gains, -np.inf)))
        self._gains[index, : len(row)] = row
        self._hulls.append(hull_of(row))
        self._index_by_key[key] = index
        return index
