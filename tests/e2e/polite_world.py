"""An MPI world whose ranks sleep while they wait, for many ranks on few cores.

Open MPI's ranks spin while they wait; eight of them on two cores mostly keep the one
that has work from doing it (under load: 21 rounds of collectives a second with four
ranks that spin, 71 with eight that sleep).
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from freetrain.elastic.world import MpiWorld

_EAGER = 20  # looks before the first sleep: most answers are there soon
_SLEEP_S = 0.0005


class PoliteWorld(MpiWorld):
    """As ``MpiWorld``, with non-blocking collectives."""

    def maxima(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        largest = np.empty_like(values)
        _finish(self.communicator.Iallreduce(values, largest, op=MPI.MAX))
        return largest

    def broadcast(self, payload: bytes) -> bytes:
        length = np.array([len(payload) if self.rank == 0 else 0], dtype=np.int64)
        _finish(self.communicator.Ibcast(length, root=0))
        content = np.empty(int(length[0]), dtype=np.uint8)
        if self.rank == 0:
            content[:] = np.frombuffer(payload, dtype=np.uint8)
        _finish(self.communicator.Ibcast(content, root=0))
        return content.tobytes()

    def exchange(
        self, blocks: Sequence[NDArray[np.float64]], incoming: Sequence[int]
    ) -> list[NDArray[np.float64]]:
        received = np.empty(sum(incoming), dtype=np.float64)
        sent = np.concatenate(blocks)
        _finish(
            self.communicator.Ialltoallv(
                [sent, [len(block) for block in blocks]], [received, list(incoming)]
            )
        )
        return np.split(received, np.cumsum(incoming)[:-1])

    def gather_everywhere(
        self, part: NDArray[np.float64], sizes: Sequence[int]
    ) -> NDArray[np.float64]:
        joined = np.empty(sum(sizes), dtype=np.float64)
        _finish(self.communicator.Iallgatherv(part, [joined, list(sizes)]))
        return joined

    def total(self, part: NDArray[np.float64]) -> NDArray[np.float64]:
        total = np.empty_like(part)
        _finish(self.communicator.Iallreduce(part, total, op=MPI.SUM))
        return total


def _finish(request: Any) -> None:  # noqa: ANN401  # mpi4py's, whose types vary
    looks = 0
    while not request.Test():
        looks += 1
        if looks > _EAGER:
            time.sleep(_SLEEP_S)
