"""``python -m freetrain.doctor``: the one-step run on its compute node.

With ``FOLDER`` it starts a small world and writes an answer into that folder; with
``--rank`` it is one rank of that world, and prints how large the world is.
"""

import os
import sys

from freetrain.own_packages import prefer_own_packages


def _print_world_size() -> None:
    """Print the size that the launcher set and the size that mpi4py sees."""
    size = os.environ.get("OMPI_COMM_WORLD_SIZE") or os.environ.get("PMI_SIZE") or "?"
    sys.stdout.write(f"doctor-rank set={size} seen={_size_by_mpi4py()}\n")


def _size_by_mpi4py() -> str:
    try:
        from mpi4py import MPI  # noqa: PLC0415 -- an extra, and it starts MPI
    except (ImportError, RuntimeError):
        return "none"
    return str(MPI.COMM_WORLD.Get_size())


if __name__ == "__main__":
    prefer_own_packages()
    if sys.argv[1:] == ["--rank"]:
        _print_world_size()
    else:
        from freetrain.doctor.one_step_run import main

        main()
