"""Carries out what the rules decided, and keeps what the agent has started."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from freetrain.agent.observation import (
    HeartbeatWatch,
    ObservedSpare,
    ObservedWorld,
)
from freetrain.agent.rules import (
    AskToStop,
    EndLease,
    EndSpare,
    Kill,
    KillRanks,
    Launch,
    Propose,
    RequestStop,
    StartSpare,
    Sweep,
    SweepAll,
    WriteEnding,
    WriteNotice,
)
from freetrain.errors import FreeTrainError
from freetrain.state.files import Ended, GenerationEnding, lease_name

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from freetrain.agent.board import Board
    from freetrain.agent.environment import Environment, Node, ProcessGroup
    from freetrain.agent.rules import Action
    from freetrain.broker.lease import LeaseKey
    from freetrain.state.files import Assigned


@dataclass(slots=True)
class LaunchedWorld:
    """A world that this agent launched, with the times of what happened to it.

    Attributes:
        trainer: The trainer.
        generation: Its generation.
        process: Its launcher.
        after: The generation it waits for, if any.
        launched_s: When it was launched, on the agent's clock.
        asked_s: When it was asked to stop, if it was.
        killed_s: When it was killed, if it was.
        why_killed: The reason, for people; empty if it was not killed.
        exit_s: When its launcher was first seen gone.
        exit_code: The launcher's exit status.
        lingers: Whether a process of its session was left at the last look.
        has_begun: Whether its program ever left a sign of life: the sign is removed
            when the next generation begins.
    """

    trainer: str
    generation: int
    process: ProcessGroup
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
        """See whether the launcher is still there, and what is left of it if not."""
        if self.exit_s is None:
            self.exit_code = self.process.poll()
            if self.exit_code is not None:
                self.exit_s = now_s
        if self.exit_s is not None and self.killed_s is None:
            self.lingers = self.process.lingers()

    def observed(self, now_s: float) -> ObservedWorld:
        """Return what decisions need of it."""
        return ObservedWorld(
            age_s=now_s - self.launched_s,
            after=self.after,
            asked_s=None if self.asked_s is None else now_s - self.asked_s,
            killed_s=None if self.killed_s is None else now_s - self.killed_s,
            exit_s=None if self.exit_s is None else now_s - self.exit_s,
            exit_code=self.exit_code,
            lingers=self.lingers,
        )


@dataclass(slots=True)
class StartedSpare:
    """A spare that this agent started.

    Attributes:
        trainer: The trainer whose ranks it makes.
        generation: The generation beside which it was started.
        process: Its process.
        is_asked: Whether it was asked to make no more ranks.
        has_ended: Whether it was seen gone.
        is_ready: Whether it was seen to wait for ranks to make.
    """

    trainer: str
    generation: int
    process: ProcessGroup
    is_asked: bool = False
    has_ended: bool = False
    is_ready: bool = False

    def observed(self) -> ObservedSpare:
        """Return what decisions need of it."""
        return ObservedSpare(self.trainer, self.generation, is_asked=self.is_asked)


@dataclass(slots=True)
class Memory:
    """Everything that outlives a turn.

    Attributes:
        now_s: The time of this turn, on the agent's clock.
        unix_s: The same, Unix time.
        worlds: Worlds that this agent launched and that still matter.
        heartbeats: The heartbeats that it watches.
        ended_leases: Silent leases whose jobs it ended.
        leaving_since_s: Since when this lease has to leave; None if it need not.
        busy_s: When it last had a trainer.
        spare: The spare that it has, or that ended without being asked to.
    """

    now_s: float
    unix_s: float = 0.0
    worlds: dict[tuple[str, int], LaunchedWorld] = field(default_factory=dict)
    heartbeats: dict[LeaseKey, HeartbeatWatch] = field(default_factory=dict)
    ended_leases: set[LeaseKey] = field(default_factory=set)
    leaving_since_s: float | None = None
    busy_s: float = 0.0
    spare: StartedSpare | None = None
    _since_s: dict[Hashable, float] = field(default_factory=dict)
    _asked: set[Hashable] = field(default_factory=set)

    def begin(self, *, now_s: float, unix_s: float) -> None:
        """Begin a turn."""
        self.now_s, self.unix_s = now_s, unix_s
        self._asked = set()

    def age_s(self, condition: Hashable) -> float:
        """Return for how long *condition* has held; 0 in the turn that first asks."""
        self._asked.add(condition)
        return self.now_s - self._since_s.setdefault(condition, self.now_s)

    def end(self) -> None:
        """End a turn: conditions that were not asked about do not hold any more."""
        self._since_s = {k: s for k, s in self._since_s.items() if k in self._asked}

    def heartbeat(self, key: LeaseKey) -> HeartbeatWatch:
        """Return the watch of *key*, begun now if there is none."""
        return self.heartbeats.setdefault(key, HeartbeatWatch(now_s=self.now_s))

    def watch_only(self, keys: Collection[LeaseKey]) -> None:
        """Forget the heartbeats of all other leases."""
        self.heartbeats = {k: w for k, w in self.heartbeats.items() if k in keys}


_SPARE_AGAIN_S = 60.0


class Executor:
    """Carries out actions; one that fails is logged, and decided again."""

    def __init__(
        self,
        me: LeaseKey,
        board: Board,
        environment: Environment,
        memory: Memory,
        node: Node,
    ) -> None:
        """Take this lease and all that can be acted on."""
        self._me = me
        self._board = board
        self._environment = environment
        self._memory = memory
        self._node = node
        self._author = lease_name(me)
        self._spare_due_s = memory.now_s

    def carry_out(self, action: Action) -> None:
        """Do *action*, or log why it could not be done."""
        try:
            self._do(action)
        except (OSError, FreeTrainError) as error:
            self._environment.log(f"{type(action).__name__} failed: {error}")

    def _do(self, action: Action) -> None:
        match action:
            case Launch():
                self._launch(action)
            case AskToStop():
                self._ask_to_stop(action)
            case RequestStop():
                self._board.request_stop(action.trainer, action.generation)
                self._log(_world_of(action), "asked to stop, since its head is lost")
            case Kill():
                self._kill(action)
            case KillRanks():
                self._node.kill_ranks((action.trainer, action.generation))
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
            case SweepAll():
                self._node.kill_all()
            case WriteNotice():
                self._board.write_notice(action.trainer, action.generation, self._me)
                self._log(_world_of(action), "noted that this lease leaves")
            case EndLease():
                self._memory.ended_leases.add(action.member.key)
                self._environment.log(f"ending silent lease {action.member.display_id}")
                self._environment.end_lease(action.member)
            case StartSpare():
                self._start_spare(action.assigned)
            case EndSpare():
                self._end_spare()
            case _:
                raise AssertionError(f"the loop itself does {action}")

    # -- worlds

    def _launch(self, action: Launch) -> None:
        assigned, memory = action.assigned, self._memory
        job = self._board.job(assigned.trainer)
        is_forked = bool(job.launch.spare) and self._have_spares(assigned)
        try:
            process = self._environment.launch(
                job, assigned, after=action.after, is_forked=is_forked
            )
        except (OSError, FreeTrainError) as error:
            ending = failed_launch(
                assigned.generation, error, author=self._author, unix_s=memory.unix_s
            )
            self._end(ending, assigned.trainer)
            return
        world = (assigned.trainer, assigned.generation)
        memory.worlds[world] = LaunchedWorld(
            *world, process, action.after, launched_s=memory.now_s
        )
        nodes = ",".join(member.node for member in assigned.members)
        after = f", after generation {action.after}" if action.after else ""
        how = ", as forks of spares" if is_forked else ""
        self._log(world, f"launched on {nodes}{after}{how}")

    def _have_spares(self, assigned: Assigned) -> bool:
        """Tell whether each lease has a spare; where it cannot be read, it has none."""
        with suppress(OSError, ValueError):
            return all(
                self._board.spare_of(member.key) == assigned.trainer
                for member in assigned.members
            )
        return False

    def _ask_to_stop(self, action: AskToStop) -> None:
        world = self._memory.worlds[action.trainer, action.generation]
        world.asked_s = self._memory.now_s
        self._log(_world_of(action), f"asked to stop: {action.why}")
        world.process.ask_to_stop()

    def _kill(self, action: Kill) -> None:
        world = self._memory.worlds[action.trainer, action.generation]
        if world.killed_s is None:
            world.killed_s = self._memory.now_s
            world.why_killed = action.why
            if action.why:
                self._log(_world_of(action), f"killed: {action.why}")
        world.process.kill()
        if action.why:
            self._node.kill((action.trainer, action.generation))

    # -- generations

    def _propose(self, action: Propose) -> None:
        assigned = action.assigned
        is_mine = self._board.propose(assigned)
        nodes = ",".join(member.node for member in assigned.members) or "no node"
        author = "made" if is_mine else "another agent or the broker made"
        self._log(
            (assigned.trainer, assigned.generation),
            f"{author} it: {assigned.reason}; proposed {nodes}",
        )

    def _write_ending(self, action: WriteEnding) -> None:
        ending = draft_ending(action, author=self._author, unix_s=self._memory.unix_s)
        if action.was_launched:
            elastic = self._board.job(action.trainer).elastic
            ending = self._board.with_outcome(action.trainer, ending)
            ending = complete_ending(ending, action, elastic=elastic)
            world = self._memory.worlds.get((action.trainer, action.generation))
            if world is not None and not ending.message:
                ending = replace(ending, message=world.why_killed)
        self._end(ending, action.trainer)

    def _end(self, ending: GenerationEnding, trainer: str) -> None:
        if self._board.write_ending(trainer, ending):
            why = f": {ending.message}" if ending.message else ""
            self._log((trainer, ending.generation), f"over: {ending.ended.words}{why}")

    # -- the spare

    def _start_spare(self, assigned: Assigned) -> None:
        if self._memory.now_s < self._spare_due_s:
            return
        job = self._board.job(assigned.trainer)
        try:
            process = self._environment.start_spare(job, assigned, self._me)
        except (OSError, FreeTrainError):
            self._spare_due_s = self._memory.now_s + _SPARE_AGAIN_S
            raise
        self._memory.spare = StartedSpare(
            assigned.trainer, assigned.generation, process
        )
        self._environment.log(f"a spare of {assigned.trainer} was started")

    def _end_spare(self) -> None:
        spare = self._memory.spare
        if spare is not None:
            spare.is_asked = True
            spare.process.ask_to_stop()
            self._board.announce_spare(self._me, "")

    def _log(self, world: tuple[str, int], text: str) -> None:
        self._environment.log(f"{world[0]}/{world[1]}: {text}")


def _world_of(action: RequestStop | WriteNotice | AskToStop | Kill) -> tuple[str, int]:
    return (action.trainer, action.generation)


# ----------------------------------------------------------------------
# Endings: from what this agent knows, and from the outcome that the world left

_NOT_ELASTIC = "a program without freetrain.elastic needs elastic = false"


def draft_ending(
    action: WriteEnding, *, author: str, unix_s: float
) -> GenerationEnding:
    """Return the ending as the agent alone knows it.

    Args:
        action: What it knows.
        author: Its lease's name.
        unix_s: Now.
    """
    return GenerationEnding(
        generation=action.generation,
        ended=Ended.KILLED if action.was_launched else Ended.NOT_LAUNCHED,
        was_asked=action.was_asked,
        lost_lease=action.lost_lease,
        exit_code=action.exit_code,
        step=0,
        committed_step=0,
        message=action.why,
        started_s=None if action.age_s is None else unix_s - action.age_s,
        ended_s=unix_s,
        author=author,
    )


def failed_launch(
    generation: int, error: Exception, *, author: str, unix_s: float
) -> GenerationEnding:
    """Return the ending of a world that could not be started."""
    return GenerationEnding(
        generation=generation,
        ended=Ended.FAILED,
        was_asked=False,
        lost_lease=False,
        exit_code=None,
        step=0,
        committed_step=0,
        message=str(error),
        started_s=None,
        ended_s=unix_s,
        author=author,
    )


def complete_ending(
    ending: GenerationEnding, action: WriteEnding, *, elastic: bool
) -> GenerationEnding:
    """Return *ending*, which has the world's outcome by now, as it is to count.

    Programs that are not elastic leave nothing but their exit status: whatever it
    is, a program that was asked to stop and did has been rescaled.
    """
    ended = ending.ended
    if ended is Ended.KILLED and not elastic:
        ended = _by_exit_code(action)
    if action.is_done and ended not in {Ended.FAILED, Ended.DO_NOT_RESTART}:
        ended = Ended.FINISHED
    message = ending.message or _exit_message(action, ended, elastic=elastic)
    return replace(ending, ended=ended, message=message)


def _by_exit_code(action: WriteEnding) -> Ended:
    if action.was_killed or action.exit_code is None:
        return Ended.KILLED
    if action.was_asked:
        return Ended.RESCALED
    if action.exit_code == 0:
        return Ended.FINISHED
    return Ended.KILLED if action.lost_lease else Ended.FAILED


def _exit_message(action: WriteEnding, ended: Ended, *, elastic: bool) -> str:
    """Return the reason for people, of a world that left no outcome and failed."""
    if ended not in {Ended.KILLED, Ended.FAILED} or action.exit_code is None:
        return ""
    if action.was_asked or action.was_killed or action.lost_lease:
        return ""
    if elastic and action.exit_code == 0:
        return f"exit code 0, and no outcome; {_NOT_ELASTIC}"
    if action.exit_code < 0:
        return f"its launcher was ended by signal {-action.exit_code}"
    return f"exit code {action.exit_code}"
