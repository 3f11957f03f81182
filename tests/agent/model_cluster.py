"""Leases, agents, files and worlds in one made-up world with a clock of its own.

The agents are the real ones; only files, processes, Slurm and time are made up.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from freetrain.agent.agent import Agent
from freetrain.agent.board import Board, Listing, UnknownNowError, answers_as_before
from freetrain.agent.environment import Environment, Mark, MarkedProcess
from freetrain.agent.observation import Patience
from freetrain.agent.observer import OwnLease
from freetrain.broker.lease import LeaseKey
from freetrain.config.job import NodeSettings, StopSettings, TrainerJob
from freetrain.state.files import (
    AgentState,
    AssignedLease,
    AssignmentFile,
    EndingKind,
    StateDir,
    TickSign,
)
from tests.state.endings import a_lease, an_assignment

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from signal import Signals

    from freetrain.state.files import GenerationEnding, Heartbeat


STEP_S = 0.1
TRAINER = "t"
GRACE_S = 10.0
PATIENCE = Patience()


def a_job(name: str = TRAINER) -> TrainerJob:
    return TrainerJob(
        name=name,
        command=("train",),
        directory=Path("/"),
        nodes=NodeSettings(max_nodes=8),
        stop=StopSettings(kill_after_s=5.0),
    )


def training_on(
    nodes: int,
    *,
    more: int = 0,
    job: TrainerJob | None = None,
    **how: Any,  # noqa: ANN401 -- fields
) -> tuple[ModelCluster, list[LeaseKey]]:
    """Return a world whose trainer trains on *nodes*, and its and *more* leases."""
    cluster = ModelCluster(**how)
    cluster.add_trainer(job)
    keys = [cluster.add_lease() for _ in range(nodes + more)]
    cluster.assign(*keys[:nodes])
    cluster.run_until(lambda: cluster.training() == [1])
    return cluster, keys


@dataclass(slots=True)
class ModelBoard(Board):
    """Holds what files would hold, by trainer and generation."""

    jobs: dict[str, TrainerJob] = field(default_factory=dict)
    made: dict[tuple[str, int], AssignmentFile] = field(default_factory=dict)
    over: dict[tuple[str, int], GenerationEnding] = field(default_factory=dict)
    notes: set[tuple[str, int, LeaseKey]] = field(default_factory=set)
    ready: set[tuple[str, int]] = field(default_factory=set)
    begun: set[tuple[str, int]] = field(default_factory=set)
    stops: set[tuple[str, int]] = field(default_factory=set)
    outcomes: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=dict)
    beats: dict[LeaseKey, Heartbeat] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    spares: dict[LeaseKey, str] = field(default_factory=dict)
    steps: dict[tuple[str, int], int] = field(default_factory=dict)
    stamps: dict[str, int] = field(default_factory=dict)
    is_full: bool = False
    outputs: dict[tuple[str, int], bytes] = field(default_factory=dict)
    sign: TickSign | None = None
    sign_age_s: float = 0.0

    def tick_sign(self) -> TickSign | None:
        return self.sign

    def tick_sign_age_s(self, lease: LeaseKey) -> float:
        del lease
        return self.sign_age_s

    def trainers(self) -> tuple[str, ...]:
        return tuple(sorted(self.jobs))

    def generations(self, trainer: str) -> tuple[int, ...]:
        return tuple(sorted(g for name, g in self.made if name == trainer))

    def assigned(self, trainer: str, generation: int) -> AssignmentFile:
        if (trainer, generation) not in self.made:
            raise FileNotFoundError(generation)
        return self.made[trainer, generation]

    def endings(self, trainer: str) -> frozenset[int]:
        return frozenset(g for name, g in self.over if name == trainer)

    def ending(self, trainer: str, generation: int) -> GenerationEnding:
        return self.over[trainer, generation]

    def notices(self, trainer: str) -> frozenset[tuple[int, LeaseKey]]:
        return frozenset((g, key) for name, g, key in self.notes if name == trainer)

    def job(self, trainer: str) -> TrainerJob:
        return self.jobs[trainer]

    def steps_reported(
        self, trainer: str, generation: int, *, at_once: bool = False
    ) -> int:
        del at_once
        return self.steps.get((trainer, generation), 0)

    def checkpoint_stamp(self, trainer: str) -> int:
        return self.stamps.get(trainer, 0)

    def can_report(self, trainer: str) -> bool:
        del trainer
        return not self.is_full

    def last_saved_s(self, trainer: str) -> float | None:
        del trainer
        return None

    def last_output(self, trainer: str, generation: int) -> bytes:
        return self.outputs.get((trainer, generation), b"")

    def outcome(self, trainer: str, generation: int) -> str:
        return self.outcomes.get((trainer, generation), ("", 0))[0]

    def is_ready(self, trainer: str, generation: int) -> bool:
        return (trainer, generation) in self.ready

    def has_begun(self, trainer: str, generation: int) -> bool:
        return (trainer, generation) in self.begun | self.ready

    def is_stop_requested(self, trainer: str, generation: int) -> bool:
        return (trainer, generation) in self.stops

    def heartbeat(self, lease: LeaseKey) -> Heartbeat | None:
        return self.beats.get(lease)

    def spare_of(self, lease: LeaseKey) -> str:
        return self.spares.get(lease, "")

    def announce_spare(self, lease: LeaseKey, trainer: str) -> None:
        self.spares[lease] = trainer

    def is_done(self, trainer: str, *, running_s: float) -> bool:
        del running_s
        return trainer in self.done

    def propose(self, assigned: AssignmentFile) -> bool:
        where = (assigned.trainer, assigned.generation)
        return self.made.setdefault(where, assigned) is assigned

    def write_ending(self, trainer: str, ending: GenerationEnding) -> bool:
        return self.over.setdefault((trainer, ending.generation), ending) is ending

    def with_outcome(self, trainer: str, ending: GenerationEnding) -> GenerationEnding:
        said = self.outcomes.get((trainer, ending.generation))
        if said is None:
            return replace(ending, committed_step=self.committed.get(trainer, 0))
        return replace(ending, ended=EndingKind(said[0]), committed_step=said[1])

    def write_notice(self, trainer: str, generation: int, lease: LeaseKey) -> None:
        self.notes.add((trainer, generation, lease))

    def request_stop(self, trainer: str, generation: int) -> None:
        self.stops.add((trainer, generation))

    def write_heartbeat(self, lease: LeaseKey, beat: Heartbeat) -> None:
        self.beats[lease] = beat


START_S = 0.6
STOP_S = 0.3
DIE_S = 1.0
IMPORTS_S = 1.0
"""From a spare's start until it can make ranks."""


