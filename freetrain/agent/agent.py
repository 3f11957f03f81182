"""The agent's loop: observe, decide, act; about ten times a second.

Each turn reads the shared files and the processes of the node into an ``Observation``,
asks ``rules`` what to do, and has the ``Executor`` do it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.agent.environment import Node
from freetrain.agent.executor import Executor, Memory
from freetrain.agent.observation import (
    Observation,
    ObservedGeneration,
    ObservedTrainer,
    is_failure,
    judge,
)
from freetrain.agent.rules import (
    EndOwnJob,
    conditions,
    decide,
    leave_bound_s,
    limit_margin_s,
)
from freetrain.errors import FreeTrainError
from freetrain.state.files import AgentState, Heartbeat

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from freetrain.agent.board import Board, TrainerFolder
    from freetrain.agent.environment import Environment
    from freetrain.agent.executor import LaunchedWorld, StartedSpare
    from freetrain.agent.observation import Patience, Peer
    from freetrain.broker.lease import LeaseKey
    from freetrain.state.files import Assigned, GenerationEnding

_DEFAULT_KILL_AFTER_S = 30.0
_HURRIED_SCAN_S = 0.3
_END_POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLease:
    """The lease of an agent.

    Attributes:
        key: The lease.
        node: Slurm's NodeName, or the host's name outside of Slurm.
        host: The host's own name.
        pid: The agent's process number.
        limit_s: Its time limit.
        grace_s: How long it has from Slurm's notice to the kill.
    """

    key: LeaseKey
    node: str
    host: str
    pid: int
    limit_s: float
    grace_s: float


class Agent:
    """The agent of one lease."""

    def __init__(
        self,
        lease: OwnLease,
        board: Board,
        environment: Environment,
        patience: Patience,
    ) -> None:
        """Take the lease, the shared files, the environment, and times to go by."""
        now_s = environment.elapsed_s()
        self._lease = lease
        self._board = board
        self._environment = environment
        self._patience = patience
        self._started_s = now_s
        self._memory = Memory(now_s, busy_s=now_s)
        self._node = Node(lease.key, board, environment, patience)
        self._peers = PeerWatch()
        self._own_trainers = OwnTrainers(lease.key, board, environment, patience)
        self._heartbeat = HeartbeatWriter(lease, board, environment, self._node)
        self._executor = Executor(
            lease.key, board, environment, self._memory, self._node
        )
        self._scan_due_s = now_s
        self._is_clean = False

    def run(self) -> bool:
        """Work until the lease ends; return whether nothing of it is left here.

        Then its batch script may end, and with it the job, a second sooner than Slurm
        ends one by force.
        """
        while not self.turn():
            self._environment.wait(self._patience.poll_s)
        return self._is_clean

    def turn(self) -> bool:
        """Observe, decide and act, once; return whether the lease has ended."""
        memory, environment = self._memory, self._environment
        memory.begin(now_s=environment.elapsed_s(), unix_s=environment.unix_s())
        for world in memory.worlds.values():
            world.look(memory.now_s)
        if environment.is_preempted():  # before all else: others wait for this lease
            self._leave("Slurm takes the node")
        look_at_spare(self._lease.key, self._board, environment, memory)
        folders = self._own_trainers.folders(memory)
        self._scan(folders)
        observed = self._observe(folders)
        self._heartbeat.beat(
            observed, now_s=memory.now_s, every_s=self._patience.beat_s
        )
        ages_s = {found: memory.age_s(found) for found in conditions(observed)}
        for action in decide(observed, ages_s=ages_s):
            if isinstance(action, EndOwnJob):
                self._end(action)
                return True
            self._executor.carry_out(action)
        self._forget_worlds(observed)
        memory.end()
        return False

    def _scan(self, folders: Sequence[TrainerFolder]) -> None:
        """Look at the processes of the node, if it is time, and sweep."""
        memory = self._memory
        if memory.now_s < self._scan_due_s and not self._is_urgent():
            return
        is_rescale = any(folder.open for folder in folders)
        every_s = _HURRIED_SCAN_S if is_rescale else self._patience.scan_s
        self._scan_due_s = memory.now_s + min(every_s, self._patience.scan_s)
        self._node.scan(folders)
        self._node.sweep()

    def _is_urgent(self) -> bool:
        is_leaving = self._memory.leaving_since_s is not None
        return is_leaving or any(
            world.exit_s is not None for world in self._memory.worlds.values()
        )

    def _observe(self, folders: Sequence[TrainerFolder]) -> Observation:
        trainers = self._observe_trainers(folders)
        memory = self._memory
        if trainers:
            memory.busy_s = memory.now_s
        is_head = any(
            g.is_headed_by(self._lease.key) for t in trainers for g in t.generations
        )
        peers = self._peers.look(
            self._board,
            memory,
            _members(trainers) - {self._lease.key},
            is_head=is_head,
            is_cut_off=self._heartbeat.is_cut_off,
        )
        leaving_s, bound_s = self._leaving(trainers)
        return Observation(
            me=self._lease.key,
            trainers=trainers,
            peers=peers,
            stuck=self._node.stuck,
            leaving_s=leaving_s,
            bound_s=bound_s,
            idle_s=memory.now_s - memory.busy_s,
            ended_leases=frozenset(memory.ended_leases),
            spare=None if memory.spare is None else memory.spare.observed(),
            patience=self._patience,
        )

    def _observe_trainers(
        self, folders: Sequence[TrainerFolder]
    ) -> tuple[ObservedTrainer, ...]:
        observer = TrainerObserver(
            self._lease.key,
            self._board,
            self._memory,
            self._node,
            home=self._home(folders),
        )
        found: list[ObservedTrainer] = []
        for folder in folders:
            try:
                found.append(observer.observe(folder))
            except (OSError, FreeTrainError) as error:
                name = repr(folder.name)
                self._environment.log(f"cannot read about trainer {name}: {error}")
        return tuple(found)

    def _home(self, folders: Sequence[TrainerFolder]) -> str:
        """Return the trainer that this lease was given to last, empty for none.

        Survivors and broker may give it to two at once; it leaves the older.
        """
        claims = []
        for folder in folders:
            newest = self._board.assigned(folder.name, folder.newest)
            if self._lease.key in newest.keys:
                claims.append((newest.created_s, folder.name))
        return max(claims)[1] if claims else ""

    def _leave(self, why: str) -> None:
        if self._memory.leaving_since_s is None:
            self._memory.leaving_since_s = self._memory.now_s
            self._environment.log(f"leaving: {why}")

    def _leaving(
        self, trainers: Sequence[ObservedTrainer]
    ) -> tuple[float | None, float]:
        """Return for how long this lease has been leaving, and how long it may."""
        memory, lease = self._memory, self._lease
        kill_after_s = max(
            (t.job.stop.kill_after_s for t in trainers), default=_DEFAULT_KILL_AFTER_S
        )
        margin_s = limit_margin_s(limit_s=lease.limit_s, kill_after_s=kill_after_s)
        if memory.now_s - self._started_s >= lease.limit_s - margin_s:
            self._leave("the time limit is near")
        grace_s = lease.grace_s if self._environment.is_preempted() else margin_s
        bound_s = leave_bound_s(kill_after_s=kill_after_s, grace_s=grace_s)
        since_s = memory.leaving_since_s
        return (None if since_s is None else memory.now_s - since_s), bound_s

    def _forget_worlds(self, observed: Observation) -> None:
        """Forget worlds that are gone and have an ending."""
        for trainer in observed.trainers:
            for g in trainer.generations:
                is_gone = g.world is not None and g.world.exit_s is not None
                if is_gone and g.is_over and not g.processes:
                    self._memory.worlds.pop((trainer.name, g.number))

    def _end(self, action: EndOwnJob) -> None:
        """End this lease's processes and itself; end the job if something is left."""
        environment = self._environment
        environment.log(f"ending this lease's job: {action.why}")
        if environment.is_preempted():
            self._node.kill_all()  # all is committed, and others wait
        until_s = environment.elapsed_s() + self._patience.sweep_grace_s
        self._is_clean = self._node.end_all()
        while not self._is_clean and environment.elapsed_s() < until_s:
            environment.wait(_END_POLL_S)
            self._is_clean = self._node.end_all()
        self._heartbeat.write_ended()
        environment.stop_listening()
        if not self._is_clean:
            self._node.kill_all()
            environment.end_own_job()


