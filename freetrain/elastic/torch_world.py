"""The ranks of a ``torch.distributed`` process group; needs PyTorch.

Nothing else of FreeTrain imports this module: a program that trains with PyTorch
does, and passes the world on::

    from freetrain.elastic.torch_world import torch_world

    with torch_world() as world, elastic.join(world=world) as run:
        model = DistributedDataParallel(model)

The process group exists from the first line of the block on, for DDP and all else in
PyTorch that needs one.
"""

from __future__ import annotations

import os
import socket
import time
import weakref
from collections import deque
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from freetrain.elastic.contract import LaunchError, read_launch
from freetrain.elastic.world import find_world

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from freetrain.elastic.world import World

# Variables that torchrun sets for every rank, and FreeTrain's launcher "srun" likewise;
# env:// needs all of them.
_TORCHRUN_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_ADDRESS = "MASTER_ADDR"
# gloo's threads let go of a tensor within microseconds of sending it; these numbers
# only bound the end on a very busy machine.
_WATCHED = 64
_SETTLED_WITHIN_S = 5.0


class TorchWorld:
    """The ranks of a process group of PyTorch's: the default one unless it is given.

    Its arrays lie in main memory, so the group needs a backend for that: gloo, which
    PyTorch sets up beside NCCL by default.
    """

    def __init__(self, members: Any = None) -> None:  # noqa: ANN401  # PyTorch may be absent
        self._torch = import_module("torch")
        self._group = import_module("torch.distributed")
        self._members = members
        self.rank: int = self._group.get_rank(members)
        self.size: int = self._group.get_world_size(members)
        self._sent: deque[weakref.ref[Any]] = deque(maxlen=_WATCHED)

    def maxima(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The element-wise largest, by one allreduce."""
        return self._reduced(values, self._group.ReduceOp.MAX)

    def broadcast(self, payload: bytes) -> bytes:
        """Rank 0's *payload*: its length, then its bytes."""
        length = self.maxima(np.array([len(payload) if self.rank == 0 else 0]))
        content = np.zeros(int(length[0]), dtype=np.uint8)
        if self.rank == 0:
            content[:] = np.frombuffer(payload, dtype=np.uint8)
        if len(content):
            self._group.broadcast(self._tensor(content), src=0, group=self._members)
        return content.tobytes()

    def exchange(
        self, blocks: Sequence[NDArray[np.float64]], incoming: Sequence[int]
    ) -> list[NDArray[np.float64]]:
        """Every rank's block for this one, by one all-to-all."""
        received = np.empty(sum(incoming), dtype=np.float64)
        self._group.all_to_all_single(
            self._tensor(received),
            self._tensor(np.concatenate(blocks)),
            list(incoming),
            [len(block) for block in blocks],
            group=self._members,
        )
        return np.split(received, np.cumsum(incoming)[:-1])

    def gather_everywhere(
        self, part: NDArray[np.float64], sizes: Sequence[int]
    ) -> NDArray[np.float64]:
        """All ranks' parts, by one allgather, padded: gloo wants equal lengths."""
        padded = np.zeros(max(sizes), dtype=np.float64)
        padded[: len(part)] = part
        rows = [self._tensor(np.empty_like(padded)) for _ in sizes]
        self._group.all_gather(rows, self._tensor(padded), group=self._members)
        return np.concatenate(
            [row.numpy()[:size] for row, size in zip(rows, sizes, strict=True)]
        )

    def total(self, part: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum in PyTorch's own order, by one allreduce."""
        return self._reduced(part, self._group.ReduceOp.SUM)

    def abort(self, exit_code: int) -> None:
        """End this rank at once; the others' connections to it break.

        PyTorch has no ``MPI_Abort``. A rank that waits for this one gets an error
        from gloo, and torchrun or mpirun ends those that compute.
        """
        os._exit(exit_code)

    def _reduced(self, values: NDArray[Any], operation: object) -> NDArray[Any]:
        reduced = values.copy()
        self._group.all_reduce(self._tensor(reduced), op=operation, group=self._members)
        return reduced

    def _tensor(self, values: NDArray[Any]) -> Any:  # noqa: ANN401  # PyTorch may be absent
        """*values* as a tensor, which :meth:`settle` watches."""
        tensor = self._torch.from_numpy(values)
        self._sent.append(weakref.ref(tensor))
        return tensor

    def settle(self) -> None:
        """Wait until gloo's threads have let go of all tensors that were sent.

        A thread that is the last to let go of a tensor needs Python's lock for it.
        Where a model wrapped in DDP outlives the group, as it does in most programs,
        its end waits for these threads while it holds that lock: a rank on a busy
        machine then hung for ever, after its outcome was written (PyTorch 2.13).
        """
        end_s = time.monotonic() + _SETTLED_WITHIN_S
        while any(sent() is not None for sent in self._sent):
            if time.monotonic() > end_s:
                return
            time.sleep(0.001)


@contextmanager
def torch_world(
    *, backend: str | None = None, environment: Mapping[str, str] = os.environ
) -> Iterator[TorchWorld]:
    """Set up PyTorch's process group among the ranks of this launch; collective.

    The ranks are those that torchrun's variables name; or else those that an MPI
    launcher started, which agree by mpi4py where to meet; or else this process.

    Args:
        backend: PyTorch's backends; None for all that fit the machine: gloo, and
            NCCL where there are GPUs.
        environment: The process' variables.

    Yields:
        The world for ``elastic.join(world=...)``.

    Raises:
        LaunchError: There is no PyTorch here, or the ranks did not find each other.
    """
    group = _distributed()
    try:
        _connect(group, backend, environment)
    except (RuntimeError, ValueError, OSError) as error:
        raise LaunchError(
            f"PyTorch's process group could not be set up: {error}. Nothing was "
            f"trained. GLOO_SOCKET_IFNAME names the network interface to use, if "
            f"the hosts' names lead to the wrong one."
        ) from error
    world = TorchWorld()
    try:
        yield world
    finally:
        world.settle()
        group.destroy_process_group()


def _distributed() -> Any:  # noqa: ANN401  # PyTorch may be absent
    try:
        return import_module("torch.distributed")
    except ImportError as error:
        raise LaunchError(
            f"this program trains with PyTorch, which cannot be imported: {error}. "
            f"Nothing was trained. Install it into this Python (`pip install torch`)."
        ) from error


def _connect(group: Any, backend: str | None, environment: Mapping[str, str]) -> None:  # noqa: ANN401  # PyTorch may be absent
    if all(environment.get(name) for name in _TORCHRUN_VARIABLES):
        group.init_process_group(backend, init_method="env://")
        return
    ranks = find_world(read_launch(environment), environment)
    group.init_process_group(
        backend,
        store=_meeting_point(group, ranks, environment),
        rank=ranks.rank,
        world_size=ranks.size,
    )


def _meeting_point(group: Any, ranks: World, environment: Mapping[str, str]) -> object:  # noqa: ANN401  # PyTorch may be absent
    """A store that all *ranks* reach: rank 0 serves it, and broadcasts its address."""
    if ranks.size == 1:
        return group.HashStore()
    served, address = None, b""
    if ranks.rank == 0:
        host = environment.get(_ADDRESS) or socket.gethostname()
        served = group.TCPStore(
            host, 0, ranks.size, is_master=True, wait_for_workers=False
        )
        address = f"{host} {served.port}".encode()
    host, port = ranks.broadcast(address).decode().split()
    return served or group.TCPStore(host, int(port), ranks.size, is_master=False)