@dataclass(slots=True)
class ModelWorld:
    """One generation's processes: a launcher with the head, a rank on each node.

    Attributes:
        ranks: Nodes that still have a process of it.
        frozen: Nodes whose process is stopped.
        swept: Nodes where an agent sent a signal to a process of it.
        began: Whether it claimed its generation and trained.
        fails_s: After which time of training it fails by itself.
    """

    cluster: ModelCluster
    where: tuple[str, int]
    members: tuple[LeaseKey, ...]
    after: int | None
    elastic: bool = True
    ranks: set[LeaseKey] = field(default_factory=set)
    frozen: set[LeaseKey] = field(default_factory=set)
    swept: set[LeaseKey] = field(default_factory=set)
    began: bool = False
    exit_code: int | None = None
    ignores_stop: bool = False
    fails_s: float = 1e9
    hangs: bool = False
    is_forked: bool = False
    pid: int = 1
    _started_s: float = 0.0
    _asked_s: float | None = None
    _broken_s: float | None = None
    _trained_s: float = 0.0

    def __post_init__(self) -> None:
        self.ranks = {m for m in self.members if self.cluster.leases[m].is_alive}
        self._started_s = self.cluster.now_s
        if len(self.ranks) < len(self.members):
            self._broken_s = self.cluster.now_s

    @property
    def is_training(self) -> bool:
        is_whole = self.ranks == set(self.members) and not self.frozen
        return self.began and self.exit_code is None and is_whole

    def poll(self) -> int | None:
        return self.exit_code

    def ask_to_stop(self, why: str = "") -> None:  # noqa: ARG002
        self._asked_s = self.cluster.now_s if self._asked_s is None else self._asked_s

    def lingers(self) -> bool:
        return bool(self.ranks - {self.members[0]})  # clients of their steps

    def has_lost_client(self) -> bool:
        return len(self.ranks) < len(self.members)

    def kill(self) -> None:
        if self.exit_code is None:
            self.exit_code = -9
        self._break()

    def has_daemon(self, key: LeaseKey) -> bool:
        """Whether a daemon on a node outlives the ranks, and has not ended yet."""
        was_here = key in self.members and key not in self.ranks | self.swept
        if self._broken_s is None or not was_here or not self.cluster.daemon_s:
            return False
        return self.cluster.now_s < self._broken_s + DIE_S + self.cluster.daemon_s

    def lose_node(self, key: LeaseKey) -> None:
        if key == self.members[0] and self.exit_code is None:
            self.exit_code = -9
        if key in self.members:
            self.lose_rank(key)

    def lose_rank(self, key: LeaseKey) -> None:
        self.ranks.discard(key)
        self.frozen.discard(key)
        self._break()

    def hear(self, key: LeaseKey, number: signal.Signals) -> None:
        """Take a signal that a sweep sends to the process on one node."""
        self.swept.add(key)
        if key not in self.frozen or number is signal.SIGKILL:
            self.lose_rank(key)

    def freeze(self, key: LeaseKey) -> None:
        if key in self.ranks:
            self.frozen.add(key)

    def step(self) -> None:
        now_s = self.cluster.now_s
        if self._broken_s is not None:
            if now_s >= self._broken_s + DIE_S:
                self.ranks &= self.frozen  # what is stopped cannot die by itself
                if self.exit_code is None and not self.frozen:
                    self.exit_code = 1
            return
        if self.exit_code is not None or self.frozen:
            return
        if len(self.members) in self.cluster.refuses:
            self.exit_code = 1
            self._break()
            return
        self._live(now_s)

    def _live(self, now_s: float) -> None:
        board, trainer = self.cluster.board, self.where[0]
        if self.hangs or now_s < self._started_s + START_S:
            return
        if not self.began:
            if self.after is not None and not self._is_over(self.after):
                board.ready.add(self.where)
                return
            self.began = True
            board.begun.add(self.where)
        if self._is_fenced():
            self._finish("superseded")
            return
        if self._trained_s >= self.cluster.stalls_s:
            return
        self._trained_s += 0.1
        if self.cluster.reports:
            board.steps[self.where] = int(self._trained_s / self.cluster.step_s)
        if self._trained_s >= self.fails_s:
            self.exit_code = 1
            self._break()
            return
        asked_s = self._asked_s
        if asked_s is None and self.where in board.stops:
            asked_s = self._asked_s = now_s
        if asked_s is not None and now_s >= asked_s + STOP_S and not self.ignores_stop:
            board.committed[trainer] = board.committed.get(trainer, 0) + 1
            self._finish("rescaled")

    def _is_over(self, generation: int) -> bool:
        where = (self.where[0], generation)
        board = self.cluster.board
        return where in board.outcomes or where in board.over

    def _is_fenced(self) -> bool:
        return any(
            t == self.where[0] and g > self.where[1] and w.began
            for (t, g), w in self.cluster.worlds.items()
        )

    def _finish(self, outcome: str) -> None:
        step = self.cluster.board.committed.get(self.where[0], 0)
        self.cluster.board.outcomes[self.where] = (outcome, step)
        self.exit_code = 0
        self.ranks = set()

    def _break(self) -> None:
        if self._broken_s is None:
            self._broken_s = self.cluster.now_s