def _members(trainers: Sequence[ObservedTrainer]) -> frozenset[LeaseKey]:
    """Return every lease whose heartbeat matters."""
    found: set[LeaseKey] = set()
    for trainer in trainers:
        for generation in trainer.generations:
            found |= generation.assigned.keys
        if trainer.previous is not None:
            found |= trainer.previous.keys
    return frozenset(found)


# ----------------------------------------------------------------------
# The trainers of this lease


class OwnTrainers:
    """Finds the trainers of which a lease has a part.

    It looks at all trainers once a second, and at those of the lease in every turn.
    """

    def __init__(
        self, me: LeaseKey, board: Board, environment: Environment, patience: Patience
    ) -> None:
        """Take the lease, the shared files, the environment, and times to go by."""
        self._me = me
        self._board = board
        self._environment = environment
        self._every_s = patience.scan_s
        self._due_s = environment.elapsed_s()
        self._names: tuple[str, ...] = ()

    def folders(self, memory: Memory) -> tuple[TrainerFolder, ...]:
        """Return what the folders of this lease's trainers name now."""
        names = self._names
        if memory.now_s >= self._due_s:
            self._due_s = memory.now_s + self._every_s
            names = self._all()
        found = [self._read(name, memory) for name in names]
        folders = tuple(folder for folder in found if folder is not None)
        self._names = tuple(folder.name for folder in folders)
        return folders

    def _all(self) -> tuple[str, ...]:
        try:
            return tuple(sorted({*self._board.trainers(), *self._names}))
        except OSError as error:
            self._environment.log(f"cannot list the trainers: {error}")
            return self._names

    def _read(self, name: str, memory: Memory) -> TrainerFolder | None:
        try:
            folder = self._board.folder(name)
            if folder is None or not self._has_part(folder, memory):
                return None
        except (OSError, FreeTrainError) as error:
            self._environment.log(f"cannot read about trainer {name!r}: {error}")
            return None
        return folder

    def _has_part(self, folder: TrainerFolder, memory: Memory) -> bool:
        if any(world.trainer == folder.name for world in memory.worlds.values()):
            return True
        return any(
            self._me in self._board.assigned(folder.name, number).keys
            for number in (*folder.open, folder.newest)
        )


