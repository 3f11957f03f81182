"""A state directory, the fake Slurm in this very process, and ticks over both.

The fake Slurm keeps its state on disk like programs do, so that what was done before a
kill stays done.
"""

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
from freetrain.config.document import BaseFolders
from freetrain.config.job import parse_job, render_job
from freetrain.config.site import Site
from freetrain.demo.fake_slurm import cluster as keeping
from freetrain.demo.fake_slurm import commands as programs
from freetrain.demo.fake_slurm.cluster import FakeJob, FakeJobState
from freetrain.demo.fake_slurm.commands import ComplaintError
from freetrain.elastic.checkpoint import Checkpoint, Position, write_checkpoint
from freetrain.state.database import open_store, read_store, transaction
from freetrain.state.files import (
    AgentState,
    AssignedLease,
    AssignmentFile,
    Heartbeat,
    StateDir,
    create_assigned,
    newest_assigned,
    render_environment,
    write_heartbeat,
)
from freetrain.state.tables import (
    TrainerRow,
    TrainerState,
    forecast_state,
    put_trainers,
    trainers,
)
from freetrain.state.turn import TickProcess
from freetrain.tick.environment import TickContext, TickEnvironment
from freetrain.tick.observe import observe
from freetrain.tick.room import make_room
from freetrain.tick.tick import tick
from slurm.backend import CommandLine
from slurm.errors import SlurmRefusedError, SlurmUnavailableError
from slurm.runner import SubprocessRunner
from tests.fakes.slurm.installing import USER, FakeSlurm, install
from tests.fakes.slurm.state import Act, opened
from tests.state.events import events_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Sequence

    from freetrain.config.job import TrainerJob
    from freetrain.elastic.files import RunDir
    from freetrain.state.files import TrainerDir
    from freetrain.state.tables import Event
    from freetrain.tick.environment import HookCall
    from freetrain.tick.observe import Observed
    from freetrain.tick.status_report import StatusReport
    from freetrain.tick.tick import TickReport
    from slurm.backend import SlurmBackend

UID = os.getuid()
NOW_S = 1_900_000_000.0


@dataclass(frozen=True, slots=True)
class FakeRunner:
    """A ``slurm.runner.Runner`` that asks the fake Slurm without starting programs.

    Attributes:
        folder: The fake Slurm's.
        now_s: Its clock.
    """

    folder: Path
    now_s: Callable[[], float]

    def run(self, argv: Sequence[str], *, timeout_s: float) -> str:
        del timeout_s
        program, *words = argv
        with opened(self.folder) as script:
            script.calls.append(list(argv))
            act = script.take_act(program)
        if act is Act.HANG:
            raise SlurmUnavailableError(f"`{program}` did not answer")
        if act is Act.REFUSE:
            said = f"{program}: error: Access/permission denied"
            raise SlurmRefusedError(said, said=said)
        try:
            answer = programs.answer(self.folder, program, words, now_s=self.now_s())
        except ComplaintError as complaint:
            raise SlurmRefusedError(str(complaint), said=str(complaint)) from complaint
        if act is Act.HANG_AFTER:
            raise SlurmUnavailableError(f"`{program}` did not answer")
        return answer


ELSEWHERE = TickProcess("elsewhere", 1, "boot")
"""A process that ticks on another host."""


