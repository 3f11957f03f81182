"""Find the world that this process belongs to, and refuse a wrong one.

The trap: an mpi4py bound to another MPI than the launcher's makes every rank a
world of one, silently, and each of them would train and commit alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from freetrain.elastic.errors import LaunchError, WorldMismatchError
from freetrain.elastic.launch import WORLD_SIZE
from freetrain.elastic.world import LoneWorld, MpiWorld

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.elastic.launch import Launch
    from freetrain.elastic.world import World

# Set by Open MPI 4 and 5; by MPICH, Intel MPI and Slurm's pmi2; by Slurm's pmix.
_MPI_STARTED_US = ("OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMIX_RANK")
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
    """Return the world of this process, checked against what was announced.

    MPI is not even imported unless an MPI launcher started the process: its
    start costs a second, and fails where MPI is half installed.

    Args:
        launch: What FreeTrain's launcher announced.
        environment: The process' environment variables.
        given: The program's own world, for communicators other than MPI.

    Raises:
        WorldMismatchError: The size is not the one announced.
        LaunchError: An MPI launcher started us, and mpi4py cannot be used.
    """
    announced = {WORLD_SIZE: launch.world_size} if launch.world_size else {}
    if given is not None:
        _check_size(given.size, "the one passed to join()", announced)
        return given
    if any(name in environment for name in _MPI_STARTED_US):
        world, library = _mpi_world()
    else:
        world, library = LoneWorld(), "no MPI"
    _check_size(world.size, library, announced | _started(environment))
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
    version = mpi.Get_library_version().strip("\x00 \n").split(",")[0].splitlines()[0]
    return MpiWorld(mpi.COMM_WORLD), f"mpi4py with {version}"


def _started(environment: Mapping[str, str]) -> dict[str, int]:
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
