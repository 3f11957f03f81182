"""The loop of a pack: times, pauses, shares and requests to stop."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from freetrain.config.job import (
    NodeSettings,
    ProgressFormat,
    ProgressSettings,
    TrainerJob,
)
from freetrain.elastic.files import Clock, RunDir
from freetrain.pack.cpu_controllers import DutyCycleController, signal_all, this_packer
from freetrain.pack.pack import MemberRecord, Pack, PackRecord, read_record
from freetrain.pack.run import FairSharing, PackLoop, Workers, sharing_of
from freetrain.priority.flowcon import FlowConState, GrowthTrack, to_json
from tests.pack.packs import TOP

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from freetrain.pack.cpu_controllers import CpuController

REPORTS = """
import pathlib, sys, time
while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.001)
for i in range(6): print("step", i, flush=True)
time.sleep(600)
"""
OVER = MemberRecord(arrived_s=0.0, ended_s=1.0, end="finished")
FAILED = MemberRecord(arrived_s=0.0, ended_s=1.0, end="failed", failures=1)
STOPPED = MemberRecord(arrived_s=0.0, ended_s=1.0, end="stopped")
QUICKER = 100
"""How much quicker the pack's time goes than the machine's."""


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
    form, pattern = ProgressFormat.PATTERN, r"step (?P<step>\d+)"
    return TrainerJob(
        name=name,
        command=(sys.executable, "-c", REPORTS, str(go)),
        directory=TOP,
        nodes=NodeSettings(max_nodes=1),
        elastic=False,
        progress=ProgressSettings(form=form, pattern=pattern),
    )


def a_loop(
    folder: Path,
    *jobs: TrainerJob,
    clock: Clock | None = None,
    record: PackRecord | None = None,
    controller: CpuController | None = None,
) -> PackLoop:
    waiting = list(reversed(jobs))
    kept = record or PackRecord()
    workers = Workers(
        run=RunDir(folder),
        generation=1,
        packer=this_packer("0123456789abcdef"),
        controller=controller or DutyCycleController(1, signal_all),
        cpus=1,
        environment=dict(os.environ),
        clock=clock or Clock(),
    )
    return PackLoop(
        Pack(),
        workers,
        arrivals=lambda: tuple(waiting.pop() for _ in list(waiting)),
        sharing=sharing_of(Pack(), kept.sharing) if kept.sharing else FairSharing(),
        record=kept,
        say=lambda _: None,
    )


def test_the_record_is_kept_while_no_member_comes_or_goes(tmp_path: Path) -> None:
    it, go = Time(), tmp_path / "go"

    def is_reported() -> bool:
        if it.now_s > 1.0:  # the first shares are set, and kept
            go.touch()
        line = read_record(RunDir(tmp_path)).members.get("a")
        return (line is not None and line.steps == 5) or it.now_s > 600.0

    a_loop(tmp_path, a_job(go=go), clock=it.clock()).run(is_reported)

    assert it.now_s < 600.0


class Noting(DutyCycleController):
    """Takes note of the shares that it is to set."""

    def __init__(self) -> None:
        super().__init__(1, signal_all)
        self.set: list[dict[str, float]] = []

    def set_shares(self, shares: Mapping[str, float]) -> None:
        self.set.append(dict(shares))
        super().set_shares(shares)


def test_the_shares_of_one_generation_are_those_of_the_next_from_its_beginning(
    tmp_path: Path,
) -> None:
    shares = {"a": 0.75, "b": 0.25}
    tracks = [
        GrowthTrack(name=n, measured_s=0.0, share=part) for n, part in shares.items()
    ]
    remembered = to_json(FlowConState(tuple(tracks), due_s=1e6))
    it, noting = Time(), Noting()
    loop = a_loop(
        tmp_path,
        a_job("a"),
        a_job("b"),
        clock=it.clock(),
        record=PackRecord(
            sharing=remembered,
            shares=shares,
            members={"a": replace(STOPPED), "b": replace(STOPPED)},
        ),
        controller=noting,
    )

    loop.run(lambda: it.now_s > 5.0)

    assert noting.set[0] == shares
    assert len(noting.set) == 2  # and all the same, when they were asked to stop


def test_a_pause_is_kept_from_one_generation_to_the_next(tmp_path: Path) -> None:
    it = Time()
    failed = replace(FAILED, again_s=50.0)

    def is_started() -> bool:
        line = read_record(RunDir(tmp_path)).members.get("a")
        return (line is not None and not line.end) or it.now_s > 600.0

    record = PackRecord(members={"a": failed})
    a_loop(tmp_path, a_job(), clock=it.clock(), record=record).run(is_started)

    assert 50.0 <= it.now_s < 600.0


def test_a_member_that_waits_to_be_started_again_keeps_its_pack_from_being_over(
    tmp_path: Path,
) -> None:
    it = Time()
    record = PackRecord(members={"a": replace(FAILED, again_s=1e6)})

    loop = a_loop(tmp_path, a_job(), clock=it.clock(), record=record)

    assert loop.run(lambda: it.now_s > 20.0) is False
    assert it.now_s > 20.0


@pytest.mark.parametrize(
    ("lines", "is_over"),
    [
        ({}, False),  # asked before any member was started
        ({"a": STOPPED}, False),
        ({"a": OVER}, True),
        ({"b": OVER}, False),
        ({"a": OVER, "b": STOPPED}, False),
    ],
)
def test_asked_at_once_a_pack_is_over_if_all_that_wait_are(
    tmp_path: Path, lines: dict[str, MemberRecord], *, is_over: bool
) -> None:
    loop = a_loop(tmp_path, a_job("a"), record=PackRecord(members=dict(lines)))

    assert loop.run(lambda: True) is is_over