_MOST_HISTORY = 50


@dataclass(frozen=True, slots=True)
class TrainerObserver:
    """Observes trainers in one turn.

    Attributes:
        me: This lease.
        board: The shared files.
        memory: What the agent remembers.
        node: The processes of this lease's node.
        home: The trainer with which this lease stays, if it need not leave.
    """

    me: LeaseKey
    board: Board
    memory: Memory
    node: Node
    home: str

    def observe(self, folder: TrainerFolder) -> ObservedTrainer:
        """Return all that is known of the trainer of *folder*.

        Raises:
            OSError, FreeTrainError: Its files cannot be read.
        """
        board, memory, name = self.board, self.memory, folder.name
        job = board.job(name)
        launched = {g for trainer, g in memory.worlds if trainer == name}
        wants_spare = bool(job.launch.spare) and memory.spare is None
        notices = board.notices(name)
        processes = self._count_processes(name)

        def generation(number: int) -> ObservedGeneration:
            return self._generation(
                folder,
                number,
                notices=frozenset(key for g, key in notices if g == number),
                processes=processes.get(number, 0),
                wants_spare=wants_spare,
            )

        earlier = sorted({*folder.open, *launched} - {folder.newest})
        newest = generation(folder.newest)
        is_running = newest.world is not None and newest.world.exit_s is None
        running_s = newest.world.age_s if newest.world and is_running else 0.0
        history = self._history(folder)
        is_given_elsewhere = name != self.home and self.me in newest.assigned.keys
        return ObservedTrainer(
            job=job,
            newest=newest,
            earlier=tuple(map(generation, earlier)),
            previous=self._previous(folder),
            verdict=judge(history, job),
            failed=max((e.generation for e in history if is_failure(e)), default=0),
            is_done=board.is_done(name, running_s=running_s),
            since_end_s=memory.age_s(("end", name, max(folder.over, default=0))),
            must_leave=memory.leaving_since_s is not None or is_given_elsewhere,
            unix_s=memory.unix_s,
        )

    def _generation(
        self,
        folder: TrainerFolder,
        number: int,
        *,
        notices: frozenset[LeaseKey],
        processes: int,
        wants_spare: bool,
    ) -> ObservedGeneration:
        board, memory, name = self.board, self.memory, folder.name
        world = memory.worlds.get((name, number))
        outcome = board.outcome(name, number)
        return ObservedGeneration(
            assigned=board.assigned(name, number),
            age_s=memory.age_s(("generation", name, number)),
            is_over=number in folder.over,
            outcome=outcome,
            outcome_age_s=(memory.age_s(("outcome", name, number)) if outcome else 0.0),
            is_ready=board.is_ready(name, number),
            has_begun=self._has_begun(
                name, number, world, outcome=outcome, wants_spare=wants_spare
            ),
            is_stop_requested=board.is_stop_requested(name, number),
            notices=notices,
            processes=processes,
            world=None if world is None else world.observed(memory.now_s),
        )

    def _has_begun(
        self,
        name: str,
        number: int,
        world: LaunchedWorld | None,
        *,
        outcome: str,
        wants_spare: bool,
    ) -> bool:
        """Tell whether a world has begun, where that matters to this agent."""
        if world is None:
            return bool(outcome) or (wants_spare and self.board.has_begun(name, number))
        if not world.has_begun:
            world.has_begun = bool(outcome) or self.board.has_begun(name, number)
        return world.has_begun

    def _count_processes(self, trainer: str) -> dict[int, int]:
        counts: dict[int, int] = {}
        for process in self.node.mine:
            if process.mark.trainer == trainer:
                number = process.mark.generation
                counts[number] = counts.get(number, 0) + 1
        return counts

    def _previous(self, folder: TrainerFolder) -> Assigned | None:
        before = folder.generations[:-1]
        return self.board.assigned(folder.name, before[-1]) if before else None

    def _history(self, folder: TrainerFolder) -> list[GenerationEnding]:
        """Return the endings since the last generation without leases."""
        endings: list[GenerationEnding] = []
        for number in reversed(folder.generations[-_MOST_HISTORY:]):
            is_newest = number == folder.newest
            if not is_newest and not self.board.assigned(folder.name, number).members:
                break
            if number in folder.over:
                endings.append(self.board.ending(folder.name, number))
        return endings[::-1]


