"""The agent's own heartbeat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.exchange.heartbeat import AgentState, Heartbeat

if TYPE_CHECKING:
    from freetrain.agent.board import Board
    from freetrain.agent.edge import Edge
    from freetrain.agent.lease import Lease
    from freetrain.agent.node import Node
    from freetrain.agent.seen import Seen, TrainerSeen


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