@dataclass(slots=True)
class TickWorld:
    """What ticks are tried on.

    Attributes:
        folder: The state directory.
        slurm: The fake Slurm.
        site: The site's settings.
        now_s: slurmctld's clock, where no programs are started.
        skew_s: How far this host's clock is ahead of it.
        is_at_hand: Whether Slurm is asked without starting programs.
        timeout_s: How long a command may take.
        command_s: How long a command takes, where no programs are started.
        reached: Called before and after each effect.
        hook_problem: What calling a hook returns; calls are counted in a file.
        beats: Counts heartbeats up.
    """

    folder: StateDir
    slurm: FakeSlurm
    site: Site
    now_s: float = NOW_S
    skew_s: float = 0.0
    is_at_hand: bool = True
    timeout_s: float = 30.0
    command_s: float = 1.0
    reached: Callable[[str], None] = lambda _: None
    hook_problem: str = ""
    beats: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def environment(self) -> TickEnvironment:
        return TickEnvironment(
            now_s=lambda: self.now_s + self.skew_s,
            clock=itertools.count().__next__,
            process=TickProcess("host", os.getpid(), "boot"),
            is_alive=lambda _: False,
            new_uuid=lambda: str(uuid4()),
            connect=self.connect,
            uid=UID,
            user=USER,
            path="/usr/bin:/bin",
            home="/home/ada",
            python="/usr/bin/python3",
            peak_rss_bytes=lambda: 0,
            call=self._call,
            reached=self.reached,
            sleep=self._sleep,
        )

    def connect(self, most_requests: int) -> SlurmBackend:
        return CommandLine(
            FakeRunner(self.slurm.folder, self._passing_s)
            if self.is_at_hand
            else SubprocessRunner(self.slurm.environ),
            timeout_s=self.timeout_s,
            max_requests=most_requests,
        )

    def _passing_s(self) -> float:
        """Let time pass with each command, as in life."""
        self.now_s += self.command_s
        return self.now_s

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def _call(self, call: HookCall) -> str:
        with (self.folder.path / "calls").open("a") as calls:
            ours = {k: v for k, v in call.variables.items() if k.startswith("FREE")}
            calls.write(json.dumps([*call.argv, ours]) + "\n")
        return self.hook_problem

    @property
    def hook_calls(self) -> list[list[Any]]:
        try:
            text = (self.folder.path / "calls").read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines()]

    def tick(self, *, dry_run: bool = False) -> TickReport:
        return tick(self.site, self.environment, dry_run=dry_run)

    def status(self) -> StatusReport:
        """Tick; return the status report."""
        return self.tick().status

    def change(self, part: str, **changes: object) -> None:
        """Change one part of the site's settings, such as ``lease``."""
        changed = structs.replace(getattr(self.site, part), **changes)
        self.site = structs.replace(self.site, **{part: changed})

    # Trainers.

    def submit(
        self,
        name: str = "a",
        text: str = "",
        *,
        most: int = 2,
        least: int = 1,
        nodes: str = "",
    ) -> RunDir:
        """Record a trainer, as ``freetrain submit`` does; return where it runs."""
        nodes = f"[nodes]\nmin = {least}\nmax = {most}\n{nodes}\n"
        whole = f'name = "{name}"\ncommand = "true"\n{text}\n{nodes}'
        job = parse_job(whole.encode(), path="job.toml", places=BaseFolders(Path("/")))
        self.folder.path.mkdir(mode=0o700, exist_ok=True)
        place = self.folder.trainer(name)
        place.create()
        place.environment.write_bytes(render_environment({"PATH": "/bin"}))
        state, run_dir = TrainerState.WANTED, str(place.run.path)
        self.put(TrainerRow(name, render_job(job), run_dir, state, 1.0, 1.0))
        return place.run

    def put(self, row: TrainerRow) -> None:
        with self.writing() as state:
            put_trainers(state, [row])

    def row(self, name: str = "a") -> TrainerRow:
        with self.reading() as state:
            return next(row for row in trainers(state) if row.name == name)

    def set_state(self, name: str, state: TrainerState) -> None:
        self.put(replace(self.row(name), state=state))

    def job(self, name: str = "a") -> TrainerJob:
        text = self.row(name).job.encode()
        return parse_job(text, path=name, places=BaseFolders(Path("/")))

    def generation(self, name: str = "a") -> int:
        """The number of a trainer's newest generation; 0 before the first."""
        found = newest_assigned(self.folder.trainer(name))
        return 0 if found is None else found.generation

    def newest(self, name: str = "a") -> AssignmentFile:
        """A trainer's newest generation, which there must be."""
        found = newest_assigned(self.folder.trainer(name))
        assert found is not None
        return found

    def nodes(self, name: str = "a") -> set[str]:
        """The nodes of a trainer's newest generation; none before the first."""
        found = newest_assigned(self.folder.trainer(name))
        return set() if found is None else {member.node for member in found.members}

    # Leases.

    def live(self) -> list[FakeJob]:
        """Our jobs that wait or run."""
        return [job for job in self.slurm.jobs() if job.is_pending or job.is_running]

    def running(self) -> list[LeaseKey]:
        return [lease_of(job) for job in self.live() if job.is_running]

    def change_jobs(self, *, first: int | None = None, **changes: object) -> None:
        """Change the first jobs of the fake Slurm, all by default."""
        with keeping.opened(self.slurm.folder) as cluster:
            for job in cluster.jobs[:first]:
                for name, value in changes.items():
                    setattr(job, name, value)

    def end_jobs(self) -> None:
        """Let all jobs of the fake Slurm come to their end."""
        with keeping.opened(self.slurm.folder) as cluster:
            for job in cluster.jobs:
                if job.is_running:
                    job.state, job.end_s = FakeJobState.COMPLETED, self.now_s

    def go_on(self, ticks: int, *, every_s: float = 0.0) -> None:
        """Beat and tick, so many times."""
        for _ in range(ticks):
            self.now_s += every_s
            self.beat()
            self.tick()

    def beat(
        self,
        *keys: LeaseKey,
        state: AgentState = AgentState.IDLE,
        trainer: str = "",
        generation: int = 0,
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
                generation=generation,
            )
            write_heartbeat(place.heartbeat, beat)

    # The store.

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with read_store(self.folder.path, uid=UID) as state:
            yield state

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The store, for what no command does."""
        with open_store(self.folder.path, uid=UID) as state, transaction(state):
            yield state

    def events(self, subject: str) -> tuple[Event, ...]:
        """What happened to a trainer, a lease or a submission, the oldest first."""
        with self.reading() as state:
            return events_of(state, subject)

    def forecast(self) -> dict[str, Any]:
        """What was learned of nodes, as it is kept."""
        with self.reading() as state:
            found: dict[str, Any] = json.loads(forecast_state(state) or "{}")
        return found


def lease_of(job: FakeJob) -> LeaseKey:
    return LeaseKey(uuid_in(job.name) or "", max(job.task, 0))


def theirs(world: TickWorld, **changes: object) -> FakeJob:
    """Return a job of another user, for a minute."""
    made = FakeJob(
        job_id=0,
        name="theirs",
        user="bob",
        partition="freetrain",
        limit_s=60.0,
        run_s=60.0,
        submit_s=world.now_s,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@contextmanager
def observing(world: TickWorld) -> Iterator[tuple[TickContext, Observed]]:
    """Observe as a tick does, and let its state be read as long as the block lasts."""
    with world.reading() as state:
        context = TickContext(
            site=world.site,
            environment=world.environment,
            folder=world.folder,
            state=state,
            backend=world.connect(20),
            turn=None,
        )
        room = make_room(
            context.site,
            context.environment,
            context.backend,
            is_dry=True,
            notified_before={},
        )
        yield context, observe(context, room)


def tick_world(folder: Path, *, is_at_hand: bool = True, **site: object) -> TickWorld:
    """Make a world in *folder*: eight idle nodes and an empty state directory."""
    place = folder / "fake-slurm"
    place.mkdir()
    install(place)
    return again(folder, is_at_hand=is_at_hand, **site)


def again(folder: Path, *, is_at_hand: bool = True, **site: object) -> TickWorld:
    """Return the world in *folder*, perhaps in another process than made it."""
    state = folder / "state"
    plain = Site(state_directory=state)
    lease = structs.replace(plain.lease, partition="freetrain")
    # Trainers get all their nodes at once, though nothing was measured.
    planner = structs.replace(plain.planner, profile=False)
    return TickWorld(
        folder=StateDir(state),
        slurm=FakeSlurm(folder / "fake-slurm"),
        is_at_hand=is_at_hand,
        site=structs.replace(plain, **{"lease": lease, "planner": planner, **site}),
    )


def running(
    world: TickWorld, name: str = "a", most: int = 2, text: str = ""
) -> AssignmentFile:
    """Let a trainer run on *most* nodes."""
    world.submit(name, text, most=most)
    world.tick()
    world.beat()
    world.tick()
    return world.newest(name)


def pass_by(world: TickWorld, for_s: float, *, every_s: float = 200.0) -> None:
    """Tick on while time passes."""
    until_s = world.now_s + for_s
    while world.now_s < until_s:
        world.go_on(1, every_s=every_s)


def taken(world: TickWorld, *nodes: str, run_s: float = 300.0) -> None:
    """Let another user's job have *nodes* for a while, at once."""
    job = theirs(world, partition="main", run_s=run_s, limit_s=run_s)
    job.due_s, job.wanted = world.now_s, list(nodes)
    world.slurm.standin.add([job])
    pass_by(world, 2.0 * run_s)


