"""The program that launches, and which of its kind it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from freetrain.launch.errors import CannotLaunchError


class Flavour(StrEnum):
    """Kinds of mpirun, by the options that they take."""

    OPEN_MPI_4 = "Open MPI 4"
    OPEN_MPI_5 = "Open MPI 5"
    MPICH = "MPICH"
    INTEL_MPI = "Intel MPI"


@dataclass(frozen=True, slots=True)
class Tool:
    """A program that launches.

    Attributes:
        path: The program, absolute.
        flavour: Which mpirun it is; None for other launchers.
    """

    path: str
    flavour: Flavour | None = None


# Debian's mpirun.openmpi calls itself OpenRTE, and has Open MPI's number.
_OPEN_MPI = re.compile(r"\((?:Open MPI|OpenRTE)\) (\d+)\.", re.ASCII)
_FIRST_WITH_PRRTE = 5
_OLDEST = 3


def flavour_of(said: str, *, path: str) -> Flavour:
    """Return which mpirun answers ``--version`` with *said*.

    Raises:
        CannotLaunchError: None that is known.
    """
    if found := _OPEN_MPI.search(said):
        major = int(found[1])
        if major >= _FIRST_WITH_PRRTE:
            return Flavour.OPEN_MPI_5
        if major >= _OLDEST:
            return Flavour.OPEN_MPI_4
    if "Intel(R) MPI Library" in said:
        return Flavour.INTEL_MPI
    if "HYDRA build details" in said:
        return Flavour.MPICH
    raise CannotLaunchError(
        f"{path} is no mpirun that FreeTrain knows: it says {said[:80]!r}. Nothing was "
        f"started. Name another in [launch] executable, or describe this one with "
        f'launcher = "custom" (docs/launchers.md).'
    )