# ----------------------------------------------------------------------
# Heartbeats: this agent's, and those of the others


class HeartbeatWriter:
    """Writes the agent's own heartbeat.

    Attributes:
        is_cut_off: Whether the last one could not be written.
    """

    def __init__(
        self, lease: OwnLease, board: Board, environment: Environment, node: Node
    ) -> None:
        """Take the lease, the shared files, the environment, and the node."""
        self.is_cut_off = False
        self._lease = lease
        self._board = board
        self._environment = environment
        self._node = node
        self._count = 0
        self._due_s = environment.elapsed_s()

    def beat(self, observed: Observation, *, now_s: float, every_s: float) -> None:
        """Write it if it is time, or at once when the lease begins to leave."""
        has_news = observed.leaving_s == 0.0
        if now_s < self._due_s and not has_news:
            return
        self._due_s = now_s + every_s
        state = AgentState.IDLE if observed.leaving_s is None else AgentState.LEAVING
        trainer, generation = _occupation(observed)
        if trainer and observed.leaving_s is None:
            state = AgentState.TRAINING
        self._write(
            state,
            trainer=trainer,
            generation=generation,
            is_stuck=bool(observed.stuck),
            swept_generation=self._node.swept.get(trainer, 0),
        )

    def write_ended(self) -> None:
        """Write that the agent ends, so that the others do not wait for this lease."""
        self._write(AgentState.ENDED)

    def _write(
        self,
        state: AgentState,
        *,
        trainer: str = "",
        generation: int = 0,
        is_stuck: bool = False,
        swept_generation: int = 0,
    ) -> None:
        self._count += 1
        heartbeat = Heartbeat(
            beat=self._count,
            t=self._environment.unix_s(),
            node=self._lease.node,
            host=self._lease.host,
            pid=self._lease.pid,
            state=state,
            trainer=trainer,
            generation=generation,
            is_stuck=is_stuck,
            swept_generation=swept_generation,
        )
        try:
            self._board.write_heartbeat(self._lease.key, heartbeat)
        except OSError as error:
            self.is_cut_off = True
            self._environment.log(
                f"cannot write the heartbeat: {error}; training goes on"
            )
        else:
            self.is_cut_off = False


