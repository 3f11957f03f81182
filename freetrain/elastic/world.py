"""The ranks of one fragment, and the few things they do together."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

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
