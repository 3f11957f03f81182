"""The classes of a window as arrays, all of them or put together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from milp.window import Holder, Holding, Window

    Vector = NDArray[np.float64]
    Places = NDArray[np.intp]


class Pool(NamedTuple):
    """Classes as arrays.

    Attributes:
        place: Of each class in the arrays, by its number.
        nodes: By place: free or held by a trainer of the window.
        life_s: [L_k] By place.
        hits: [h_k] By place and node count, the last one repeated.
    """

    place: Mapping[int, int]
    nodes: Places
    life_s: Vector
    hits: Vector

    @classmethod
    def of(cls, window: Window) -> Pool:
        """Return the classes of *window*, in the order of their numbers."""
        numbers = sorted(window.stays)
        nodes = np.array([_stock(window, k) for k in numbers], dtype=np.intp)
        life_s = np.array([window.stays[k].life_s for k in numbers], dtype=np.float64)
        hits = np.zeros((len(numbers), int(nodes.max(initial=0)) + 2))
        for place, k in enumerate(numbers):
            row = window.stays[k].hits()[: hits.shape[1]]
            hits[place, : len(row)] = row
            hits[place, len(row) :] = row[-1]
        return cls({k: place for place, k in enumerate(numbers)}, nodes, life_s, hits)

    def merged(self, most: int) -> Pool:
        """Return at most *most* classes of classes with lives close to each other.

        Each node is as good as the best of them: it lives longest, and is hit no more
        than a node of all of the least hit class. So no plan gains less, as long as no
        worth is below 0.
        """
        order = np.argsort(self.life_s, kind="stable")
        before = np.cumsum(self.nodes[order]) - self.nodes[order]
        group = np.empty(len(order), dtype=np.intp)
        group[order] = most * before // max(1, int(self.nodes.sum()))
        used = np.unique(group)
        group = np.searchsorted(used, group)
        nodes = np.zeros(len(used), dtype=np.intp)
        np.add.at(nodes, group, self.nodes)
        life_s = np.zeros(len(used))
        np.maximum.at(life_s, group, self.life_s)
        whole = self.hits[np.arange(len(order)), self.nodes]
        each = np.full(len(used), np.inf)
        np.minimum.at(each, group, whole / np.maximum(self.nodes, 1))
        hits = np.outer(each, np.arange(int(nodes.max(initial=0)) + 2)).astype(
            np.float64
        )
        place = {k: int(group[own]) for k, own in self.place.items()}
        return Pool(place, nodes, life_s, hits)

    def fresh(self, trainer: Holder) -> Vector:
        """Return [s_jk] by place; of classes put together the least."""
        row = np.ones(len(self.nodes))
        for k, share in trainer.fresh.items():
            row[self.place[k]] = min(row[self.place[k]], share)
        return row

    def row(self, holding: Holding) -> Places:
        """Return nodes by place, zeros among them."""
        row = np.zeros(len(self.nodes), dtype=np.intp)
        for k, nodes in holding.items():
            row[self.place[k]] += nodes
        return row

    def rows(self, plan: Sequence[Holding]) -> Places:
        """Return nodes by trainer and place, zeros among them."""
        rows = [self.row(own) for own in plan]
        return np.array(rows, dtype=np.intp).reshape(len(plan), len(self.nodes))

    def holdings(self, counts: Sequence[Sequence[int]]) -> tuple[Holding, ...]:
        """Return the plan of *counts*, by trainer and place."""
        return tuple(
            {k: row[place] for k, place in self.place.items() if row[place]}
            for row in counts
        )


def _stock(window: Window, k: int) -> int:
    held = sum([one.held.get(k, 0) for one in window.trainers])
    return window.free.get(k, 0) + held
