"""Fake Slurm programs on disk, and the hand that scripts what they do."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fakes.slurm.state import opened

if TYPE_CHECKING:
    from tests.fakes.slurm.state import Act, FakeJob

PROGRAMS = ("sbatch", "scancel", "scontrol", "sdiag", "sinfo", "squeue")
_TOP = Path(__file__).resolve().parent.parent.parent.parent


@dataclass(frozen=True, slots=True)
class FakeSlurm:
    """Fake programs in a folder of their own.

    Attributes:
        folder: Has ``bin`` with the programs, and their state.
    """

    folder: Path

    @property
    def environ(self) -> dict[str, str]:
        """Environment in which commands are these programs."""
        path = f"{self.folder / 'bin'}{os.pathsep}{os.defpath}"
        return {"PATH": path, "LC_ALL": "C", "TZ": "UTC"}

    def script(self, program: str, *acts: Act) -> None:
        """Make *program* behave so at its next calls, then normally again."""
        with opened(self.folder) as state:
            state.acts.setdefault(program, []).extend(acts)

    def calls(self, program: str) -> list[list[str]]:
        """Return the arguments of each call of *program* so far."""
        with opened(self.folder) as state:
            return [call[1:] for call in state.calls if call[0] == program]

    def jobs(self) -> list[FakeJob]:
        """Return all jobs, ended ones included."""
        with opened(self.folder) as state:
            return list(state.jobs)

    def plan(self, job_id: int, nodes: str, start: str) -> None:
        """Give a waiting job a planned start, as backfill would."""
        with opened(self.folder) as state:
            for job in state.jobs:
                if job.job_id == job_id:
                    job.columns |= {"SchedNodes": nodes, "StartTime": start}


def install(folder: Path) -> FakeSlurm:
    """Write the programs into *folder*, which must exist."""
    programs = folder / "bin"
    programs.mkdir()
    for name in PROGRAMS:
        path = programs / name
        path.write_text(
            f"#!/bin/sh\nPYTHONPATH='{_TOP}' exec '{sys.executable}' "
            f"-m tests.fakes.slurm {name} '{folder}' \"$@\"\n",
            encoding="utf-8",
        )
        path.chmod(0o755)
    return FakeSlurm(folder)
