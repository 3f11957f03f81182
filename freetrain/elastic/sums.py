"""Sums over a batch that are the same to the last bit in every world.

Floating-point sums depend on the order of adding. Here the order is a binary tree over
the chunks of the batch, the same in every world: a rank adds up the largest subtrees
that lie in its share, the ranks exchange them, and each finishes the tree for a slice
of the numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from freetrain.elastic.errors import ProgramError
from freetrain.elastic.sampler import share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from freetrain.elastic.sampler import Batch, Chunk
    from freetrain.elastic.world import World

Sums: TypeAlias = tuple[Any, ...]
Flat: TypeAlias = "NDArray[np.float64]"


def sum_exactly(
    world: World, batch: Batch, sums_of: Callable[[Chunk], Sums]
) -> tuple[NDArray[Any], ...]:
    """Sum what *sums_of* returns over the chunks of *batch*; collective.

    Args:
        world: The ranks that share the batch.
        batch: The batch, the same on all ranks.
        sums_of: Returns floats and float arrays, each a sum over the chunk's
            samples, of the same shapes for every chunk. Called for this rank's
            chunks, and once for nothing by a rank that has none: it must have no
            side effect.

    Returns:
        One float64 array for each of them, the sum over the whole batch.

    Raises:
        ProgramError: Shapes differ from chunk to chunk, or are not of numbers.
    """
    count = len(batch.chunks)
    first, end = share(count, world.rank, size=world.size)
    layout = _Layout()

    def leaf(lo: int, hi: int) -> Flat | None:
        return layout.flatten(sums_of(batch.chunks[lo])) if hi - lo == 1 else None

    if first == end:
        layout.flatten(sums_of(batch.chunks[0]))
    mine = [_fold(lo, hi, leaf) for lo, hi in _subtrees(0, count, first, end)]
    return layout.restore(_combine(world, mine, count, layout.length))


def sum_quickly(
    world: World, batch: Batch, sums_of: Callable[[Chunk], Sums]
) -> tuple[NDArray[Any], ...]:
    """As :func:`sum_exactly`, by one plain allreduce and one call a rank.

    The same within rounding only; in another world the last bits differ, and
    training makes such differences grow.
    """
    layout = _Layout()
    own = batch.mine
    if len(own.indices):
        part = layout.flatten(sums_of(own))
    else:
        part = np.zeros_like(layout.flatten(sums_of(batch.chunks[0])))
    return layout.restore(world.total(part))


class _Layout:
    """The shapes of one chunk's sums, and how they lie in a flat array."""

    def __init__(self) -> None:
        self.length = 0
        self._shapes: list[tuple[int, ...]] | None = None

    def flatten(self, sums: Sums) -> Flat:
        arrays = [np.asarray(value, dtype=np.float64) for value in sums]
        shapes = [array.shape for array in arrays]
        if self._shapes not in (None, shapes):
            raise ProgramError(
                f"the function given to sum() returned shapes {shapes} for one chunk "
                f"and {self._shapes} for another; they must be the same."
            )
        self._shapes = shapes
        flat = np.concatenate([array.ravel() for array in arrays])
        self.length = len(flat)
        return flat

    def restore(self, flat: Flat) -> tuple[NDArray[Any], ...]:
        shapes = self._shapes or []
        edges = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
        parts = np.split(flat, edges)
        return tuple(part.reshape(s) for part, s in zip(parts, shapes, strict=True))


def _subtrees(lo: int, hi: int, first: int, end: int) -> Iterator[tuple[int, int]]:
    """The largest subtrees of the tree over lo .. hi within first .. end, in order."""
    if first <= lo and hi <= end:
        yield lo, hi
    elif lo < end and first < hi:
        middle = _middle(lo, hi)
        yield from _subtrees(lo, middle, first, end)
        yield from _subtrees(middle, hi, first, end)


def _middle(lo: int, hi: int) -> int:
    # The largest power of two below the length: shares of a power-of-two world
    # are then whole subtrees.
    return lo + (1 << ((hi - lo - 1).bit_length() - 1))


def _fold(lo: int, hi: int, known: Callable[[int, int], Flat | None]) -> Flat:
    """The sum over lo .. hi along the tree, from the subtrees that are known.

    Leaves are asked for one after the other, so that only one sum for every level
    of the tree is in memory.
    """
    found = known(lo, hi)
    if found is not None:
        return found
    middle = _middle(lo, hi)
    left = _fold(lo, middle, known)
    # In place: every part is used once, and fresh pages cost more than the adding.
    left += _fold(middle, hi, known)
    return left


def _combine(world: World, mine: Sequence[Flat], count: int, length: int) -> Flat:
    """Exchange the subtrees' sums, finish the tree for one slice, gather slices."""
    if world.size == 1:
        return mine[0]
    slices = [share(length, rank, size=world.size) for rank in range(world.size)]
    trees = [
        list(_subtrees(0, count, *share(count, rank, size=world.size)))
        for rank in range(world.size)
    ]
    nothing = np.empty(0)
    blocks = [np.concatenate([nothing, *(s[a:b] for s in mine)]) for a, b in slices]
    a, b = slices[world.rank]
    received = world.exchange(blocks, [len(t) * (b - a) for t in trees])
    known = {
        tree: part
        for theirs, block in zip(trees, received, strict=True)
        for tree, part in zip(theirs, block.reshape(len(theirs), b - a), strict=True)
    }

    def received_sum(lo: int, hi: int) -> Flat | None:
        return known.get((lo, hi))

    whole = _fold(0, count, received_sum)
    return world.gather_everywhere(whole, [b - a for a, b in slices])
