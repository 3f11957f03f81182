"""``python -m freetrain.doctor``: what the one-step run does on its node.

``FOLDER`` starts a small world and writes what it saw into that folder; ``--rank`` is
one rank of that world, which says how large the world is.
"""

import os
import sys

from freetrain.own_packages import prefer_own_packages


def _print_world_size() -> None:
    """Print the size as the launcher says it and as mpi4py sees it, on one line."""
    size = os.environ.get("OMPI_COMM_WORLD_SIZE") or os.environ.get("PMI_SIZE") or "?"
    sys.stdout.write(f"doctor-rank told={size} found={_size_by_mpi4py()}\n")


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
        from freetrain.doctor.probe import main

        main()
