"""Which trainers a lease has to do with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.agent.gather import concerns, read_folder
from freetrain.errors import FreeTrainError

if TYPE_CHECKING:
    from freetrain.agent.board import Board
    from freetrain.agent.edge import Edge
    from freetrain.agent.gather import Folder
    from freetrain.agent.memory import Memory
    from freetrain.agent.patience import Patience
    from freetrain.broker.lease import LeaseKey


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
