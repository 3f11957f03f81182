"""Fake Slurm programs on disk, and the hand that scripts what they do."""

import os
import shlex
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from freetrain.demo.fake_slurm import cluster as keeping
from freetrain.demo.fake_slurm import processes as installing
from freetrain.demo.fake_slurm.cluster import ClusterPart, FakeJob
from freetrain.demo.fake_slurm.commands import read_iso
from slurm.records import expand
from tests.fakes.slurm.state import Act, opened

USER = "alice"
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

    @property
    def standin(self) -> installing.FakeSlurmFolder:
        """The stand-in that does what is asked."""
        return installing.FakeSlurmFolder(self.folder)

    def script(self, program: str, *acts: Act) -> None:
        """Make *program* behave so at its next calls, then normally again."""
        with opened(self.folder) as script:
            script.acts.setdefault(program, []).extend(acts)

    def calls(self, program: str) -> list[list[str]]:
        """Return the arguments of each call of *program* so far."""
        with opened(self.folder) as script:
            return [call[1:] for call in script.calls if call[0] == program]

    def jobs(self) -> list[FakeJob]:
        """Return all jobs, ended ones included."""
        return self.standin.look().jobs

    def plan(self, job_id: int, nodes: str, start: str) -> None:
        """Give a waiting job a planned start, as backfill would."""
        with keeping.opened(self.folder) as cluster:
            for job in cluster.jobs:
                if job.job_id == job_id:
                    job.wanted, job.due_s = list(expand(nodes)), read_iso(start)
                    cluster.cycles += 1

    def part(self, part: ClusterPart) -> None:
        """Open a further partition, of all nodes."""
        with keeping.opened(self.folder) as cluster:
            cluster.parts.append(part)


def install(folder: Path, *, runs_jobs: bool = False) -> FakeSlurm:
    """Write the programs into *folder*, which must exist.

    Args:
        folder: Empty.
        runs_jobs: Whether scripts really run: then let it go on ``at_work``, or stop
            it at the end. Where not, a job that started lasts until it is ended.
    """
    now_s = time.time()  # noqa: TID251 - the programs go by the machine's clock
    installing.install(folder, now_s=now_s, runs_jobs=runs_jobs, user=USER)
    for path in (folder / "bin").iterdir():
        words = [sys.executable, "-m", "tests.fakes.slurm", path.name, str(folder)]
        told = f"PYTHONPATH={shlex.quote(str(_TOP))}"
        path.write_text(f'#!/bin/sh\n{told} exec {shlex.join(words)} "$@"\n')
        path.chmod(0o755)
    return FakeSlurm(folder)
