"""A world whose ranks are threads: the double of MPI, held to the same contract."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

PATIENCE_S = 30.0


class Meeting:
    """Where the ranks of a thread world put what the others are to see."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size, timeout=PATIENCE_S)
        self.table: list[Any] = [None] * size

    def swap(self, rank: int, thing: Any) -> list[Any]:  # noqa: ANN401
        self.table[rank] = thing
        self.barrier.wait()
        seen = list(self.table)
        self.barrier.wait()
        return seen


class ThreadWorld:
    """One rank's view of the meeting."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self._meeting = meeting
        self.rank = rank
        self.size = meeting.size

    def maxima(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(np.max(self._meeting.swap(self.rank, values), axis=0))

    def broadcast(self, payload: bytes) -> bytes:
        return bytes(self._meeting.swap(self.rank, payload)[0])

    def exchange(
        self, blocks: Sequence[NDArray[np.float64]], incoming: Sequence[int]
    ) -> list[NDArray[np.float64]]:
        received = [
            np.array(sent[self.rank]) for sent in self._meeting.swap(self.rank, blocks)
        ]
        assert [len(block) for block in received] == list(incoming)
        return received

    def gather_everywhere(
        self, part: NDArray[np.float64], sizes: Sequence[int]
    ) -> NDArray[np.float64]:
        parts = self._meeting.swap(self.rank, part)
        assert [len(one) for one in parts] == list(sizes)
        return np.concatenate(parts)

    def total(self, part: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.sum(self._meeting.swap(self.rank, part), axis=0))

    def abort(self, exit_code: int) -> None:
        del exit_code
        self._meeting.barrier.abort()


def on_every_rank(size: int, work: Callable[[ThreadWorld], Any]) -> list[Any]:
    """What *work* returns on each rank of a world of *size*."""
    meeting = Meeting(size)

    def on_rank(rank: int) -> Any:  # noqa: ANN401
        try:
            return work(ThreadWorld(meeting, rank))
        except BaseException:
            meeting.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(on_rank, range(size)))