@dataclass(slots=True)
class ModelSpare:
    """A spare of a trainer; ends as soon as it is asked to."""

    trainer: str
    ready_s: float
    exit_code: int | None = None
    pid: int = 1

    def poll(self) -> int | None:
        return self.exit_code

    def ask_to_stop(self, why: str = "") -> None:  # noqa: ARG002
        self.exit_code = 0

    def lingers(self) -> bool:
        return False

    def has_lost_client(self) -> bool:
        return False

    def kill(self) -> None:
        self.exit_code = -9


@dataclass(slots=True)
class ModelLease:
    """A lease's job: its agent runs until the job ends.

    Attributes:
        frozen_until_s: Until when its agent is stopped.
        cut_until_s: Until when its agent cannot use the files.
        cut: The operation of the board that fails until then; empty for all.
        signalled_s: When Slurm signalled that it ends, if it did.
        dies_s: When Slurm ends it whatever it does.
    """

    key: LeaseKey
    agent: Agent | None = None
    is_alive: bool = True
    frozen_until_s: float = 0.0
    cut_until_s: float = 0.0
    cut: str = ""
    signalled_s: float | None = None
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
    """All leases and worlds that ever were.

    Attributes:
        launches: Generations launched, the others that were there and not over, and
            the one that each waited for.
        fails_s: After which time of training every world fails by itself.
        refuses: Numbers of nodes on which worlds fail as they start.
        ignores_stop, hangs: Whether worlds do not obey, or never begin.
        stalls_s: After which time of training every world hangs.
        step_s: How long a step takes.
        reports: Whether worlds report their steps.
        does_slurm_answer: Whether slurmctld does when an agent asks it.
        daemon_s: How long daemons outlive the ranks of a world that breaks.
        has_memory: Whether nodes have room for spares that no job file asks for.
        questions_s: When agents asked.
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
    refuses: frozenset[int] = frozenset()
    ignores_stop: bool = False
    hangs: bool = False
    stalls_s: float = 1e9
    step_s: float = 1.0
    reports: bool = True
    does_slurm_answer: bool = True
    daemon_s: float = 0.0
    has_memory: bool = False
    questions_s: list[float] = field(default_factory=list)
    oom_kills: int = 0

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
        board = Line(self, key)
        agent = Agent(lease, board, ModelEnvironment(self, key), PATIENCE)
        self.leases[key].agent = agent
        return key

    def add_trainer(self, job: TrainerJob | None = None) -> None:
        job = job or a_job()
        self.board.jobs[job.name] = job

    def member(self, key: LeaseKey) -> AssignedLease:
        return a_lease(key, f"n{key.task}", key.task + 100)

    def assign(self, *keys: LeaseKey, trainer: str = TRAINER) -> bool:
        """Do what the broker does: make the next generation."""
        found = self.board.generations(trainer)
        number = found[-1] + 1 if found else 1
        members = map(self.member, keys)
        return self.board.propose(
            an_assignment(number, *members, trainer=trainer, created_s=self.now_s)
        )

    def newest(self, trainer: str = TRAINER) -> AssignmentFile:
        return self.board.made[trainer, self.board.generations(trainer)[-1]]

    def living(self) -> list[LeaseKey]:
        return [lease.key for lease in self.leases.values() if lease.is_alive]

    def signal(self, key: LeaseKey) -> None:
        """Signal that a lease ends, as Slurm does when it preempts."""
        lease = self.leases[key]
        if lease.signalled_s is None:
            lease.signalled_s, lease.dies_s = self.now_s, self.now_s + GRACE_S + 1

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


class Line(Board):
    """The files as one lease reaches them, or not; guarded as a board is."""

    def __init__(self, cluster: ModelCluster, key: LeaseKey) -> None:
        super().__init__(
            StateDir(Path("/nowhere")),
            Listing(lambda: cluster.now_s),
            elapsed_s=lambda: cluster.now_s,
            log=cluster.log.append,
        )
        self.cluster = cluster
        self.key = key


def _through(name: str) -> Callable[..., Any]:
    """Return the method *name* of the one board, as a lease reaches it."""

    def ask(line: Line, *args: object, **how: object) -> object:
        cluster = line.cluster
        lease = cluster.leases[line.key]
        if cluster.now_s < lease.cut_until_s and lease.cut in {"", name}:
            if name in _AS_IT_IS:
                raise UnknownNowError("the files cannot be reached")
            raise OSError("the files cannot be reached")
        return getattr(cluster.board, name)(*args, **how)

    ask.__name__ = name
    return ask


_AS_IT_IS = {"heartbeat", "tick_sign", "steps_reported"}
for _name in (
    *("propose", "write_ending", "with_outcome", "write_notice", "request_stop"),
    *("write_heartbeat", "announce_spare", "tick_sign_age_s", "last_output"),
    *("last_saved_s",),
    *("checkpoint_stamp", "can_report", *_AS_IT_IS),
):
    setattr(Line, _name, _through(_name))
for _name in ("trainers", "generations", "assigned", "endings", "ending", "job"):
    setattr(Line, _name, answers_as_before()(_through(_name)))
for _name, _otherwise in (
    *(("notices", frozenset()), ("outcome", ""), ("spare_of", "")),
    *((n, False) for n in ("is_ready", "has_begun", "is_stop_requested", "is_done")),
):
    setattr(Line, _name, answers_as_before(otherwise=_otherwise)(_through(_name)))


@dataclass(frozen=True, slots=True)
class ModelEnvironment(Environment):
    """The environment of one lease."""

    cluster: ModelCluster
    key: LeaseKey
    gone: set[LeaseKey] = field(default_factory=set)

    def elapsed_s(self) -> float:
        return self.cluster.now_s + self.key.task * 1000  # clocks are never compared

    def unix_s(self) -> float:
        return self.cluster.now_s

    def is_asked_to_leave(self) -> bool:
        return self.cluster.leases[self.key].signalled_s is not None

    def ask_of_leases(self, members: Collection[AssignedLease]) -> None:
        if self.cluster.does_slurm_answer:
            leases = self.cluster.leases
            self.gone.update(m.key for m in members if not leases[m.key].is_alive)

    def gone_leases(self) -> frozenset[LeaseKey]:
        return frozenset(self.gone)

    def ask_slurm(self) -> None:
        self.cluster.questions_s.append(self.cluster.now_s)

    def slurm_answers(self) -> bool:
        return self.cluster.does_slurm_answer

    def launch(
        self,
        job: TrainerJob,
        assigned: AssignmentFile,
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
        self, job: TrainerJob, assigned: AssignmentFile, lease: LeaseKey
    ) -> ModelSpare:
        assert job.name == assigned.trainer
        assert lease == self.key
        assert not self.cluster.leases[lease].spare
        spare = ModelSpare(assigned.trainer, self.cluster.now_s + IMPORTS_S)
        self.cluster.leases[lease].spares.append(spare)
        return spare

    def has_room_for_spare(self, pids: Collection[int]) -> bool:
        return bool(pids) and self.cluster.has_memory

    def is_spare_ready(self, lease: LeaseKey) -> bool:
        living = [s for s in self.cluster.leases[lease].spares if s.exit_code is None]
        return any(self.cluster.now_s >= spare.ready_s for spare in living)

    def processes(self) -> tuple[MarkedProcess, ...]:
        return tuple(
            MarkedProcess(
                100 * g + key.task,
                0,
                Mark(key, t, g, is_rank=True),
                is_stopped=key in w.frozen,
            )
            for (t, g), w in self.cluster.worlds.items()
            for key in w.ranks
            if key == self.key
        ) + tuple(
            MarkedProcess(100 * g + 50 + self.key.task, 0, Mark(self.key, t, g))
            for (t, g), w in self.cluster.worlds.items()
            if w.has_daemon(self.key)
        )

    def is_there(self, process: MarkedProcess) -> bool:
        return any(found.pid == process.pid for found in self.processes())

    def send(self, process: MarkedProcess, number: Signals) -> None:
        self.cluster.worlds[process.mark.world].hear(process.mark.lease, number)

    def cancel_silent_lease(self, member: AssignedLease) -> None:
        self.cluster.log.append(f"{self.cluster.now_s:.1f} end lease {member.key.task}")
        self.cluster.end_lease(member.key)

    def stop_listening(self) -> None:
        pass

    def end_listeners(self, lease: LeaseKey) -> None:
        pass

    def oom_kills(self) -> int:
        return self.cluster.oom_kills

    def end_own_job(self) -> None:
        self.cluster.leases[self.key].is_forced = True
        self.cluster.end_lease(self.key)

    def wait(self, seconds: float) -> None:
        del seconds

    def log(self, text: str) -> None:
        self.cluster.log.append(f"{self.cluster.now_s:.1f} {self.key.task}: {text}")
