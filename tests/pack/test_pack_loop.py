"""What the loop of a pack makes of time and of requests to stop."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import pytest

from freetrain.elastic.clock import Clock
from freetrain.elastic.run_dir import RunDir
from freetrain.jobfile.job import Nodes, Progress, ProgressFormat, TrainerJob
from freetrain.pack.crew import Crew, Node
from freetrain.pack.duty_cycle import DutyCycle
from freetrain.pack.loop import Loop
from freetrain.pack.pack import Pack
from freetrain.pack.processes import tell, this_packer
from freetrain.pack.record import Line, Record, read_record
from freetrain.pack.sharing import FairSharing
from tests.pack.packs import TOP

if TYPE_CHECKING:
    from pathlib import Path

TELLS = """
import pathlib, sys, time
while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.001)
for i in range(6): print("step", i, flush=True)
time.sleep(600)
"""
QUICKER = 100
"""How much quicker the pack's time goes than the machine's."""


class Arriving:
    """Trainers that want to be members from the beginning."""

    def __init__(self, *jobs: TrainerJob) -> None:
        self._jobs = jobs

    def arrivals(self) -> tuple[TrainerJob, ...]:
        found, self._jobs = self._jobs, ()
        return found


class Time:
    """A clock of which a hundred seconds pass in one."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def clock(self) -> Clock:
        return Clock(lambda: self.now_s, lambda: self.now_s, self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds
        time.sleep(seconds / QUICKER)


def a_job(name: str = "a", *, go: Path | str = "/nowhere") -> TrainerJob:
    told = Progress(form=ProgressFormat.PATTERN, pattern=r"step (?P<step>\d+)")
    return TrainerJob(
        name=name,
        command=(sys.executable, "-c", TELLS, str(go)),
        directory=TOP,
        nodes=Nodes(max_nodes=1),
        elastic=False,
        progress=told,
    )


def a_loop(
    folder: Path,
    job: TrainerJob,
    *,
    clock: Clock | None = None,
    lines: dict[str, Line] | None = None,
) -> Loop:
    said: list[str] = []
    node = Node(
        run=RunDir(folder),
        generation=1,
        packer=this_packer("0123456789abcdef"),
        means=DutyCycle(1, tell),
        cpus=1,
        environment=dict(os.environ),
        clock=clock or Clock(),
    )
    return Loop(
        Pack(),
        node,
        crew=Crew(node),
        intake=Arriving(job),
        sharing=FairSharing(),
        record=Record(members=dict(lines or {})),
        say=said.append,
    )


def test_how_members_stand_is_kept_while_nobody_comes_or_goes(tmp_path: Path) -> None:
    it, go = Time(), tmp_path / "go"

    def told() -> bool:
        if it.now_s > 1.0:  # the first shares are set, and kept
            go.touch()
        line = read_record(RunDir(tmp_path)).members.get("a")
        return (line is not None and line.steps == 5) or it.now_s > 600.0

    a_loop(tmp_path, a_job(go=go), clock=it.clock()).run(told)

    assert it.now_s < 600.0


OVER = Line(arrived_s=0.0, ended_s=1.0, end="finished")
STOPPED = Line(arrived_s=0.0, ended_s=1.0, end="stopped")


@pytest.mark.parametrize(
    ("lines", "is_over"),
    [
        ({}, False),  # asked before anybody was started
        ({"a": STOPPED}, False),
        ({"a": OVER}, True),
        ({"b": OVER}, False),
        ({"a": OVER, "b": STOPPED}, False),
    ],
)
def test_asked_at_once_a_pack_is_over_if_all_who_wait_are(
    tmp_path: Path, lines: dict[str, Line], *, is_over: bool
) -> None:
    loop = a_loop(tmp_path, a_job("a"), lines=lines)

    assert loop.run(lambda: True) is is_over
