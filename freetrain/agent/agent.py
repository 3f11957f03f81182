"""The agent's loop: look, decide, do; about ten times a second."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from freetrain.agent.machine import StoppedWatch, Sweeper
from freetrain.agent.rules import (
    conditions,
    decide,
    drafted,
    judged,
    leave_bound_s,
    limit_margin_s,
    not_started,
)
from freetrain.agent.seen import (
    AskToStop,
    EndLease,
    EndOwnJob,
    EndSpare,
    GenerationSeen,
    Kill,
    KillRanks,
    Launch,
    Propose,
    Pulse,
    RequestStop,
    Seen,
    SpareSeen,
    StartSpare,
    Sweep,
    SweepAll,
    TrainerSeen,
    WorldSeen,
    WriteEnding,
    WriteNotice,
    is_failure,
    judge,
)
from freetrain.errors import FreeTrainError
from freetrain.state.files import AgentState, Heartbeat, lease_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

    from freetrain.agent.board import Board
    from freetrain.agent.machine import Edge, Marked, World
    from freetrain.agent.seen import Action, Lease, Patience, Peer
    from freetrain.broker.lease import LeaseKey
    from freetrain.state.files import Assigned, Ending


# ----------------------------------------------------------------------
# What an agent remembers from one look to the next.


@dataclass(slots=True)
class Running:
    """A world that this agent launched, with the times of what happened to it.

    Attributes:
        trainer: Whose.
        generation: Which.
        world: Its launcher.
        after: The generation it waits for, if any.
        launched_s: When it was launched, on the agent's clock.
        asked_s: When it was asked to stop, if it was.
        killed_s: When it was killed, if it was.
        why_killed: Why, for people; empty if it was not.
        exit_s: When its launcher was first seen gone.
        exit_code: The launcher's exit status.
        lingers: Whether something of its session was left when last looked at.
        has_begun: Whether its program ever left a sign of life: what it leaves goes
            when the next generation begins.
    """

    trainer: str
    generation: int
    world: World
    after: int | None
    launched_s: float
    asked_s: float | None = None
    killed_s: float | None = None
    why_killed: str = ""
    exit_s: float | None = None
    exit_code: int | None = None
    lingers: bool = False
    has_begun: bool = False

    def look(self, now_s: float) -> None:
        """See whether the launcher is still there, and then what is left of it."""
        if self.exit_s is None:
            self.exit_code = self.world.poll()
            if self.exit_code is not None:
                self.exit_s = now_s
        if self.exit_s is not None and self.killed_s is None:
            self.lingers = self.world.lingers()

    def seen(self, now_s: float) -> WorldSeen:
        """Return what decisions need of it."""
        return WorldSeen(
            age_s=now_s - self.launched_s,
            after=self.after,
            asked_s=None if self.asked_s is None else now_s - self.asked_s,
            killed_s=None if self.killed_s is None else now_s - self.killed_s,
            exit_s=None if self.exit_s is None else now_s - self.exit_s,
            exit_code=self.exit_code,
            lingers=self.lingers,
        )


@dataclass(slots=True)
class Spare:
    """A spare that this agent started.

    Attributes:
        trainer: Whose ranks it makes.
        generation: The one that it was started beside.
        process: What was started.
        is_asked: Whether it was told to make no more.
        has_ended: Whether it was seen gone.
        is_ready: Whether it was seen to wait for ranks to make.
    """

    trainer: str
    generation: int
    process: World
    is_asked: bool = False
    has_ended: bool = False
    is_ready: bool = False

    def seen(self) -> SpareSeen:
        """Return what decisions need of it."""
        return SpareSeen(self.trainer, self.generation, is_asked=self.is_asked)


@dataclass(slots=True)
class Memory:
    """Everything that outlives a look; the files have the rest.

    Attributes:
        now_s: The time of this look, on the agent's clock.
        unix_s: The same for people.
        worlds: Those that this agent launched and still cares for.
        pulses: The heartbeats it watches.
        ended_leases: Silent leases whose jobs it ended.
        leaving_since_s: When it was told to leave.
        busy_s: When it last had a trainer.
        spare: The spare that it has, or had and did not tell to end.
    """

    now_s: float
    unix_s: float = 0.0
    worlds: dict[tuple[str, int], Running] = field(default_factory=dict)
    pulses: dict[LeaseKey, Pulse] = field(default_factory=dict)
    ended_leases: set[LeaseKey] = field(default_factory=set)
    leaving_since_s: float | None = None
    busy_s: float = 0.0
    spare: Spare | None = None
    _since_s: dict[Hashable, float] = field(default_factory=dict)
    _asked: set[Hashable] = field(default_factory=set)

    def begin(self, *, now_s: float, unix_s: float) -> None:
        """Begin a look."""
        self.now_s, self.unix_s = now_s, unix_s
        self._asked = set()

    def age_s(self, what: Hashable) -> float:
        """Return for how long *what* has been so; 0 the first time it is asked."""
        self._asked.add(what)
        return self.now_s - self._since_s.setdefault(what, self.now_s)

    def end(self) -> None:
        """End a look: what was not asked about is not so any more."""
        self._since_s = {k: s for k, s in self._since_s.items() if k in self._asked}

    def pulse(self, key: LeaseKey) -> Pulse:
        """Return the watch of *key*, begun now if there is none."""
        return self.pulses.setdefault(key, Pulse(now_s=self.now_s))

    def watch_only(self, keys: Collection[LeaseKey]) -> None:
        """Forget the heartbeats of all others."""
        self.pulses = {key: self.pulses[key] for key in self.pulses if key in keys}


# ----------------------------------------------------------------------
# What was decided, done.

_SPARE_AGAIN_S = 60.0


class CarryOut:
    """Does one action after the other; what fails is said, and decided again."""

    def __init__(
        self, lease: Lease, board: Board, edge: Edge, memory: Memory, node: Node
    ) -> None:
        """Take the lease and all that can be acted on."""
        self._lease = lease
        self._board = board
        self._edge = edge
        self._memory = memory
        self._node = node
        self._name = lease_name(lease.key)
        self._spare_due_s = memory.now_s

    def one(self, action: Action) -> None:
        """Do *action*, or say why it could not be done."""
        try:
            self._do(action)
        except (OSError, FreeTrainError) as error:
            self._edge.say(f"{type(action).__name__} failed: {error}")

    def _do(self, action: Action) -> None:
        match action:
            case Launch():
                self._launch(action)
            case AskToStop():
                self._ask(action)
            case RequestStop():
                self._board.request_stop(action.trainer, action.generation)
                self._say(_where(action), "asked to stop, since its head is lost")
            case Kill():
                self._kill(action)
            case Propose():
                self._propose(action)
            case WriteEnding():
                self._write_ending(action)
            case _:
                self._do_about_lease(action)

    def _do_about_lease(self, action: Action) -> None:
        match action:
            case Sweep():
                self._node.sweep({(action.trainer, action.generation)})
            case WriteNotice():
                self._board.notice(action.trainer, action.generation, self._lease.key)
                self._say(_where(action), "told that this lease leaves")
            case EndLease():
                self._memory.ended_leases.add(action.member.key)
                self._edge.say(f"ending silent lease {action.member.display_id}")
                self._edge.end_lease(action.member)
            case SweepAll():
                self._node.kill_all()
            case KillRanks():
                self._node.kill_ranks((action.trainer, action.generation))
            case StartSpare():
                self._start_spare(action.assigned)
            case EndSpare():
                self._end_spare()
            case _:
                raise AssertionError(f"the loop itself does {action}")

    def _launch(self, action: Launch) -> None:
        assigned, memory = action.assigned, self._memory
        job = self._board.job(assigned.trainer)
        is_forked = bool(job.launch.spare) and self._have_spares(assigned)
        try:
            world = self._edge.launch(
                job, assigned, after=action.after, is_forked=is_forked
            )
        except (OSError, FreeTrainError) as error:
            ending = not_started(
                assigned.generation, error, author=self._name, unix_s=memory.unix_s
            )
            self._end(ending, assigned.trainer)
            return
        where = (assigned.trainer, assigned.generation)
        memory.worlds[where] = Running(
            *where, world, action.after, launched_s=memory.now_s
        )
        nodes = ",".join(member.node for member in assigned.members)
        after = f", after generation {action.after}" if action.after else ""
        how = ", as forks of spares" if is_forked else ""
        self._say(where, f"launched on {nodes}{after}{how}")

    def _have_spares(self, assigned: Assigned) -> bool:
        """Tell whether each lease has a spare; one that cannot be read has none."""
        with suppress(OSError, ValueError):
            return all(
                self._board.spare_of(member.key) == assigned.trainer
                for member in assigned.members
            )
        return False

    def _start_spare(self, assigned: Assigned) -> None:
        if self._memory.now_s < self._spare_due_s:
            return
        job = self._board.job(assigned.trainer)
        try:
            process = self._edge.start_spare(job, assigned, self._lease.key)
        except (OSError, FreeTrainError):
            self._spare_due_s = self._memory.now_s + _SPARE_AGAIN_S
            raise
        self._memory.spare = Spare(assigned.trainer, assigned.generation, process)
        self._edge.say(f"a spare of {assigned.trainer} was started")

    def _end_spare(self) -> None:
        spare = self._memory.spare
        if spare is not None:
            spare.is_asked = True
            spare.process.ask_to_stop()
            self._board.tell_spare(self._lease.key, "")

    def _ask(self, action: AskToStop) -> None:
        running = self._memory.worlds[action.trainer, action.generation]
        running.asked_s = self._memory.now_s
        self._say(_where(action), f"asked to stop: {action.why}")
        running.world.ask_to_stop()

    def _kill(self, action: Kill) -> None:
        running = self._memory.worlds[action.trainer, action.generation]
        if running.killed_s is None:
            running.killed_s = self._memory.now_s
            running.why_killed = action.why
            if action.why:
                self._say(_where(action), f"killed: {action.why}")
        running.world.kill()
        if action.why:
            self._node.kill((action.trainer, action.generation))

    def _propose(self, action: Propose) -> None:
        assigned = action.assigned
        is_mine = self._board.propose(assigned)
        nodes = ",".join(member.node for member in assigned.members) or "no node"
        who = "made" if is_mine else "somebody else made"
        self._say(
            (assigned.trainer, assigned.generation),
            f"{who} it: {assigned.reason}; proposed {nodes}",
        )

    def _write_ending(self, action: WriteEnding) -> None:
        ending = drafted(action, author=self._name, unix_s=self._memory.unix_s)
        if action.was_launched:
            elastic = self._board.job(action.trainer).elastic
            found = self._board.compose(action.trainer, ending)
            ending = judged(found, action, elastic=elastic)
            running = self._memory.worlds.get((action.trainer, action.generation))
            if running is not None and not ending.message:
                ending = replace(ending, message=running.why_killed)
        self._end(ending, action.trainer)

    def _end(self, ending: Ending, trainer: str) -> None:
        if self._board.end(trainer, ending):
            where = (trainer, ending.generation)
            why = f": {ending.message}" if ending.message else ""
            self._say(where, f"over: {ending.ended.words}{why}")

    def _say(self, where: tuple[str, int], text: str) -> None:
        self._edge.say(f"{where[0]}/{where[1]}: {text}")


def _where(action: RequestStop | WriteNotice | AskToStop | Kill) -> tuple[str, int]:
    return (action.trainer, action.generation)


# ----------------------------------------------------------------------
# From files and memory to what the agent knows.

MOST_OPEN = 20
"""How far back an agent looks for generations that are not over."""

_MOST_HISTORY = 50


@dataclass(frozen=True, slots=True)
class Folder:
    """What the folders of one trainer name, read at one time.

    Attributes:
        name: The trainer.
        generations: All of them, ascending, one or more.
        over: Those with an ending.
    """

    name: str
    generations: tuple[int, ...]
    over: frozenset[int]

    @property
    def newest(self) -> int:
        """The newest generation."""
        return self.generations[-1]

    @property
    def open(self) -> tuple[int, ...]:
        """Recent ones before the newest without an ending."""
        recent = self.generations[-MOST_OPEN - 1 : -1]
        return tuple(number for number in recent if number not in self.over)


def read_folder(board: Board, trainer: str) -> Folder | None:
    """Return what the folders of *trainer* name; None before its first generation."""
    # Endings first: one of a generation that was not listed yet would be lost.
    over = board.endings(trainer)
    generations = board.generations(trainer)
    return Folder(trainer, generations, over) if generations else None


def concerns(board: Board, folder: Folder, me: LeaseKey, memory: Memory) -> bool:
    """Tell whether this lease has anything to do with a trainer."""
    if any(running.trainer == folder.name for running in memory.worlds.values()):
        return True
    return any(
        me in board.assigned(folder.name, number).keys
        for number in (*folder.open, folder.newest)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Self:
    """What the agent knows of itself in this look.

    Attributes:
        me: This lease.
        processes: This lease's processes on this node.
        is_leaving: Whether this lease leaves all its trainers.
        home: The trainer that it stays with otherwise; survivors and broker may have
            given it to two at once.
        has_spare: Whether there is, or was, a spare.
    """

    me: LeaseKey
    processes: Sequence[Marked]
    is_leaving: bool
    home: str
    has_spare: bool = False


def gather(board: Board, folder: Folder, memory: Memory, own: Self) -> TrainerSeen:
    """Return all that is known of the trainer of *folder*."""
    name, job = folder.name, board.job(folder.name)
    kept = {r.generation for r in memory.worlds.values() if r.trainer == name}
    wants_spare = bool(job.launch.spare) and not own.has_spare
    told, counted = board.notices(name), _count(own, name)
    look = _Look(board, folder, memory, told, counted, wants_spare=wants_spare)
    earlier = sorted({*folder.open, *kept} - {folder.newest})
    newest = look.generation(folder.newest)
    is_running = newest.world is not None and newest.world.exit_s is None
    running_s = newest.world.age_s if newest.world and is_running else 0.0
    history = _history(board, folder)
    is_astray = name != own.home and own.me in newest.assigned.keys
    return TrainerSeen(
        job=job,
        newest=newest,
        earlier=tuple(look.generation(number) for number in earlier),
        previous=_previous(board, folder),
        verdict=judge(history, job),
        failed=max((one.generation for one in history if is_failure(one)), default=0),
        is_done=board.is_done(name, running_s=running_s),
        since_end_s=memory.age_s(("end", name, max(folder.over, default=0))),
        must_leave=own.is_leaving or is_astray,
        unix_s=memory.unix_s,
    )


@dataclass(frozen=True, slots=True)
class _Look:
    board: Board
    folder: Folder
    memory: Memory
    told: frozenset[tuple[int, LeaseKey]]
    counted: Mapping[int, int]
    wants_spare: bool

    def generation(self, number: int) -> GenerationSeen:
        board, name = self.board, self.folder.name
        running = self.memory.worlds.get((name, number))
        outcome = board.outcome(name, number)
        said_s = self.memory.age_s(("outcome", name, number)) if outcome else 0.0
        return GenerationSeen(
            assigned=board.assigned(name, number),
            age_s=self.memory.age_s(("generation", name, number)),
            is_over=number in self.folder.over,
            outcome=outcome,
            said_s=said_s,
            is_ready=board.is_ready(name, number),
            has_begun=self._has_begun(number, running, outcome),
            is_stop_requested=board.is_stop_requested(name, number),
            notices=frozenset(key for of, key in self.told if of == number),
            processes=self.counted.get(number, 0),
            world=None if running is None else running.seen(self.memory.now_s),
        )

    def _has_begun(self, number: int, running: Running | None, outcome: str) -> bool:
        """Tell whether a world has begun, where that matters to this agent."""
        name = self.folder.name
        if running is None:
            has_said = bool(outcome)
            return has_said or (self.wants_spare and self.board.has_begun(name, number))
        if not running.has_begun:
            running.has_begun = bool(outcome) or self.board.has_begun(name, number)
        return running.has_begun


def _count(own: Self, trainer: str) -> dict[int, int]:
    counted: dict[int, int] = {}
    for process in own.processes:
        if process.mark.trainer == trainer:
            number = process.mark.generation
            counted[number] = counted.get(number, 0) + 1
    return counted


def _previous(board: Board, folder: Folder) -> Assigned | None:
    if len(folder.generations) < 2:  # noqa: PLR2004 -- the newest and another
        return None
    return board.assigned(folder.name, folder.generations[-2])


def _history(board: Board, folder: Folder) -> list[Ending]:
    """Return the endings since the trainer was last told to run nowhere."""
    endings: list[Ending] = []
    for number in reversed(folder.generations[-_MOST_HISTORY:]):
        if number != folder.newest and not board.assigned(folder.name, number).members:
            break
        if number in folder.over:
            endings.append(board.ending(folder.name, number))
    return endings[::-1]


# ----------------------------------------------------------------------
# Which trainers a lease has to do with.


class Discovery:
    """Looks at all trainers once a second, and at one's own in every turn."""

    def __init__(
        self, me: LeaseKey, board: Board, edge: Edge, patience: Patience
    ) -> None:
        """Take the lease, the shared files, the edge, and times to go by."""
        self._me = me
        self._board = board
        self._edge = edge
        self._every_s = patience.scan_s
        self._due_s = edge.elapsed_s()
        self._names: tuple[str, ...] = ()

    def folders(self, memory: Memory) -> tuple[Folder, ...]:
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
            self._edge.say(f"cannot list the trainers: {error}")
            return self._names

    def _read(self, name: str, memory: Memory) -> Folder | None:
        try:
            folder = read_folder(self._board, name)
            if folder is None or not concerns(self._board, folder, self._me, memory):
                return None
        except (OSError, FreeTrainError) as error:
            self._edge.say(f"cannot read about trainer {name!r}: {error}")
            return None
        return folder


