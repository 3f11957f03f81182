"""What becomes of the spare that an agent started: told to others once it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freetrain.agent.board import Board
    from freetrain.agent.edge import Edge
    from freetrain.agent.memory import Memory, Spare
    from freetrain.broker.lease import LeaseKey


def look_at_spare(me: LeaseKey, board: Board, edge: Edge, memory: Memory) -> None:
    """See whether the spare waits, or has ended; forget one that was told to end."""
    spare = memory.spare
    if spare is None:
        return
    if not spare.has_ended:
        _look(spare, me, board, edge)
    if spare.has_ended and spare.is_asked:
        memory.spare = None


def _look(spare: Spare, me: LeaseKey, board: Board, edge: Edge) -> None:
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
