"""What every size of every trainer gains at most, nodes of a class at a price.

The rows of the bound, of what can be left out, and of the integer program
(docs/model.md, W3): for trainer j on n nodes, M4 leaves class k a range lo .. hi,
over which h_k is bounded by its chord.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from milp.window import Holder, Window
    from milp.window_pool import Pool

    Vector = NDArray[np.float64]
    Places = NDArray[np.intp]
    _Kind = tuple[Places, Places, Places, Vector, Vector]


class Options(NamedTuple):
    """Sizes of trainers, one below the other; what they gain is linear in nodes.

    Trainers that do not differ, and hold the same, are one kind and have the same
    rows. Shapes are (rows,) and (rows, classes) if not said.

    Attributes:
        pool: The classes.
        kind: Of each trainer, (trainers,).
        first: Where each kind's rows begin, (kinds,).
        size: [n] Nodes; 0 is each kind's first.
        least: [lo] Nodes by class at least.
        room: [hi - lo] Nodes by class above that, at most.
        base: Gain of the least nodes.
        slope: Gain of each node above them, at most.
    """

    pool: Pool
    kind: Places
    first: Places
    size: Places
    least: Places
    room: Places
    base: Vector
    slope: Vector

    @property
    def ends(self) -> Places:
        """Where each kind's rows end, (kinds,)."""
        return np.append(self.first[1:], len(self.size))

    def of(self, place: int) -> Options:
        """Return the rows of trainer *place* alone."""
        kind = self.kind[place]
        is_last = kind + 1 == len(self.first)
        end = len(self.size) if is_last else self.first[kind + 1]
        rows = slice(self.first[kind], end)
        return Options(
            self.pool,
            _ONE,
            _ONE,
            self.size[rows],
            self.least[rows],
            self.room[rows],
            self.base[rows],
            self.slope[rows],
        )

    def best(self, prices: Vector) -> tuple[Vector, Places]:
        """Return what each row gains at most at *prices*, and the nodes it takes.

        Shapes (rows,) and (rows, classes); -inf where its nodes are not to be had.
        """
        net = self.slope - prices
        order = np.argsort(-net, axis=1, kind="stable")
        room = np.take_along_axis(self.room, order, axis=1)
        wanted = (self.size - self.least.sum(axis=1))[:, None]
        taken = np.clip(wanted - np.cumsum(room, axis=1) + room, 0, room)
        value = self.base - self.least @ prices
        value += (taken * np.take_along_axis(net, order, axis=1)).sum(axis=1)
        value[taken.sum(axis=1) < wanted[:, 0]] = -np.inf
        takes = self.least.copy()
        np.put_along_axis(
            takes, order, taken + np.take_along_axis(takes, order, axis=1), axis=1
        )
        return value, takes


_ONE = np.zeros(1, dtype=np.intp)


def options_of(window: Window, pool: Pool) -> Options:
    """Return all sizes of the trainers, each allowed whatever the others leave."""
    kinds: dict[object, int] = {}
    made: list[_Kind] = []
    kind = []
    for one in window.trainers:
        by_class = frozenset(one.held.items()), frozenset(one.fresh.items())
        costs = one.up_s, one.down_s, one.start_s, one.loss_s
        known = kinds.setdefault((one.curve, *by_class, *costs), len(made))
        if known == len(made):
            made.append(_rows(window, pool, one))
        kind.append(known)
    lengths = [len(rows[0]) for rows in made]
    first = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.intp)
    size, least, room, base, slope = [
        np.concatenate(column) for column in zip(*made, strict=True)
    ]
    numbered = np.array(kind, dtype=np.intp)
    return Options(pool, numbered, first, size, least, room, base, slope)


def _rows(window: Window, pool: Pool, trainer: Holder) -> _Kind:
    """Return one kind's columns of :class:`Options` from the sizes on."""
    size = np.array((0, *trainer.curve.sizes), dtype=np.intp)
    least, most = _ranges(pool, pool.row(trainer.held), size)
    held = sum(trainer.held.values())
    worth = trainer.curve.value_per_s[size]
    fresh = pool.fresh(trainer)
    hits = fresh * pool.hits[np.arange(len(pool.nodes)), least]
    rise = fresh * _rise(pool, least, most, worth)
    each_s = pool.life_s / np.maximum(size, 1)[:, None]
    loss_s = window.hit_weight * trainer.loss_s
    start_s = 0.0 if held else window.change_weight * trainer.start_s
    useful_s = (least * each_s - loss_s * hits).sum(axis=1) - start_s
    change_s = np.where(
        size > held, trainer.up_s, np.where(size < held, trainer.down_s, 0.0)
    )
    present = window.change_weight * trainer.curve.value_per_s.item(held)
    base = worth * useful_s - present * change_s
    return size, least, most - least, base, worth[:, None] * (each_s - loss_s * rise)


def _ranges(pool: Pool, held: Places, size: Places) -> tuple[Places, Places]:
    """Return the nodes by class that no migration (M4) leaves each size."""
    change = (size - held.sum())[:, None]
    least = np.where(change >= 0, held, np.maximum(0, held + change))
    most = np.where(change <= 0, held, np.minimum(pool.nodes, held + change))
    return least, np.maximum(most, least)


def _rise(pool: Pool, least: Places, most: Places, worth: Vector) -> Vector:
    """Return hits a node above the least, never more than true in the gain (W3).

    h is concave: over a range its chord lies below, and the line through its first
    node above, which is what counts where the worth is negative.
    """
    end = np.where((worth >= 0.0)[:, None], most, least + 1)
    classes = np.arange(len(pool.nodes))
    rise = pool.hits[classes, end] - pool.hits[classes, least]
    chord: Vector = rise / np.maximum(end - least, 1)
    return chord