def _occupation(observed: Observation) -> tuple[str, int]:
    """Return the trainer and generation that the heartbeat names.

    A generation that is stuck counts most; then one that still has this lease: until
    it is over, this lease is not free for its next trainer.
    """
    if observed.stuck:
        return min(observed.stuck)
    home = next((t for t in observed.trainers if _is_home(observed, t)), None)
    name = home.name if home else ""
    other = observed.occupied_by(but=name)
    if other is not None:
        return other
    return (name, home.newest.number) if home else ("", 0)


def _is_home(observed: Observation, trainer: ObservedTrainer) -> bool:
    return observed.me in trainer.newest.assigned.keys and not trainer.must_leave


_HEAD_S, _HEAD_PER_S = 0.2, 50
_MEMBER_S, _MEMBER_PER_S = 1.0, 12


class PeerWatch:
    """Reads up to 50 heartbeats a second as a head, 12 as one of the others.

    Sixty-four agents of one trainer then ask for less than 1,000 files a second.
    """

    def __init__(self) -> None:
        """Begin without peers."""
        self._looked_s: dict[LeaseKey, float] = {}

    def look(
        self,
        board: Board,
        memory: Memory,
        keys: Collection[LeaseKey],
        *,
        is_head: bool,
        is_cut_off: bool,
    ) -> Mapping[LeaseKey, Peer]:
        """Return what is known of the leases *keys*.

        Args:
            board: The shared files.
            memory: Has the watches of heartbeats.
            keys: Leases to watch; all others are forgotten.
            is_head: Whether this agent heads one of their generations.
            is_cut_off: Whether the files cannot be used: then no lease grows silent.
        """
        memory.watch_only(keys)
        self._looked_s = {k: s for k, s in self._looked_s.items() if k in keys}
        least_s, per_s = (
            (_HEAD_S, _HEAD_PER_S) if is_head else (_MEMBER_S, _MEMBER_PER_S)
        )
        every_s = max(least_s, len(keys) / per_s)
        for key in keys:
            if memory.now_s - self._looked_s.get(key, -every_s) >= every_s:
                self._looked_s[key] = memory.now_s
                _read_heartbeat(board, memory, key, is_cut_off=is_cut_off)
        return {key: memory.heartbeat(key).peer for key in keys}


def _read_heartbeat(
    board: Board, memory: Memory, key: LeaseKey, *, is_cut_off: bool
) -> None:
    watch = memory.heartbeat(key)
    try:
        heartbeat = board.heartbeat(key)
    except (OSError, FreeTrainError):
        is_cut_off = True
    if is_cut_off:
        watch.skip(now_s=memory.now_s)
    else:
        watch.look(heartbeat, now_s=memory.now_s)


# ----------------------------------------------------------------------
# The spare of this lease


def look_at_spare(
    me: LeaseKey, board: Board, environment: Environment, memory: Memory
) -> None:
    """See whether the spare waits, or has ended; forget one that was asked to end."""
    spare = memory.spare
    if spare is None:
        return
    if not spare.has_ended:
        _look_at_process(spare, me, board, environment)
    if spare.has_ended and spare.is_asked:
        memory.spare = None


def _look_at_process(
    spare: StartedSpare, me: LeaseKey, board: Board, environment: Environment
) -> None:
    code = spare.process.poll()
    try:
        if code is None and not spare.is_asked and not spare.is_ready:
            if environment.is_spare_ready(me):
                board.announce_spare(me, spare.trainer)
                spare.is_ready = True
        elif code is not None and not spare.is_asked:
            environment.log(f"the spare of {spare.trainer} ended: exit code {code}")
            board.announce_spare(me, "")
    except OSError as error:
        environment.log(f"cannot say whether there is a spare: {error}")
    spare.has_ended = code is not None
