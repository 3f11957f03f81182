"""Looks at other agents' heartbeats, as seldom as will do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.errors import FreeTrainError

if TYPE_CHECKING:
    from collections.abc import Collection

    from freetrain.agent.board import Board
    from freetrain.agent.memory import Memory
    from freetrain.agent.seen import Peer
    from freetrain.broker.lease import LeaseKey

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
                _look(board, memory, key, is_cut_off=is_cut_off)
        return {key: memory.pulse(key).peer for key in keys}


def _every_s(count: int, *, is_head: bool) -> float:
    if is_head:
        return max(_HEAD_S, count / _HEAD_PER_S)
    return max(_MEMBER_S, count / _MEMBER_PER_S)


def _look(board: Board, memory: Memory, key: LeaseKey, *, is_cut_off: bool) -> None:
    pulse = memory.pulse(key)
    try:
        beat = board.beat(key)
    except (OSError, FreeTrainError):
        is_cut_off = True
    if is_cut_off:
        pulse.skip(now_s=memory.now_s)
    else:
        pulse.look(beat, now_s=memory.now_s)
