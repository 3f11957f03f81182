"""Which samples make up which batch: a function of the seed, never of the world."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from freetrain.elastic.checkpoint import Position
from freetrain.elastic.errors import ProgramError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Plan:
    """What a training is to go through; fixed for all its generations.

    Attributes:
        samples: Samples in the data set, at least 1; their indices are
            ``range(samples)``.
        global_batch: Samples in a step, over all ranks, at least 1. The last step
            of an epoch has what is left.
        epochs: Times that every sample is used, 0 or more; may be raised later.
        seed: Of the order of samples, 0 or more.
        chunks: Pieces that a batch is cut into, and the most ranks that can share
            it; at least 1.
    """

    samples: int
    global_batch: int
    epochs: int
    seed: int = 0
    chunks: int = 16

    def __post_init__(self) -> None:
        """Refuse what cannot be.

        Raises:
            ProgramError: A number is below its least.
        """
        least = {"samples": 1, "global_batch": 1, "epochs": 0, "seed": 0, "chunks": 1}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise ProgramError(
                    f"{name} is {getattr(self, name)} and must be {bound} or more. "
                    f"Nothing was trained."
                )

    @property
    def steps_per_epoch(self) -> int:
        """Steps in an epoch, the last and perhaps smaller one included."""
        return -(-self.samples // self.global_batch)

    @property
    def steps(self) -> int:
        """Steps in the whole training."""
        return self.epochs * self.steps_per_epoch

    def unchanging(self) -> dict[str, int]:
        """What must be the same in every generation, as kept in checkpoints."""
        return {
            "samples": self.samples,
            "global_batch": self.global_batch,
            "seed": self.seed,
            "chunks": self.chunks,
        }


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

    def generator(self) -> np.random.Generator:
        """A random generator for dropout and the like; the same in every world."""
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(self.key)))


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
        first, end = share(len(self.chunks), self.rank, size=self.size)
        own = [chunk.indices for chunk in self.chunks[first:end]]
        empty = self.indices[:0]
        at = min(first, len(self.chunks) - 1)
        return Chunk(np.concatenate([empty, *own]), self.chunks[at].key)


def share(count: int, rank: int, *, size: int) -> tuple[int, int]:
    """The first and the end of *rank*'s even share of *count* things in a row."""
    return rank * count // size, (rank + 1) * count // size


class Sampler:
    """Yields the batches of a training from any position on."""

    def __init__(self, plan: Plan, *, rank: int, size: int) -> None:
        self._plan = plan
        self._rank = rank
        self._size = size
        self._epoch = -1
        self._order: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def batch_at(self, position: Position) -> Batch | None:
        """The batch that follows *position*; None where the training is over."""
        if position.epoch >= self._plan.epochs:
            return None
        end = min(position.offset + self._plan.global_batch, self._plan.samples)
        indices = self._order_of(position.epoch)[position.offset : end]
        is_last = end == self._plan.samples
        return Batch(
            step=position.step,
            total_steps=self._plan.steps,
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
        count = min(self._plan.chunks, len(indices))
        edges = [i * len(indices) // count for i in range(count + 1)]
        return tuple(
            Chunk(
                indices[start:end],
                (self._plan.seed, position.epoch, position.offset + start),
            )
            for start, end in pairwise(edges)
        )

    def _order_of(self, epoch: int) -> NDArray[np.int64]:
        if epoch != self._epoch:
            self._order = order_of_epoch(self._plan.samples, self._plan.seed, epoch)
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
    bits = np.random.Philox(np.random.SeedSequence((seed, epoch)))
    order = np.argsort(bits.random_raw(samples), kind="stable").astype(np.int64)
    order.flags.writeable = False
    return order
