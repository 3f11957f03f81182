"""A stand-in at work, and a short way to ask its programs."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from freetrain.demo.fake_slurm.cluster import FREETRAIN, MAIN, FakeJob
from freetrain.demo.fake_slurm.processes import FakeSlurmFolder, at_work, install
from slurm.runner import SubprocessRunner
from tests.cluster.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FORMAT = "--Format=Name:20|,JobArrayID:|,State:|,NodeList:|"


@dataclass(frozen=True, slots=True)
class Desk:
    """Somebody at a login node.

    Attributes:
        standin: What is asked.
        home: A folder for scripts and what they print.
    """

    standin: FakeSlurmFolder
    home: Path

    def run(self, *words: str) -> str:
        path = f"{self.standin.path}{os.pathsep}{os.defpath}"
        return SubprocessRunner({"PATH": path}).run(words, timeout_s=60)

    def submit(self, body: str, *options: str) -> str:
        """Submit a lease that runs *body*; return its number."""
        script = self.home / f"script-{len(list(self.home.iterdir()))}"
        path = f"PATH={self.standin.path}:$PATH"
        script.write_text(f"#!/bin/sh\n{path}\ncd {self.home}\n{body}\n")
        script.chmod(0o700)
        words: tuple[str, ...] = ("--parsable", "--partition=freetrain", "--time=60")
        words = (*words, f"--output={self.home}/job-%j.out", *options)
        return self.run("sbatch", *words, str(script)).strip()

    def others(self, nodes: list[str], *, in_s: float, run_s: float) -> None:
        """Have somebody's job come now, planned on *nodes* in *in_s*."""
        now_s = time.time()  # noqa: TID251 - the programs go by the machine's clock
        job = FakeJob(
            job_id=0,
            name="theirs",
            user="bob",
            partition="main",
            limit_s=3_600,
            submit_s=now_s,
            due_s=now_s + in_s,
            wanted=nodes,
            run_s=run_s,
        )
        self.standin.add([job])

    def state(self, job_id: str) -> str:
        lines = self.run("squeue", "--states=all", "--array", FORMAT).splitlines()
        rows = [line.split("|") for line in lines]
        return next(row[2] for row in rows if row[1] == job_id)

    def wait(self, job_id: str, state: str) -> None:
        wait_for(f"{job_id} to be {state}", lambda: self.state(job_id) == state)

    def said(self, name: str) -> str:
        """Return what is in a file, once there is something."""

        def text() -> str:
            path = self.home / name
            return path.read_text() if path.exists() else ""

        return wait_for(f"something in {name}", text)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    folder, home = tmp_path / "stand-in", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    now_s = time.time()  # noqa: TID251 - the programs go by the machine's clock
    quick = [MAIN, FREETRAIN]
    with at_work(install(folder, now_s=now_s, parts=quick)) as standin:
        yield Desk(standin, home)
