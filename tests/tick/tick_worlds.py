"""A state directory, fake Slurm programs, and ticks over both."""

from __future__ import annotations

import itertools
import json
import os
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from msgspec import structs

from freetrain.broker.lease import LeaseKey, uuid_in
from freetrain.config.document import Places
from freetrain.config.job import parse_job, render_job
from freetrain.config.site import Site
from freetrain.demo.fake_slurm.cluster import Job
from freetrain.state.database import open_store, read_store, transaction
from freetrain.state.files import (
    AgentState,
    Heartbeat,
    StateDir,
    newest_assigned,
    render_environment,
    write_heartbeat,
)
from freetrain.state.leader import TickProcess
from freetrain.state.tables import TrainerRow, TrainerState, put_trainers, trainers
from freetrain.tick.environment import Environment
from freetrain.tick.tick import tick
from slurm.command_line import CommandLine
from slurm.runner import SubprocessRunner
from tests.fakes.slurm.installing import USER, FakeSlurm, install
from tests.tick.at_hand import AtHand

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

    from freetrain.config.job import TrainerJob
    from freetrain.state.files import Assigned
    from freetrain.tick.environment import HookCall
    from freetrain.tick.tick import TickReport
    from slurm.backend import SlurmBackend

UID = os.getuid()


@dataclass(slots=True)
class TickWorld:
    """What ticks are tried on.

    Attributes:
        folder: The state directory.
        slurm: The fake programs.
        site: The site's settings.
        now_s: slurmctld's clock, for Slurm at hand.
        skew_s: How far this host's clock is ahead of it.
        is_at_hand: Whether Slurm is asked without starting programs.
        timeout_s: How long a command may take.
        command_s: How long a command takes, for Slurm at hand.
        reached: Called before and after each effect.
        said_by_hook: What calling a hook returns; calls are counted in a file.
        beats: Counts heartbeats up.
    """

    folder: StateDir
    slurm: FakeSlurm
    site: Site
    now_s: float = 1_900_000_000.0
    skew_s: float = 0.0
    is_at_hand: bool = True
    timeout_s: float = 30.0
    command_s: float = 1.0
    reached: Callable[[str], None] = lambda _: None
    said_by_hook: str = ""
    beats: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def environment(self) -> Environment:
        return Environment(
            now_s=lambda: self.now_s + self.skew_s,
            clock=itertools.count().__next__,
            process=TickProcess("host", os.getpid(), "boot"),
            is_alive=lambda _: False,
            new_uuid=lambda: str(uuid4()),
            connect=self.connect,
            uid=UID,
            path="/usr/bin:/bin",
            home="/home/ada",
            python="/usr/bin/python3",
            peak_rss_bytes=lambda: 0,
            call=self._call,
            reached=self.reached,
        )

    def connect(self, most_requests: int) -> SlurmBackend:
        return CommandLine(
            AtHand(self.slurm.folder, self._passing_s)
            if self.is_at_hand
            else SubprocessRunner(self.slurm.environ),
            user=USER,
            timeout_s=self.timeout_s,
            max_requests=most_requests,
        )

    def _call(self, call: HookCall) -> str:
        with (self.folder.path / "calls").open("a") as calls:
            told = {k: v for k, v in call.variables.items() if k.startswith("FREE")}
            calls.write(json.dumps([*call.argv, told]) + "\n")
        return self.said_by_hook

    @property
    def hook_calls(self) -> list[list[Any]]:
        try:
            text = (self.folder.path / "calls").read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines()]

    def _passing_s(self) -> float:
        """Let time pass with each command, as in life."""
        self.now_s += self.command_s
        return self.now_s

    def tick(self, *, dry_run: bool = False) -> TickReport:
        return tick(self.site, self.environment, dry_run=dry_run)

    def submit(
        self, name: str, text: str = "", *, most: int = 2, least: int = 1
    ) -> None:
        """Write down a trainer, as ``freetrain submit`` does."""
        nodes = f"[nodes]\nmin = {least}\nmax = {most}\n"
        whole = f'name = "{name}"\ncommand = "true"\n{text}\n{nodes}'
        job = parse_job(whole.encode(), path="job.toml", places=Places(Path("/")))
        self.folder.path.mkdir(mode=0o700, exist_ok=True)
        place = self.folder.trainer(name)
        place.create()
        place.environment.write_bytes(render_environment({"PATH": "/bin"}))
        row = TrainerRow(
            name,
            render_job(job),
            str(self.folder.trainer(name).run.path),
            TrainerState.WANTED,
            1.0,
            1.0,
        )
        self.put(row)

    def put(self, row: TrainerRow) -> None:
        with open_store(self.folder.path, uid=UID) as state, transaction(state):
            put_trainers(state, [row])

    @contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        """The store, for what no command does."""
        with open_store(self.folder.path, uid=UID) as state:
            yield state

    def job(self, name: str) -> TrainerJob:
        text = self.row(name).job.encode()
        return parse_job(text, path=name, places=Places(Path("/")))

    def row(self, name: str) -> TrainerRow:
        with read_store(self.folder.path, uid=UID) as state:
            return next(row for row in trainers(state) if row.name == name)

    def set_state(self, name: str, state: TrainerState) -> None:
        self.put(replace(self.row(name), state=state))

    def live(self) -> list[Job]:
        """Our jobs that wait or run."""
        return [job for job in self.slurm.jobs() if job.is_pending or job.is_running]

    def running(self) -> list[LeaseKey]:
        return [lease_of(job) for job in self.live() if job.is_running]

    def beat(
        self, *keys: LeaseKey, state: AgentState = AgentState.IDLE, trainer: str = ""
    ) -> None:
        """Let agents beat once: all that run, or *keys*."""
        for key in keys or self.running():
            place = self.folder.lease(key)
            place.create()
            beat = Heartbeat(
                beat=next(self.beats),
                t=0.0,
                node="n",
                host="h",
                pid=1,
                state=state,
                trainer=trainer,
            )
            write_heartbeat(place.heartbeat, beat)

    def newest(self, name: str) -> Assigned | None:
        return newest_assigned(self.folder.trainer(name))


def lease_of(job: Job) -> LeaseKey:
    return LeaseKey(uuid_in(job.name) or "", max(job.task, 0))


def theirs(world: TickWorld, **changes: object) -> Job:
    """Return a job of somebody else's, for a minute."""
    made = Job(
        job_id=0,
        name="theirs",
        user="bob",
        partition="freetrain",
        limit_s=60.0,
        run_s=60.0,
        submit_s=world.now_s,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def tick_world(folder: Path, *, is_at_hand: bool = True, **site: object) -> TickWorld:
    """Make a world in *folder*: eight idle nodes and an empty state directory."""
    programs = folder / "fake-slurm"
    programs.mkdir()
    install(programs)
    return again(folder, is_at_hand=is_at_hand, **site)


def again(folder: Path, *, is_at_hand: bool = True, **site: object) -> TickWorld:
    """Return the world in *folder*, perhaps in another process than made it."""
    state = folder / "state"
    plain = Site(state_directory=state)
    lease = structs.replace(plain.lease, partition="freetrain")
    return TickWorld(
        folder=StateDir(state),
        slurm=FakeSlurm(folder / "fake-slurm"),
        is_at_hand=is_at_hand,
        site=structs.replace(plain, **{"lease": lease, **site}),
    )


def running(world: TickWorld, name: str = "a", most: int = 2) -> Assigned:
    """Let a trainer run on *most* nodes."""
    world.submit(name, most=most)
    world.tick()
    world.beat()
    world.tick()
    newest = world.newest(name)
    assert newest is not None
    return newest
