"""The ranks of one fragment, and the few things they do together."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from freetrain.elastic.errors import ProgramError
from freetrain.elastic.sampler import share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from freetrain.elastic.sampler import Batch, Chunk


# ----------------------------------------------------------------------
# Sums over a batch that are the same to the last bit in every world.

if TYPE_CHECKING:
    Sums = tuple[Any, ...]
    Flat = NDArray[np.float64]


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
    form = _Form()

    def leaf(lo: int, hi: int) -> Flat | None:
        return form.flatten(sums_of(batch.chunks[lo])) if hi - lo == 1 else None

    if first == end:
        form.flatten(sums_of(batch.chunks[0]))
    mine = [_fold(lo, hi, leaf) for lo, hi in _subtrees(0, count, first, end)]
    return form.restore(_combine(world, mine, count, form.length))


def sum_quickly(
    world: World, batch: Batch, sums_of: Callable[[Chunk], Sums]
) -> tuple[NDArray[Any], ...]:
    """As :func:`sum_exactly`, by one plain allreduce and one call a rank.

    The same within rounding only; in another world the last bits differ, and
    training makes such differences grow.
    """
    form = _Form()
    own = batch.mine
    if len(own.indices):
        part = form.flatten(sums_of(own))
    else:
        part = np.zeros_like(form.flatten(sums_of(batch.chunks[0])))
    return form.restore(world.total(part))


class _Form:
    """How one chunk's sums lie in a flat array."""

    def __init__(self) -> None:
        self.length = 0
        self._shapes: list[tuple[int, ...]] | None = None

    def flatten(self, sums: Sums) -> Flat:
        arrays = [np.asarray(one, dtype=np.float64) for one in sums]
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


# ----------------------------------------------------------------------
# The ranks of one fragment, and the few things they do together.

# Below 2^31 with room to spare: MPI counts are C ints before MPI 4.
_BROADCAST_BYTES = 1 << 26


class World(Protocol):
    """What the runtime needs of a communicator.

    Every method but ``abort`` is collective: all ranks call it, in the same order.
    Contract, checked for every implementation by ``tests/elastic``.
    """

    @property
    def rank(self) -> int:
        """This process' number, from 0."""
        ...

    @property
    def size(self) -> int:
        """How many processes there are, at least 1."""
        ...

    def maxima(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The element-wise largest of every rank's *values*, on every rank."""
        ...

    def broadcast(self, payload: bytes) -> bytes:
        """Rank 0's *payload*, on every rank; the others' is not looked at."""
        ...

    def exchange(
        self, blocks: Sequence[NDArray[np.float64]], incoming: Sequence[int]
    ) -> list[NDArray[np.float64]]:
        """Send ``blocks[r]`` to each rank r; return what each rank sent here.

        Args:
            blocks: One flat array for every rank.
            incoming: How many numbers each rank sends here.
        """
        ...

    def gather_everywhere(
        self, part: NDArray[np.float64], sizes: Sequence[int]
    ) -> NDArray[np.float64]:
        """All ranks' flat *part*, of these *sizes*, joined in the order of ranks."""
        ...

    def total(self, part: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum of all ranks' *part*, in whatever order is quickest."""
        ...

    def abort(self, exit_code: int) -> None:
        """End every rank now, whatever it is waiting for."""
        ...


class LoneWorld:
    """A world of one, without MPI."""

    rank = 0
    size = 1

    def maxima(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return *values*."""
        return values

    def broadcast(self, payload: bytes) -> bytes:
        """Return *payload*."""
        return payload

    def exchange(
        self, blocks: Sequence[NDArray[np.float64]], incoming: Sequence[int]
    ) -> list[NDArray[np.float64]]:
        """Return *blocks*."""
        del incoming
        return list(blocks)

    def gather_everywhere(
        self, part: NDArray[np.float64], sizes: Sequence[int]
    ) -> NDArray[np.float64]:
        """Return *part*."""
        del sizes
        return part

    def total(self, part: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return *part*."""
        return part

    def abort(self, exit_code: int) -> None:
        """Do nothing: there is nobody else, and the caller's error goes on."""


class MpiWorld:
    """The ranks of an MPI communicator."""

    def __init__(self, communicator: Any) -> None:  # noqa: ANN401  # mpi4py may be absent
        self.communicator = communicator
        self.rank: int = communicator.Get_rank()
        self.size: int = communicator.Get_size()
        self._mpi = import_module("mpi4py.MPI")

    def maxima(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The element-wise largest, by one allreduce."""
        largest = np.empty_like(values)
        self.communicator.Allreduce(values, largest, op=self._mpi.MAX)
        return largest

    def broadcast(self, payload: bytes) -> bytes:
        """Rank 0's *payload*, in pieces that every MPI can count."""
        length = np.array([len(payload) if self.rank == 0 else 0], dtype=np.int64)
        self.communicator.Bcast(length, root=0)
        if self.rank == 0:
            content = np.frombuffer(payload, dtype=np.uint8)
        else:
            content = np.empty(int(length[0]), dtype=np.uint8)
        for start in range(0, len(content), _BROADCAST_BYTES):
            piece = content[start : start + _BROADCAST_BYTES]
            self.communicator.Bcast(piece, root=0)
        return payload if self.rank == 0 else content.tobytes()

    def exchange(
        self, blocks: Sequence[NDArray[np.float64]], incoming: Sequence[int]
    ) -> list[NDArray[np.float64]]:
        """Every rank's block for this one, by one all-to-all."""
        received = np.empty(sum(incoming), dtype=np.float64)
        self.communicator.Alltoallv(
            [np.concatenate(blocks), [len(block) for block in blocks]],
            [received, list(incoming)],
        )
        return np.split(received, np.cumsum(incoming)[:-1])

    def gather_everywhere(
        self, part: NDArray[np.float64], sizes: Sequence[int]
    ) -> NDArray[np.float64]:
        """All ranks' parts, by one allgather."""
        joined = np.empty(sum(sizes), dtype=np.float64)
        self.communicator.Allgatherv(part, [joined, list(sizes)])
        return joined

    def total(self, part: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum in MPI's own order, by one allreduce."""
        total = np.empty_like(part)
        self.communicator.Allreduce(part, total, op=self._mpi.SUM)
        return total

    def abort(self, exit_code: int) -> None:
        """End every rank by ``MPI_Abort``, which does not return."""
        self.communicator.Abort(exit_code)
        os._exit(exit_code)
