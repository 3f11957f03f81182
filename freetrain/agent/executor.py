"""Carries out what the rules decided, one action after the other."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.agent.actions import (
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
    WriteNotice,
)
from freetrain.agent.endings import (
    WriteEnding,
    complete_ending,
    draft_ending,
    failed_launch,
)
from freetrain.agent.memory import LaunchedWorld, StartedSpare
from freetrain.errors import FreeTrainError
from freetrain.state.files import lease_name

if TYPE_CHECKING:
    from freetrain.agent.actions import Action
    from freetrain.agent.board import Board
    from freetrain.agent.environment import Environment
    from freetrain.agent.memory import Memory
    from freetrain.agent.node import Node
    from freetrain.broker.lease import LeaseKey
    from freetrain.state.files import Assigned, GenerationEnding

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
