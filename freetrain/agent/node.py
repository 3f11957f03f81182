"""The processes of a lease's node: counted, watched for being stopped, and ended."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from freetrain.errors import FreeTrainError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from freetrain.agent.board import Board, TrainerFolder
    from freetrain.agent.environment import Environment
    from freetrain.agent.marks import MarkedProcess
    from freetrain.agent.observation import Patience
    from freetrain.broker.lease import LeaseKey

WorldKey = tuple[str, int]
"""A trainer and a generation."""


class Node:
    """The processes that an agent sees, and what it does to them.

    Attributes:
        processes: All marked ones, at the last look.
        swept: By trainer, up to which generation nothing of this lease is left.
        stuck: Generations with processes that have been stopped for too long.
    """

    def __init__(
        self, me: LeaseKey, board: Board, environment: Environment, patience: Patience
    ) -> None:
        """Take this lease, the shared files, the environment, and times to go by."""
        self.processes: tuple[MarkedProcess, ...] = ()
        self.swept: dict[str, int] = {}
        self.stuck: frozenset[WorldKey] = frozenset()
        self._me = me
        self._board = board
        self._environment = environment
        self._sweeper = Sweeper(patience.sweep_grace_s)
        self._stopped = StoppedWatch(patience.stuck_s)

    @property
    def mine(self) -> tuple[MarkedProcess, ...]:
        """Processes of this lease, at the last look."""
        return tuple(p for p in self.processes if p.mark.lease == self._me)

    def scan(self, folders: Collection[TrainerFolder]) -> None:
        """Look at all processes.

        Args:
            folders: The trainers that matter, as read before.
        """
        try:
            self.processes = self._environment.processes()
        except OSError as error:
            self._environment.log(f"cannot look at processes: {error}")
            return
        self.swept = {folder.name: self._swept(folder) for folder in folders}
        ours = [p for p in self.processes if self._is_ours(p)]
        live = [p for p in ours if p.mark.generation and not self._is_over(p)]
        now_s = self._environment.elapsed_s()
        stuck = self._stopped.stuck(tuple(live), now_s=now_s)
        self.stuck = frozenset(process.mark.world for process in stuck)

    def sweep(self, also: Collection[WorldKey] = ()) -> None:
        """End what is left of generations that are over, and of those in *also*."""
        self._end(
            p
            for p in self.processes
            if self._is_ours(p) and (p.mark.world in also or self._is_over(p))
        )

    def kill(self, world: WorldKey) -> None:
        """Kill all processes of one generation, at once."""
        self._kill(lambda p: p.mark.world == world)

    def kill_ranks(self, world: WorldKey) -> None:
        """Kill the ranks of one generation, at once."""
        self._kill(lambda p: p.mark.world == world and p.mark.is_rank)

    def kill_all(self) -> None:
        """Kill all processes of this lease, at once."""
        self._kill(lambda p: p.mark.lease == self._me)

    def end_all(self) -> bool:
        """End all processes of this lease; return whether none is left."""
        self.scan(())
        self._end(self.mine)
        return not self.mine

    def _kill(self, is_meant: Callable[[MarkedProcess], bool]) -> None:
        self.scan(())
        found = (p for p in self.processes if self._is_ours(p) and is_meant(p))
        self._end(found, at_once=True)

    def _end(
        self,
        targets: Iterator[MarkedProcess] | tuple[MarkedProcess, ...],
        *,
        at_once: bool = False,
    ) -> None:
        now_s = self._environment.elapsed_s()
        due = self._sweeper.due(tuple(targets), now_s=now_s, at_once=at_once)
        for process, number in due:
            self._environment.send(process, number)

    def _is_ours(self, process: MarkedProcess) -> bool:
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

    def _is_over(self, process: MarkedProcess) -> bool:
        try:
            over = self._board.endings(process.mark.trainer)
        except (OSError, FreeTrainError):
            return False
        return process.mark.generation in over

    def _swept(self, folder: TrainerFolder) -> int:
        present = (
            p.mark.generation
            for p in self.mine
            if p.mark.trainer == folder.name and p.mark.generation  # a spare has none
        )
        live = min(folder.open, default=folder.newest)
        return min(live, *present, folder.newest) - 1


class Sweeper:
    """Ends processes: TERM when it first meets one, KILL when the grace is over."""

    def __init__(self, grace_s: float) -> None:
        """Take the time between the two signals."""
        self._grace_s = grace_s
        self._terminated_s: dict[tuple[int, int], float] = {}

    def due(
        self, targets: tuple[MarkedProcess, ...], *, now_s: float, at_once: bool = False
    ) -> tuple[tuple[MarkedProcess, signal.Signals], ...]:
        """Return the signals to send now.

        Args:
            targets: All that is to end and is still there.
            now_s: The time, on a clock that never goes back.
            at_once: Whether there is no time for TERM.
        """
        here = {(p.pid, p.started): p for p in targets}
        self._terminated_s = {k: s for k, s in self._terminated_s.items() if k in here}
        return tuple(
            (p, self._next(key, now_s, at_once=at_once or p.is_stopped))
            for key, p in here.items()
            if at_once or self._is_due(key, now_s)
        )

    def _is_due(self, key: tuple[int, int], now_s: float) -> bool:
        terminated_s = self._terminated_s.get(key)
        return terminated_s is None or now_s - terminated_s >= self._grace_s

    def _next(
        self, key: tuple[int, int], now_s: float, *, at_once: bool
    ) -> signal.Signals:
        has_had_term = key in self._terminated_s
        self._terminated_s.setdefault(key, now_s)
        return signal.SIGKILL if has_had_term or at_once else signal.SIGTERM


class StoppedWatch:
    """Finds processes that have been stopped for long."""

    def __init__(self, patience_s: float) -> None:
        """Take how long is long."""
        self._patience_s = patience_s
        self._since_s: dict[tuple[int, int, int], float] = {}

    def stuck(
        self, processes: tuple[MarkedProcess, ...], *, now_s: float
    ) -> tuple[MarkedProcess, ...]:
        """Return those of *processes* that have been stopped for long.

        They were so in every look, and got no CPU between two of them.
        """
        stopped = {(p.pid, p.started, p.switches): p for p in processes if p.is_stopped}
        self._since_s = {key: self._since_s.get(key, now_s) for key in stopped}
        return tuple(
            process
            for key, process in stopped.items()
            if now_s - self._since_s[key] >= self._patience_s
        )
