"""A world of ranks that meet at a port of the first: for launchers without MPI.

It is slow, and it uses no processor while it waits. Ranks find each other by PyTorch's
variables, which FreeTrain's launchers ``srun`` and ``torchrun`` set.
"""

import os
import time
from collections.abc import Sequence
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

import numpy as np
from numpy.typing import NDArray

_KEY = b"the tests of this machine"
_PATIENCE_S = 60.0


class SocketWorld:
    """Every call goes to rank 0 and back."""

    def __init__(self) -> None:
        self.rank = int(os.environ["RANK"])
        self.size = int(os.environ["WORLD_SIZE"])
        port = int(os.environ["MASTER_PORT"])
        self._others: list[Connection[Any, Any]] = []
        if self.rank == 0:
            with Listener(("127.0.0.1", port), backlog=64, authkey=_KEY) as listener:
                found = [listener.accept() for _ in range(self.size - 1)]
            by_rank = {connection.recv(): connection for connection in found}
            self._others = [by_rank[rank] for rank in range(1, self.size)]
        else:
            self._others = [_connected(port)]
            self._others[0].send(self.rank)

    def maxima(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the element-wise largest."""
        largest: NDArray[np.int64] = np.maximum.reduce(self._told_all(values))
        return largest

    def broadcast(self, payload: bytes) -> bytes:
        """Return rank 0's payload."""
        found: bytes = self._told_all(payload if self.rank == 0 else None)[0]
        return found

    def exchange(
        self, blocks: Sequence[NDArray[np.float64]], incoming: Sequence[int]
    ) -> list[NDArray[np.float64]]:
        """Return every rank's block for this one."""
        del incoming
        return [sent[self.rank] for sent in self._told_all(list(blocks))]

    def gather_everywhere(
        self, part: NDArray[np.float64], sizes: Sequence[int]
    ) -> NDArray[np.float64]:
        """Return all ranks' parts."""
        del sizes
        return np.concatenate(self._told_all(part))

    def total(self, part: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum, in the order of ranks."""
        total: NDArray[np.float64] = np.add.reduce(self._told_all(part))
        return total

    def abort(self, exit_code: int) -> None:
        """End this rank; the others' connections to it break."""
        os._exit(exit_code)

    def _told_all(self, mine: Any) -> list[Any]:  # noqa: ANN401 -- whatever is sent
        """Return what every rank told, on every rank."""
        if self.rank:
            self._others[0].send(mine)
            told: list[Any] = self._others[0].recv()
            return told
        everything = [mine, *(other.recv() for other in self._others)]
        for other in self._others:
            other.send(everything)
        return everything


def _connected(port: int) -> "Connection[Any, Any]":
    """Return a connection to rank 0, which may listen in a moment."""
    until_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return Client(("127.0.0.1", port), authkey=_KEY)
        except ConnectionRefusedError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.05)
