"""One rank of the one-step run's world: say how large the world is."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Print the size as the launcher says it and as mpi4py sees it, on one line."""
    size = os.environ.get("OMPI_COMM_WORLD_SIZE") or os.environ.get("PMI_SIZE") or "?"
    sys.stdout.write(f"doctor-rank told={size} found={_size()}\n")


def _size() -> str:
    try:
        from mpi4py import MPI  # noqa: PLC0415 -- an extra, and it starts MPI
    except (ImportError, RuntimeError):
        return "none"
    return str(MPI.COMM_WORLD.Get_size())


if __name__ == "__main__":
    main()
