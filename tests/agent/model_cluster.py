"""Leases, agents and worlds in one made-up world with a clock of its own.

The agents are the real ones; only files, processes, Slurm and time are made up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from freetrain.agent.agent import Agent, OwnLease
from freetrain.agent.environment import Environment
from freetrain.agent.marks import Mark, MarkedProcess
from freetrain.agent.observation import Patience
from freetrain.broker.lease import LeaseKey
from freetrain.config.job import Nodes, Stop, TrainerJob
from freetrain.state.files import BROKER, AgentState, Assigned, Member
from tests.agent.model_board import ModelBoard
from tests.agent.model_spare import ModelSpare
from tests.agent.model_world import ModelWorld

if TYPE_CHECKING:
    from collections.abc import Callable
    from signal import Signals

    from freetrain.agent.board import Board

STEP_S = 0.1
TRAINER = "t"
GRACE_S = 10.0
PATIENCE = Patience()


def a_job(name: str = TRAINER) -> TrainerJob:
    return TrainerJob(
        name=name,
        command=("train",),
        directory=Path("/"),
        nodes=Nodes(max_nodes=8),
        stop=Stop(kill_after_s=5.0),
    )


@dataclass(slots=True)
class ModelLease:
    """A lease's job: its agent runs until the job ends.

    Attributes:
        key: The lease.
        agent: Its agent.
        is_alive: Whether the job runs.
        frozen_until_s: Until when its agent is stopped.
        cut_until_s: Until when its agent cannot use the files.
        told_s: When Slurm announced its end, if it did.
        dies_s: When Slurm ends it whatever it does.
        ended_s: When it ended.
    """

    key: LeaseKey
    agent: Agent | None = None
    is_alive: bool = True
    frozen_until_s: float = 0.0
    cut_until_s: float = 0.0
    told_s: float | None = None
    dies_s: float | None = None
    ended_s: float | None = None
    spares: list[ModelSpare] = field(default_factory=list)
    is_forced: bool = False

    @property
    def spare(self) -> str:
        """The trainer whose spare it has; empty for none."""
        return "".join(s.trainer for s in self.spares if s.exit_code is None)


@dataclass(slots=True)
class ModelCluster:
    """The world.

    Attributes:
        board: The files.
        now_s: The time.
        leases: All leases that ever were.
        worlds: All worlds that ever were, by trainer and generation.
        launches: What was launched while what else was there and not over.
        log: What agents said.
        launched_s: When worlds were launched.
        fails_s: After which time of training every world fails by itself.
        ignores_stop: Whether worlds do not obey.
        hangs: Whether worlds never begin.
    """

    board: ModelBoard = field(default_factory=ModelBoard)
    now_s: float = 1000.0
    leases: dict[LeaseKey, ModelLease] = field(default_factory=dict)
    worlds: dict[tuple[str, int], ModelWorld] = field(default_factory=dict)
    launches: list[tuple[int, tuple[int, ...], int | None]] = field(
        default_factory=list
    )
    log: list[str] = field(default_factory=list)
    launched_s: list[float] = field(default_factory=list)
    fails_s: float = 1e9
    ignores_stop: bool = False
    hangs: bool = False

    def add_lease(self, *, limit_s: float = 1e6) -> LeaseKey:
        key = LeaseKey("u", len(self.leases))
        lease = OwnLease(
            key=key,
            node=f"n{key.task}",
            host="host",
            pid=key.task + 1,
            limit_s=limit_s,
            grace_s=GRACE_S,
        )
        self.leases[key] = ModelLease(key)
        board = cast("Board", Line(self, key))
        agent = Agent(lease, board, ModelEnvironment(self, key), PATIENCE)
        self.leases[key].agent = agent
        return key

    def add_trainer(self, job: TrainerJob | None = None) -> None:
        job = job or a_job()
        self.board.jobs[job.name] = job

    def member(self, key: LeaseKey) -> Member:
        node = f"n{key.task}"
        return Member(key=key, job_id=key.task + 100, display_id="1", node=node)

    def assign(self, *keys: LeaseKey, trainer: str = TRAINER) -> bool:
        """Do what the broker does: make the next generation."""
        found = self.board.generations(trainer)
        assigned = Assigned(
            trainer=trainer,
            generation=found[-1] + 1 if found else 1,
            members=tuple(map(self.member, keys)),
            created_s=self.now_s,
            author=BROKER,
            reason="",
        )
        return self.board.propose(assigned)

    def newest(self, trainer: str = TRAINER) -> Assigned:
        return self.board.made[trainer, self.board.generations(trainer)[-1]]

    def living(self) -> list[LeaseKey]:
        return [lease.key for lease in self.leases.values() if lease.is_alive]

    def tell(self, key: LeaseKey) -> None:
        """Announce the end of a lease, as Slurm does when it preempts."""
        lease = self.leases[key]
        if lease.told_s is None:
            lease.told_s, lease.dies_s = self.now_s, self.now_s + GRACE_S + 1

    def end_lease(self, key: LeaseKey, *, goodbye: bool = False) -> None:
        """End a lease's job with all its processes."""
        lease = self.leases[key]
        if lease.is_alive:
            lease.is_alive, lease.ended_s = False, self.now_s
            for world in self.worlds.values():
                world.lose_node(key)
        beat = self.board.beats.get(key)
        if goodbye and beat is not None:
            gone = {f: getattr(beat, f) for f in beat.__slots__}
            gone |= {"beat": beat.beat + 1, "state": AgentState.ENDED}
            self.board.beats[key] = type(beat)(**gone)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.step()

    def run_until(self, is_so: Callable[[], bool], *, limit_s: float = 120.0) -> None:
        until_s = self.now_s + limit_s
        while not is_so():
            if self.now_s >= until_s:
                raise AssertionError("it never was so:\n" + "\n".join(self.log))
            self.step()

    def step(self) -> None:
        self.now_s += STEP_S
        for lease in list(self.leases.values()):
            if lease.dies_s is not None and self.now_s >= lease.dies_s:
                self.end_lease(lease.key)
            is_awake = lease.is_alive and self.now_s >= lease.frozen_until_s
            if is_awake and lease.agent is not None and lease.agent.turn():
                self.end_lease(lease.key)
        for world in list(self.worlds.values()):
            world.step()

    def training(self, trainer: str = TRAINER) -> list[int]:
        """Return the generations that train, and are not fenced."""
        claimed = [g for (t, g), w in self.worlds.items() if t == trainer and w.began]
        newest = max(claimed, default=0)
        world = self.worlds.get((trainer, newest))
        return [newest] if world is not None and world.is_training else []


