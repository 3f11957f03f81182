"""What was decided, done."""

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
    WriteEnding,
    WriteNotice,
)
from freetrain.agent.composing import drafted, judged, not_started
from freetrain.agent.memory import Running, Spare
from freetrain.errors import FreeTrainError
from freetrain.exchange.layout import lease_name

if TYPE_CHECKING:
    from freetrain.agent.actions import Action
    from freetrain.agent.board import Board
    from freetrain.agent.edge import Edge
    from freetrain.agent.lease import Lease
    from freetrain.agent.memory import Memory
    from freetrain.agent.node import Node
    from freetrain.exchange.assigned import Assigned
    from freetrain.exchange.ending import Ending


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
