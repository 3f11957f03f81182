"""A training's batches, and sums over a batch, that are the same in every world.

Which samples make up a batch is a function of the seed (``Sampler``). A batch is cut
into chunks, and each rank works on some of them. Floating-point sums depend on the
order of adding; here it is a binary tree over the chunks (``sum_exactly``): a rank adds
up the largest subtrees that lie in its share, the ranks exchange them, and each
finishes the tree for a slice of the numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

# By name: NumPy itself loads its random numbers at first use, while a rescale waits.
from numpy.random import PCG64, Generator, Philox, SeedSequence

from freetrain.elastic.checkpoint import Position
from freetrain.elastic.contract import ProgramError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from freetrain.elastic.world import World

Sums: TypeAlias = tuple[Any, ...]
Flat: TypeAlias = "NDArray[np.float64]"


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """A piece of a batch that one rank works on by itself.

    Attributes:
        indices: Its samples, int64, in the order of the batch.
        key: Seed, epoch, first sample's offset in the epoch: the same for this
            piece in every world.
    """

    indices: NDArray[np.int64]
    key: tuple[int, int, int]

    def generator(self) -> Generator:
        """A random generator for dropout and the like; the same in every world."""
        return Generator(PCG64(SeedSequence(self.key)))


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One step's samples, over all ranks.

    Attributes:
        step: Steps done before this one since the training began.
        total_steps: Steps in the whole training, the same in every world.
        epoch: The epoch, from 0.
        last_of_epoch: Whether the epoch ends with it.
        indices: Its samples, int64, in order.
        chunks: The same, cut into the pieces that ranks work on; none is empty.
        rank: The rank that works on it.
        size: How many ranks share it.
        after: The training's position once it is done.
    """

    step: int
    total_steps: int
    epoch: int
    last_of_epoch: bool
    indices: NDArray[np.int64]
    chunks: tuple[Chunk, ...]
    rank: int
    size: int
    after: Position

    def __len__(self) -> int:
        """Samples in the batch, over all ranks."""
        return len(self.indices)

    @property
    def mine(self) -> Chunk:
        """This rank's chunks as one; empty where there are more ranks than chunks."""
        first, end = _share(len(self.chunks), self.rank, size=self.size)
        own = [chunk.indices for chunk in self.chunks[first:end]]
        empty = self.indices[:0]
        return Chunk(np.concatenate([empty, *own]), self.chunks[first].key)


def _share(count: int, rank: int, *, size: int) -> tuple[int, int]:
    """The first and the end of *rank*'s even share of *count* things in a row."""
    return rank * count // size, (rank + 1) * count // size


class Sampler:
    """Makes the batches of a training, from any position on.

    Attributes:
        samples: Samples in the data set; their indices are ``range(samples)``.
        global_batch: Samples in a step, over all ranks. The last step of an epoch
            has the rest.
        epochs: Times that every sample is used; may be raised later.
        seed: Of the order of samples.
        chunks: Pieces that a batch is cut into, and the most ranks that can share it.
    """

    def __init__(  # noqa: PLR0913  # what defines a training, and the rank's place
        self,
        *,
        samples: int,
        global_batch: int,
        epochs: int,
        seed: int = 0,
        chunks: int = 16,
        rank: int,
        size: int,
    ) -> None:
        """Take what defines the training, and the rank that works on its batches.

        Raises:
            ProgramError: A number is too small.
        """
        self.samples = samples
        self.global_batch = global_batch
        self.epochs = epochs
        self.seed = seed
        self.chunks = chunks
        least = {"samples": 1, "global_batch": 1, "epochs": 0, "seed": 0, "chunks": 1}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise ProgramError(
                    f"{name} is {getattr(self, name)} and must be {bound} or more. "
                    f"Nothing was trained."
                )
        self._rank = rank
        self._size = size
        self._epoch = -1
        self._order: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    @property
    def steps_per_epoch(self) -> int:
        """Steps in an epoch, the last and perhaps smaller one included."""
        return -(-self.samples // self.global_batch)

    @property
    def steps(self) -> int:
        """Steps in the whole training."""
        return self.epochs * self.steps_per_epoch

    def unchanging(self) -> dict[str, int]:
        """The numbers that every generation must share, as checkpoints keep them."""
        return {
            "samples": self.samples,
            "global_batch": self.global_batch,
            "seed": self.seed,
            "chunks": self.chunks,
        }

    def batch_at(self, position: Position) -> Batch | None:
        """The batch that follows *position*; None where the training is over."""
        if position.epoch >= self.epochs:
            return None
        end = min(position.offset + self.global_batch, self.samples)
        indices = self._order_of(position.epoch)[position.offset : end]
        is_last = end == self.samples
        return Batch(
            step=position.step,
            total_steps=self.steps,
            epoch=position.epoch,
            last_of_epoch=is_last,
            indices=indices,
            chunks=self._cut(indices, position),
            rank=self._rank,
            size=self._size,
            after=Position(
                step=position.step + 1,
                samples=position.samples + len(indices),
                epoch=position.epoch + is_last,
                offset=0 if is_last else end,
            ),
        )

    def _cut(self, indices: NDArray[np.int64], position: Position) -> tuple[Chunk, ...]:
        count = min(self.chunks, len(indices))
        edges = [i * len(indices) // count for i in range(count + 1)]
        return tuple(
            Chunk(
                indices[start:end],
                (self.seed, position.epoch, position.offset + start),
            )
            for start, end in pairwise(edges)
        )

    def _order_of(self, epoch: int) -> NDArray[np.int64]:
        if epoch != self._epoch:
            self._order = order_of_epoch(self.samples, self.seed, epoch)
            self._epoch = epoch
        return self._order


def order_of_epoch(samples: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Every index below *samples* once, in this seed's and epoch's order.

    Made by sorting raw bits of Philox: NumPy promises that a bit generator's stream
    never changes, but not what ``Generator.permutation`` makes of it (NEP 19), and
    half an epoch may be trained under another NumPy. 16 bytes a sample while it is
    made, 8 while it is kept.

    Returns:
        int64, read-only.
    """
    philox = Philox(SeedSequence((seed, epoch)))
    order = stable_order(philox.random_raw(samples)).astype(np.int64)
    order.flags.writeable = False
    return order


def stable_order(numbers: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return the order that sorts *numbers*, equal ones as they stand.

    A rescale waits for this. Numbers that all differ have one order, and other sorts
    find it in half the time of the stable one.
    """
    ascending = np.sort(numbers)
    has_equal = bool((ascending[1:] == ascending[:-1]).any())
    return np.argsort(numbers, kind="stable" if has_equal else None)


def sum_exactly(
    world: World, batch: Batch, sums_of: Callable[[Chunk], Sums]
) -> tuple[NDArray[Any], ...]:
    """Sum what *sums_of* returns over the chunks of *batch*; collective.

    Args:
        world: The ranks that share the batch.
        batch: The batch, the same on all ranks.
        sums_of: Returns floats and float arrays, each a sum over the chunk's
            samples, of the same shapes for every chunk. A rank calls it for its own
            chunks; a rank without any calls it once and drops the result: it must
            have no side effect.

    Returns:
        One float64 array for each of them, the sum over the whole batch.

    Raises:
        ProgramError: Shapes differ from chunk to chunk, or are not of numbers.
    """
    count = len(batch.chunks)
    first, end = _share(count, world.rank, size=world.size)
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

    Leaves are summed one after the other, so that only one sum for every level of the
    tree is in memory.
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
    slices = [_share(length, rank, size=world.size) for rank in range(world.size)]
    trees = [
        list(_subtrees(0, count, *_share(count, rank, size=world.size)))
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