# ----------------------------------------------------------------------
# The agent's own heartbeat.


class Heart:
    """Beats.

    Attributes:
        is_cut_off: Whether the last beat could not be written.
    """

    def __init__(self, lease: Lease, board: Board, edge: Edge, node: Node) -> None:
        """Take the lease, the shared files, the edge, and the node."""
        self.is_cut_off = False
        self._lease = lease
        self._board = board
        self._edge = edge
        self._node = node
        self._beats = 0
        self._due_s = edge.elapsed_s()

    def beat(self, seen: Seen, *, now_s: float, every_s: float) -> None:
        """Beat if it is time, or if there is news that others wait for."""
        is_news = seen.leaving_s == 0.0
        if now_s < self._due_s and not is_news:
            return
        self._due_s = now_s + every_s
        state = AgentState.IDLE if seen.leaving_s is None else AgentState.LEAVING
        trainer, generation = self._at(seen)
        if trainer and seen.leaving_s is None:
            state = AgentState.TRAINING
        swept = self._node.swept.get(trainer, 0)
        self._write(
            state,
            trainer=trainer,
            generation=generation,
            is_stuck=bool(seen.stuck),
            swept_generation=swept,
        )

    def last_beat(self) -> None:
        """Say that nobody need wait for this lease."""
        self._write(AgentState.ENDED)

    def _at(self, seen: Seen) -> tuple[str, int]:
        """Return the trainer and generation to tell.

        A generation that is stuck counts most; then whatever still has this lease:
        until it is over this lease is not there for its next trainer.
        """
        if seen.stuck:
            return min(seen.stuck)
        home = next((t for t in seen.trainers if _is_home(seen, t)), None)
        name = home.name if home else ""
        other = seen.occupied_by(but=name)
        if other is not None:
            return other
        return (name, home.newest.number) if home else ("", 0)

    def _write(
        self,
        state: AgentState,
        *,
        trainer: str = "",
        generation: int = 0,
        is_stuck: bool = False,
        swept_generation: int = 0,
    ) -> None:
        self._beats += 1
        beat = Heartbeat(
            beat=self._beats,
            t=self._edge.unix_s(),
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
            self._board.write_beat(self._lease.key, beat)
        except OSError as error:
            self.is_cut_off = True
            self._edge.say(f"cannot write the heartbeat: {error}; training goes on")
        else:
            self.is_cut_off = False


def _is_home(seen: Seen, trainer: TrainerSeen) -> bool:
    return seen.me in trainer.newest.assigned.keys and not trainer.must_leave


# ----------------------------------------------------------------------
# The processes of this lease's node: counted, watched, swept.

Where = tuple[str, int]


class Node:
    """What an agent sees of the process table, and does to it.

    Attributes:
        processes: All marked ones, as last seen.
        swept: By trainer, up to which generation nothing of this lease is left.
        stuck: Generations with processes that have been stopped for too long.
    """

    def __init__(
        self, me: LeaseKey, board: Board, edge: Edge, patience: Patience
    ) -> None:
        """Take this lease, the shared files, the edge, and times to go by."""
        self.processes: tuple[Marked, ...] = ()
        self.swept: dict[str, int] = {}
        self.stuck: frozenset[Where] = frozenset()
        self._me = me
        self._board = board
        self._edge = edge
        self._sweeper = Sweeper(patience.sweep_grace_s)
        self._stopped = StoppedWatch(patience.stuck_s)

    @property
    def mine(self) -> tuple[Marked, ...]:
        """Those of this lease, as last seen."""
        return tuple(p for p in self.processes if p.mark.lease == self._me)

    def scan(self, folders: Collection[Folder]) -> None:
        """Look at all processes.

        Args:
            folders: The trainers that matter, as read before.
        """
        try:
            self.processes = self._edge.processes()
        except OSError as error:
            self._edge.say(f"cannot look at processes: {error}")
            return
        self.swept = {folder.name: self._swept(folder) for folder in folders}
        ours = [p for p in self.processes if self._is_ours(p)]
        live = [p for p in ours if p.mark.generation and not self._is_over(p)]
        stuck = self._stopped.stuck(tuple(live), now_s=self._edge.elapsed_s())
        self.stuck = frozenset((p.mark.trainer, p.mark.generation) for p in stuck)

    def sweep(self, also: Collection[Where] = ()) -> None:
        """End what is left of generations that are over, and of those in *also*."""
        targets = tuple(
            p
            for p in self.processes
            if self._is_ours(p)
            and ((p.mark.trainer, p.mark.generation) in also or self._is_over(p))
        )
        self._end(targets)

    def kill(self, where: Where) -> None:
        """Kill what there is of one generation, at once."""
        self._kill(lambda p: (p.mark.trainer, p.mark.generation) == where)

    def kill_ranks(self, where: Where) -> None:
        """Kill the ranks that this lease has of one generation, at once."""
        self._kill(
            lambda p: (p.mark.trainer, p.mark.generation) == where and p.mark.is_rank
        )

    def kill_all(self) -> None:
        """Kill everything of this lease, at once."""
        self._kill(lambda p: p.mark.lease == self._me)

    def end_all(self) -> bool:
        """End everything of this lease; return whether nothing is left."""
        self.scan(())
        self._end(self.mine)
        return not self.mine

    def _kill(self, is_meant: Callable[[Marked], bool]) -> None:
        self.scan(())
        found = (p for p in self.processes if self._is_ours(p) and is_meant(p))
        self._end(tuple(found), at_once=True)

    def _end(self, targets: tuple[Marked, ...], *, at_once: bool = False) -> None:
        now_s = self._edge.elapsed_s()
        for signal in self._sweeper.due(targets, now_s=now_s, at_once=at_once):
            self._edge.send(signal)

    def _is_ours(self, process: Marked) -> bool:
        """Tell whether it is this lease's to end.

        The head's node also has the clients of steps on the other nodes, which
        carry those nodes' marks.
        """
        mark = process.mark
        if mark.lease == self._me:
            return True
        try:
            assigned = self._board.assigned(mark.trainer, mark.generation)
        except (OSError, FreeTrainError):
            return False
        head = assigned.head
        return head is not None and head.key == self._me and mark.lease in assigned.keys

    def _is_over(self, process: Marked) -> bool:
        try:
            over = self._board.endings(process.mark.trainer)
        except (OSError, FreeTrainError):
            return False
        return process.mark.generation in over

    def _swept(self, folder: Folder) -> int:
        present = (
            p.mark.generation
            for p in self.mine
            if p.mark.trainer == folder.name and p.mark.generation  # a spare has none
        )
        live = min(folder.open, default=folder.newest)
        return min(live, *present, folder.newest) - 1


# ----------------------------------------------------------------------
# Looks at other agents' heartbeats, as seldom as will do.

_HEAD_S, _HEAD_PER_S = 0.2, 50
_MEMBER_S, _MEMBER_PER_S = 1.0, 12


class PeerWatch:
    """Reads up to 50 heartbeats a second as a head, 12 as one of the others.

    Sixty-four agents of one trainer then ask for less than 1,000 files a second.
    """

    def __init__(self) -> None:
        """Begin with nobody."""
        self._looked_s: dict[LeaseKey, float] = {}

    def look(
        self,
        board: Board,
        memory: Memory,
        keys: Collection[LeaseKey],
        *,
        is_head: bool,
        is_cut_off: bool,
    ) -> dict[LeaseKey, Peer]:
        """Return what is known of the leases *keys*.

        Args:
            board: The shared files.
            memory: What the agent remembers.
            keys: Those to watch; all others are forgotten.
            is_head: Whether this agent heads one of their generations.
            is_cut_off: Whether the files cannot be used: then nobody grows silent.
        """
        memory.watch_only(keys)
        self._looked_s = {k: s for k, s in self._looked_s.items() if k in keys}
        every_s = _every_s(len(keys), is_head=is_head)
        for key in keys:
            if memory.now_s - self._looked_s.get(key, -every_s) >= every_s:
                self._looked_s[key] = memory.now_s
                _look_peer_watch(board, memory, key, is_cut_off=is_cut_off)
        return {key: memory.pulse(key).peer for key in keys}


def _every_s(count: int, *, is_head: bool) -> float:
    if is_head:
        return max(_HEAD_S, count / _HEAD_PER_S)
    return max(_MEMBER_S, count / _MEMBER_PER_S)


def _look_peer_watch(
    board: Board, memory: Memory, key: LeaseKey, *, is_cut_off: bool
) -> None:
    pulse = memory.pulse(key)
    try:
        beat = board.beat(key)
    except (OSError, FreeTrainError):
        is_cut_off = True
    if is_cut_off:
        pulse.skip(now_s=memory.now_s)
    else:
        pulse.look(beat, now_s=memory.now_s)


# ----------------------------------------------------------------------
# What becomes of the spare that an agent started: told to others once it waits.


def look_at_spare(me: LeaseKey, board: Board, edge: Edge, memory: Memory) -> None:
    """See whether the spare waits, or has ended; forget one that was told to end."""
    spare = memory.spare
    if spare is None:
        return
    if not spare.has_ended:
        _look_spare_watch(spare, me, board, edge)
    if spare.has_ended and spare.is_asked:
        memory.spare = None


def _look_spare_watch(spare: Spare, me: LeaseKey, board: Board, edge: Edge) -> None:
    code = spare.process.poll()
    try:
        if code is None and not spare.is_asked and not spare.is_ready:
            if edge.is_spare_ready(me):
                board.tell_spare(me, spare.trainer)
                spare.is_ready = True
        elif code is not None and not spare.is_asked:
            edge.say(f"the spare of {spare.trainer} ended: exit code {code}")
            board.tell_spare(me, "")
    except OSError as error:
        edge.say(f"cannot say whether there is a spare: {error}")
    spare.has_ended = code is not None


# ----------------------------------------------------------------------
# The agent's loop: look, decide, do; about ten times a second.

_DEFAULT_KILL_AFTER_S = 30.0
_HURRIED_SCAN_S = 0.3
_END_POLL_S = 0.02


class Agent:
    """One lease's agent."""

    def __init__(
        self, lease: Lease, board: Board, edge: Edge, patience: Patience
    ) -> None:
        """Take the lease, the shared files, the edge, and times to go by."""
        now_s = edge.elapsed_s()
        self._lease = lease
        self._board = board
        self._edge = edge
        self._patience = patience
        self._started_s = now_s
        self._memory = Memory(now_s, busy_s=now_s)
        self._node = Node(lease.key, board, edge, patience)
        self._peers = PeerWatch()
        self._discovery = Discovery(lease.key, board, edge, patience)
        self._heart = Heart(lease, board, edge, self._node)
        self._carry_out = CarryOut(lease, board, edge, self._memory, self._node)
        self._scan_due_s = now_s
        self._is_clean = False

    def run(self) -> bool:
        """Work until the lease ends; return whether nothing of it is left here.

        Then its batch script may end, and with it the job, a second sooner than Slurm
        ends one by force.
        """
        while not self.turn():
            self._edge.wait(self._patience.poll_s)
        return self._is_clean

    def turn(self) -> bool:
        """Look, decide and do, once; return whether the lease has ended."""
        memory, edge = self._memory, self._edge
        memory.begin(now_s=edge.elapsed_s(), unix_s=edge.unix_s())
        self._look_at_worlds()
        self._hear()
        look_at_spare(self._lease.key, self._board, edge, memory)
        folders = self._discovery.folders(self._memory)
        self._scan(folders)
        seen = self._see(folders)
        self._heart.beat(seen, now_s=memory.now_s, every_s=self._patience.beat_s)
        ages_s = {what: memory.age_s(what) for what in conditions(seen, self._patience)}
        actions = decide(seen, self._patience, ages_s=ages_s)
        for action in actions:
            if isinstance(action, EndOwnJob):
                self._end(action)
                return True
            self._carry_out.one(action)
        self._forget_worlds(seen)
        memory.end()
        return False

    def _look_at_worlds(self) -> None:
        memory = self._memory
        for running in memory.worlds.values():
            running.look(memory.now_s)

    def _forget_worlds(self, seen: Seen) -> None:
        """Forget worlds that are gone, and said to be."""
        for trainer in seen.trainers:
            for g in trainer.generations:
                is_gone = g.world is not None and g.world.exit_s is not None
                if is_gone and g.is_over and not g.processes:
                    self._memory.worlds.pop((trainer.name, g.number))

    def _end(self, action: EndOwnJob) -> None:
        """Leave nothing behind, say goodbye, and end the job if something is left."""
        edge = self._edge
        edge.say(f"ending this lease's job: {action.why}")
        if edge.is_told_to_leave():
            self._node.kill_all()  # what was worth keeping is kept, and others wait
        until_s = edge.elapsed_s() + self._patience.sweep_grace_s
        self._is_clean = self._node.end_all()
        while not self._is_clean and edge.elapsed_s() < until_s:
            edge.wait(_END_POLL_S)
            self._is_clean = self._node.end_all()
        self._heart.last_beat()
        edge.stop_listening()
        if not self._is_clean:
            self._node.kill_all()
            edge.end_own_job()

    def _scan(self, folders: Sequence[Folder]) -> None:
        memory = self._memory
        if memory.now_s < self._scan_due_s and not self._is_in_haste():
            return
        is_rescale = any(folder.open for folder in folders)
        every_s = _HURRIED_SCAN_S if is_rescale else self._patience.scan_s
        self._scan_due_s = memory.now_s + min(every_s, self._patience.scan_s)
        self._node.scan(folders)
        self._node.sweep()

    def _is_in_haste(self) -> bool:
        is_leaving = self._memory.leaving_since_s is not None
        return is_leaving or any(
            running.exit_s is not None for running in self._memory.worlds.values()
        )

    def _see(self, folders: Sequence[Folder]) -> Seen:
        trainers = self._trainers(folders)
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
            is_cut_off=self._heart.is_cut_off,
        )
        leaving_s, bound_s = self._leaving(trainers)
        return Seen(
            me=self._lease.key,
            trainers=trainers,
            peers=peers,
            stuck=self._node.stuck,
            leaving_s=leaving_s,
            bound_s=bound_s,
            idle_s=memory.now_s - memory.busy_s,
            ended_leases=frozenset(memory.ended_leases),
            spare=None if memory.spare is None else memory.spare.seen(),
        )

    def _trainers(self, folders: Sequence[Folder]) -> tuple[TrainerSeen, ...]:
        own = Self(
            me=self._lease.key,
            processes=self._node.mine,
            is_leaving=self._memory.leaving_since_s is not None,
            home=self._home(folders),
            has_spare=self._memory.spare is not None,
        )
        found: list[TrainerSeen] = []
        for folder in folders:
            try:
                seen = gather(self._board, folder, self._memory, own)
            except (OSError, FreeTrainError) as error:
                self._edge.say(f"cannot read about trainer {folder.name!r}: {error}")
            else:
                found.append(seen)
        return tuple(found)

    def _home(self, folders: Sequence[Folder]) -> str:
        """Return the trainer that has got this lease last, empty for none.

        Survivors and broker may give it to two at once; it leaves the older.
        """
        claims = []
        for folder in folders:
            newest = self._board.assigned(folder.name, folder.newest)
            if self._lease.key in newest.keys:
                claims.append((newest.created_s, folder.name))
        return max(claims)[1] if claims else ""

    def _hear(self) -> None:
        """Hear of the end before anything is decided: others wait for this lease."""
        if self._edge.is_told_to_leave():
            self._leave("Slurm takes the node")

    def _leave(self, why: str) -> None:
        if self._memory.leaving_since_s is None:
            self._memory.leaving_since_s = self._memory.now_s
            self._edge.say(f"leaving: {why}")

    def _leaving(self, trainers: Sequence[TrainerSeen]) -> tuple[float | None, float]:
        """Return for how long this lease has been leaving, and how long it may."""
        memory, lease = self._memory, self._lease
        kill_after_s = max(
            (t.job.stop.kill_after_s for t in trainers), default=_DEFAULT_KILL_AFTER_S
        )
        margin_s = limit_margin_s(limit_s=lease.limit_s, kill_after_s=kill_after_s)
        is_near = memory.now_s - self._started_s >= lease.limit_s - margin_s
        if is_near:
            self._leave("the time limit is near")
        grace_s = lease.grace_s if self._edge.is_told_to_leave() else margin_s
        bound_s = leave_bound_s(kill_after_s=kill_after_s, grace_s=grace_s)
        since_s = memory.leaving_since_s
        return (None if since_s is None else memory.now_s - since_s), bound_s


def _members(trainers: Sequence[TrainerSeen]) -> frozenset[LeaseKey]:
    """Return every lease whose heartbeat matters."""
    found: set[LeaseKey] = set()
    for trainer in trainers:
        for generation in trainer.generations:
            found |= generation.assigned.keys
        if trainer.previous is not None:
            found |= trainer.previous.keys
    return frozenset(found)