@dataclass(frozen=True, slots=True)
class Line:
    """The files as one lease reaches them, or not."""

    cluster: ModelCluster
    key: LeaseKey

    def __getattr__(self, name: str) -> object:
        cluster = self.cluster
        if cluster.now_s < cluster.leases[self.key].cut_until_s:
            raise OSError("the files cannot be reached")
        return getattr(cluster.board, name)


@dataclass(frozen=True, slots=True)
class ModelEnvironment(Environment):
    """The environment of one lease."""

    cluster: ModelCluster
    key: LeaseKey

    def elapsed_s(self) -> float:
        return self.cluster.now_s + self.key.task * 1000  # clocks are never compared

    def unix_s(self) -> float:
        return self.cluster.now_s

    def is_preempted(self) -> bool:
        return self.cluster.leases[self.key].told_s is not None

    def launch(
        self,
        job: TrainerJob,
        assigned: Assigned,
        *,
        after: int | None,
        is_forked: bool,
    ) -> ModelWorld:
        cluster, where = self.cluster, (assigned.trainer, assigned.generation)
        others = tuple(
            g
            for (t, g), world in cluster.worlds.items()
            if t == where[0]
            and world.exit_code is None
            and (t, g) not in (cluster.board.over)
        )
        cluster.launches.append((assigned.generation, others, after))
        if where in cluster.worlds:
            raise AssertionError(f"{where} launched twice")
        world = ModelWorld(
            cluster, where, tuple(m.key for m in assigned.members), after
        )
        world.is_forked = is_forked
        world.elastic, world.fails_s = job.elastic, cluster.fails_s
        world.ignores_stop, world.hangs = cluster.ignores_stop, cluster.hangs
        cluster.launched_s.append(cluster.now_s)
        cluster.worlds[where] = world
        return world

    def start_spare(
        self, job: TrainerJob, assigned: Assigned, lease: LeaseKey
    ) -> ModelSpare:
        assert job.name == assigned.trainer
        assert lease == self.key
        assert not self.cluster.leases[lease].spare
        spare = ModelSpare(assigned.trainer)
        self.cluster.leases[lease].spares.append(spare)
        return spare

    def is_spare_ready(self, lease: LeaseKey) -> bool:
        return bool(self.cluster.leases[lease].spare)

    def processes(self) -> tuple[MarkedProcess, ...]:
        return tuple(
            MarkedProcess(
                100 * g + key.task, 0, Mark(key, t, g), is_stopped=key in w.frozen
            )
            for (t, g), w in self.cluster.worlds.items()
            for key in w.ranks
            if key == self.key
        )

    def send(self, process: MarkedProcess, number: Signals) -> None:
        self.cluster.worlds[process.mark.world].hear(process.mark.lease, number)

    def end_lease(self, member: Member) -> None:
        self.cluster.log.append(f"{self.cluster.now_s:.1f} end lease {member.key.task}")
        self.cluster.end_lease(member.key)

    def stop_listening(self) -> None:
        pass

    def end_own_job(self) -> None:
        self.cluster.leases[self.key].is_forced = True
        self.cluster.end_lease(self.key)

    def wait(self, seconds: float) -> None:
        del seconds

    def log(self, text: str) -> None:
        self.cluster.log.append(f"{self.cluster.now_s:.1f} {self.key.task}: {text}")