# What trainers leave behind: reports of progress, checkpoints, generations.

PRINTS = """
elastic = false
[progress]
format = "pattern"
pattern = '{pattern}'
"""


def tell(
    run_dir: RunDir,
    *losses: float,
    since: int = 0,
    generation: int = 1,
    step_s: float = 1.0,
) -> None:
    """Report a loss a step, ten samples and *step_s* each, after the step *since*."""
    run_dir.create()
    with run_dir.progress.open("a") as file:
        for step, loss in enumerate(losses, since + 1):
            line: dict[str, Any] = {
                "t": NOW_S + since + step_s * (step - since),
                "step": step,
                "samples": 10 * step,
                "epoch": 0,
                "generation": generation,
                "world_size": 2,
                "loss": loss if abs(loss) < 1e300 else None,
            }
            if line["loss"] is None:
                line["nonfinite"] = {"loss": str(loss)}
            file.write(json.dumps(line) + "\n")


def printing(world: TickWorld, pattern: str, more: str = "") -> None:
    """Submit the trainer ``a``, which prints its progress."""
    world.submit("a", PRINTS.format(pattern=pattern) + more)


def printed(world: TickWorld, text: str, *, generation: int = 1) -> None:
    """Let it print *text*."""
    log = world.folder.trainer("a").logs / f"{generation:010d}.log"
    with log.open("a") as file:
        file.write(text)


def commit(run_dir: RunDir, step: int, *, generation: int = 1) -> Path:
    """Leave a checkpoint of *step* steps."""
    run_dir.create()
    path = run_dir.checkpoints / f"{generation:010d}-{step:015d}.npz"
    position = Position(step=step, samples=10 * step)
    with path.open("w+b") as file:
        write_checkpoint(Checkpoint(generation, position, {}, {"x": step}), file)
    return path


def assigned(folder: TrainerDir, generation: int, nodes: int, *, at_s: float) -> None:
    """Make a generation of a trainer, so long after ``NOW_S``."""
    members = tuple(
        AssignedLease(key=LeaseKey("u", n), job_id=n, display_id=str(n), node=f"n{n}")
        for n in range(1, nodes + 1)
    )
    made = AssignmentFile(
        trainer=folder.path.name,
        generation=generation,
        members=members,
        created_s=NOW_S + at_s,
        author="broker",
        reason="as tests do",
    )
    create_assigned(folder, made)
