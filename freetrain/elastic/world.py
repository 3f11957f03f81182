"""The ranks of one fragment: how a process finds them, and their collective calls."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from freetrain.elastic.contract import WORLD_SIZE, LaunchError, WorldMismatchError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from freetrain.elastic.contract import Launch

# Below 2^31 with room to spare: MPI counts are C ints before MPI 4.
_BROADCAST_BYTES = 1 << 26


class World(Protocol):
    """The communicator that the runtime needs.

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
        """Rank 0's *payload*, on every rank; the others' are ignored."""
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
        """The sum of all ranks' *part*, in the quickest order."""
        ...

    def abort(self, exit_code: int) -> None:
        """End every rank now, also those that wait for another."""
        ...


class LoneWorld:
    """A world of one rank, without MPI."""

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
        """Do nothing: there is no other rank, and the caller's error goes on."""


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


_MAPS = Path("/proc/self/maps")
_MPI = re.compile(r"libmpi(ch)?\.so")

# Set by Open MPI 4 and 5; by MPICH, Intel MPI and Slurm's pmi2; by Slurm's pmix.
_MPI_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMIX_RANK")
# In this order: inside a Slurm step, mpirun's count is right and the step's is the
# number of launch daemons.
_SIZE_VARIABLES = (
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "WORLD_SIZE",
    "SLURM_STEP_NUM_TASKS",
)


def find_world(
    launch: Launch, environment: Mapping[str, str], *, given: World | None = None
) -> World:
    """Return the world of this process, checked against the announced size.

    MPI is not even imported unless an MPI launcher started the process: its
    start costs a second, and fails where MPI is half installed.

    Args:
        launch: The launch, as FreeTrain's launcher announced it.
        environment: The process' environment variables.
        given: The program's own world, for communicators other than MPI.

    Raises:
        WorldMismatchError: The size is not the one announced.
        LaunchError: An MPI launcher started this process, and mpi4py cannot be used.
    """
    announced = {WORLD_SIZE: launch.world_size} if launch.world_size else {}
    if given is not None:
        _check_size(given.size, "the one passed to join()", announced)
        return given
    if any(name in environment for name in _MPI_VARIABLES):
        world, library = _mpi_world()
    else:
        world, library = LoneWorld(), "no MPI"
    _check_size(world.size, library, announced | _started_size(environment))
    return world


def _mpi_world() -> tuple[World, str]:
    try:
        mpi = import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        raise LaunchError(
            f"an MPI launcher started this process, but mpi4py cannot be used: "
            f"{error}. Nothing was trained. Install it into this Python "
            f"(`pip install mpi4py`), or start the program without mpirun."
        ) from error
    if not mpi.Is_initialized():  # loaded by a spare, or left so by the program
        _start(mpi)
    version = mpi.Get_library_version().strip("\x00 \n").split(",")[0].splitlines()[0]
    return MpiWorld(mpi.COMM_WORLD), f"mpi4py with {version}"


def _start(mpi: Any) -> None:  # noqa: ANN401  # mpi4py may be absent
    """Start MPI as mpi4py does on import, by the options that a program can set."""
    options = import_module("mpi4py").rc
    if options.threads:
        mpi.Init_thread(getattr(mpi, f"THREAD_{options.thread_level.upper()}"))
    else:
        mpi.Init()


def load_mpi() -> None:
    """Load mpi4py and its MPI, and start nothing; for a spare, whose ranks start it.

    Where there is none, or it cannot be loaded, ranks will find that out.
    """
    with suppress(ImportError, RuntimeError):
        options = import_module("mpi4py").rc
        if options.finalize is None:
            options.finalize = True  # else mpi4py ends only what it has started itself
        options.initialize = False
        import_module("mpi4py.MPI")


def is_loaded_mpi_found(search: str, *, maps: Path = _MAPS) -> bool:
    """Tell whether a new process that searches *search* would load the same MPI.

    Launchers put their own libraries first on LD_LIBRARY_PATH for their ranks.

    Args:
        search: The variable LD_LIBRARY_PATH of that process.
        maps: The files that this process has in memory.
    """
    lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
    files = {Path(line.split(maxsplit=5)[-1]) for line in lines if "/libmpi" in line}
    loaded = {file.resolve().parent for file in files if _MPI.match(file.name)}
    folders = (Path(folder) for folder in search.split(":") if folder)
    found = next((f for f in folders if _has_mpi(f)), None)
    return not loaded or found is None or found.resolve() in loaded


def _has_mpi(folder: Path) -> bool:
    with suppress(OSError):
        return any(_MPI.match(entry.name) for entry in folder.iterdir())
    return False


def _started_size(environment: Mapping[str, str]) -> dict[str, int]:
    for name in _SIZE_VARIABLES:
        text = environment.get(name, "")
        if text.isascii() and text.isdigit():
            return {name: int(text)}
    return {}


def _check_size(size: int, library: str, announced: Mapping[str, int]) -> None:
    wrong = [f"{name}={count}" for name, count in announced.items() if count != size]
    if wrong:
        raise WorldMismatchError(
            f"the launcher announced {' and '.join(wrong)}, but this process is in a "
            f"world of {size} ({library}). Nothing was trained. Most often mpi4py is "
            f"bound to another MPI than the mpirun that started it: use that MPI's "
            f"mpirun, or reinstall mpi4py against the MPI of the launcher. A launcher "
            f"that is not MPI needs a world of its own: join(world=...)."
        )
