"""The loop of a pack: times, pauses, shares and requests to stop."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from freetrain.config.job import (
    CheckpointSettings,
    NodeSettings,
    ProgressFormat,
    ProgressSettings,
    TrainerJob,
)
from freetrain.elastic.files import Clock, RunDir
from freetrain.pack import cpu_controllers
from freetrain.pack.cpu_controllers import (
    DutyCycleController,
    signal_all,
    this_packer,
)
from freetrain.pack.exchange import PackExchange
from freetrain.pack.pack import (
    Inbox,
    MemberRecord,
    Pack,
    PackRecord,
    SharingName,
    read_record,
)
from freetrain.pack.run import PackLoop, RunningMember, Sharing, Workers, sweep
from freetrain.priority.flowcon import FlowConState, GrowthTrack, to_json
from freetrain.priority.migration import MoveRule
from freetrain.progress import ProgressReader
from tests.pack.packs import TOP

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


class NotingController(DutyCycleController):
    def __init__(self) -> None:
        super().__init__(1, signal_all)
        self.noted: list[dict[str, float]] = []

    def set_shares(self, shares: Mapping[str, float]) -> None:
        self.noted.append(dict(shares))
        super().set_shares(shares)


class World:
    """The loop of a pack in a folder, on a clock that runs a hundred times too fast."""

    def __init__(
        self,
        folder: Path,
        *names: str,
        record: PackRecord | None = None,
        exchange: PackExchange | None = None,
    ) -> None:
        self.run = RunDir(folder)
        self.go = folder / "go"
        self.now_s = 0.0
        self.controller = NotingController()
        waiting = [self.job(name) for name in reversed(names)]
        kept = record or PackRecord()
        how = SharingName.FLOWCON if kept.sharing else SharingName.FAIR
        self.workers = Workers(
            run=self.run,
            home=self.run,
            generation=1,
            packer=this_packer("0123456789abcdef"),
            controller=self.controller,
            cpus=1,
            environment=dict(os.environ),
            clock=Clock(lambda: self.now_s, lambda: self.now_s, self._sleep),
        )
        self.loop = PackLoop(
            Pack(),
            self.workers,
            arrivals=lambda: tuple(waiting.pop() for _ in list(waiting)),
            sharing=Sharing(Pack(sharing=how), kept.sharing),
            record=kept,
            say=lambda _: None,
            exchange=exchange,
        )

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds
        time.sleep(seconds / QUICKER)

    def job(self, name: str) -> TrainerJob:
        """A trainer that reports six steps once the file ``go`` is there."""
        return TrainerJob(
            name=name,
            command=(sys.executable, "-c", REPORTS, str(self.go)),
            directory=TOP,
            nodes=NodeSettings(max_nodes=1),
            elastic=False,
            checkpoint=CheckpointSettings(path=self.run.path / f"{name}.npz"),
            progress=ProgressSettings(
                form=ProgressFormat.PATTERN, pattern=r"step (?P<step>\d+)"
            ),
        )

    def member(self) -> MemberRecord | None:
        return read_record(self.run).members.get("a")


def test_the_record_is_kept_while_no_member_comes_or_goes(tmp_path: Path) -> None:
    world = World(tmp_path, "a")

    def is_reported() -> bool:
        if world.now_s > 1.0:  # the first shares are set, and kept
            world.go.touch()
        line = world.member()
        return (line is not None and line.steps == 5) or world.now_s > 600.0

    world.loop.run(is_reported)

    assert world.now_s < 600.0


def test_the_shares_of_one_generation_are_those_of_the_next_from_its_beginning(
    tmp_path: Path,
) -> None:
    shares = {"a": 0.75, "b": 0.25}
    tracks = tuple(
        GrowthTrack(name=n, measured_s=0.0, share=part) for n, part in shares.items()
    )
    record = PackRecord(
        sharing=to_json(FlowConState(tracks, due_s=1e6)),
        shares=shares,
        members={name: replace(STOPPED) for name in shares},
    )
    world = World(tmp_path, "a", "b", record=record)

    world.loop.run(lambda: world.now_s > 5.0)

    # At the end all have the same, to stop with.
    assert world.controller.noted == [shares, {"a": 0.5, "b": 0.5}]


def test_a_pause_is_kept_from_one_generation_to_the_next(tmp_path: Path) -> None:
    record = PackRecord(members={"a": replace(FAILED, again_s=50.0)})
    world = World(tmp_path, "a", record=record)

    def is_started() -> bool:
        line = world.member()
        return (line is not None and not line.end) or world.now_s > 600.0

    world.loop.run(is_started)

    assert 50.0 <= world.now_s < 600.0


def test_a_member_that_waits_to_be_started_again_keeps_its_pack_from_being_over(
    tmp_path: Path,
) -> None:
    record = PackRecord(members={"a": replace(FAILED, again_s=1e6)})
    world = World(tmp_path, "a", record=record)

    assert world.loop.run(lambda: world.now_s > 20.0) is False
    assert world.now_s > 20.0


@pytest.mark.parametrize(
    ("members", "is_over"),
    [
        ({}, False),  # asked before any member was started
        ({"a": STOPPED}, False),
        ({"a": OVER}, True),
        ({"b": OVER}, False),
        ({"a": OVER, "b": STOPPED}, False),
    ],
)
def test_asked_at_once_a_pack_is_over_if_all_members_are(
    tmp_path: Path, members: dict[str, MemberRecord], *, is_over: bool
) -> None:
    world = World(tmp_path, "a", record=PackRecord(members=dict(members)))

    assert world.loop.run(lambda: True) is is_over


def exchange_of(folder: Path, *names: str) -> PackExchange:
    """Return the part of the pack ``us`` of *names* in an exchange."""
    files = tuple(folder / f"{name}.toml" for name in names)
    for file in files:
        file.write_text(
            f'name = "{file.stem}"\ncommand = ["x"]\nelastic = false\n'
            f"[nodes]\nmax = 1\n"
        )
    return PackExchange(
        folder / "exchange",
        pack="us",
        rule=MoveRule.BALANCE,
        inbox=Inbox(Pack(members=files), home=None, say=lambda _: None),
        say=lambda _: None,
    )


def test_a_member_that_the_other_pack_does_not_take_goes_on_where_it_was(
    tmp_path: Path,
) -> None:
    exchange = exchange_of(tmp_path, "a", "b")
    world = World(tmp_path, "a", "b", exchange=exchange)
    (tmp_path / "exchange" / "packs" / "them.json").write_text(
        '{"load": {"pack": "them", "cpus": 1}}'
    )
    owners = tmp_path / "exchange" / "members" / "b" / "owners"
    seen: dict[int, float] = {}

    def is_later() -> bool:
        for number in (2, 3):
            if (owners / f"{number:010d}.json").exists():
                seen.setdefault(number, world.now_s)
        return world.now_s > seen.get(3, 600.0) + 70.0

    assert world.loop.run(is_later) is False
    assert 29.0 < seen[3] - seen[2] < 40.0
    assert (tmp_path / "members" / "b" / "logs" / "0000000002.log").exists()
    assert len(list(owners.iterdir())) == 3  # and is not offered again


def test_a_member_that_comes_back_to_a_killed_pack_goes_on_behind_the_others_work(
    tmp_path: Path,
) -> None:
    owner = tmp_path / "exchange" / "members" / "a" / "owners" / "0000000005.json"
    owner.parent.mkdir(parents=True)
    owner.write_text(
        f'{{"number": 5, "pack": "them", "job": "{tmp_path}/a.toml", "to": "us", '
        f'"generation": 20, "steps": 30}}'
    )
    known = MemberRecord(arrived_s=0.0, generation=4, steps=9)  # no end: it was killed
    exchange = exchange_of(tmp_path, "a")
    record = PackRecord(members={"a": known})
    world = World(tmp_path, "a", record=record, exchange=exchange)

    world.loop.run(lambda: world.now_s > 5.0)

    assert (known.generation, known.others_steps) == (21, 21)


def test_a_request_to_stop_that_could_not_be_written_is_written_later(
    tmp_path: Path,
) -> None:
    run = RunDir(tmp_path)
    run.control.touch()
    sleeping = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(sleeping) as process:  # noqa: S603 -- a test's own words
        world = World(tmp_path)
        workers = world.workers
        job = msgspec.structs.replace(world.job("a"), elastic=True)
        reader = ProgressReader(job, tmp_path, tmp_path)
        member = RunningMember(job, run, tmp_path / "log", 3, process, reader)
        workers.members["a"] = member
        workers.ask_to_stop("a")
        workers.kill_late()
        run.control.unlink()
        workers.kill_late()
        process.kill()
    assert run.stop_request(3).exists()


def test_processes_of_members_are_looked_for_again_where_not_all_were_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = this_packer("0123456789abcdef")
    dead = replace(ours, started=ours.started - 1)
    sleeping = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
    left, child = [subprocess.Popen(sleeping) for _ in "ab"]  # noqa: S603 -- a test's own words
    marks = {left: f"{dead.label}/a", child: f"{ours.label}/a"}
    looks = 0

    def seen(wanted: bytes) -> Iterator[tuple[int, bytes]]:
        nonlocal looks
        looks += 1
        if looks % 3:
            raise BlockingIOError(errno.EAGAIN, "a process is still being started")
        for process, mark in marks.items():
            if process.poll() is None:
                yield process.pid, wanted + mark.encode()

    monkeypatch.setattr(cpu_controllers, "environments", seen)
    try:
        sweep(ours, Clock())
        assert (left.wait(10), child.poll()) == (-signal.SIGKILL, None)
        until_looks = looks + 5
        World(tmp_path, "a").loop.run(lambda: looks > until_looks)
        assert child.wait(10) == -signal.SIGKILL
    finally:
        for process in marks:
            process.kill()
            process.wait()
