"""The processes of this lease's node: counted, watched, swept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.agent.processes import StoppedWatch, Sweeper
from freetrain.errors import FreeTrainError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from freetrain.agent.board import Board
    from freetrain.agent.edge import Edge
    from freetrain.agent.gather import Folder
    from freetrain.agent.patience import Patience
    from freetrain.agent.processes import Marked
    from freetrain.broker.lease import LeaseKey

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
