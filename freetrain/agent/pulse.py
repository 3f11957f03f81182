"""Whether other agents are alive: by their heartbeats changing, on one's own clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.agent.seen import Peer

if TYPE_CHECKING:
    from freetrain.exchange.heartbeat import Heartbeat

_MOST_STEP_S = 2.0


class Pulse:
    """Watches one heartbeat.

    Silence is added up from look to look, and one step counts no more than two
    seconds: an agent that was frozen itself must not take the others for dead when
    it wakes up.
    """

    def __init__(self, *, now_s: float) -> None:
        """Begin to watch at *now_s*."""
        self._peer = Peer()
        self._looked_s = now_s

    @property
    def peer(self) -> Peer:
        """What is known."""
        return self._peer

    def look(self, beat: Heartbeat | None, *, now_s: float) -> None:
        """Take the heartbeat as it was found at *now_s*."""
        before = self._peer
        step_s = min(max(0.0, now_s - self._looked_s), _MOST_STEP_S)
        self._looked_s = now_s
        if beat is not None and _number(beat) != _number(before.beat):
            is_change = before.beat is not None
            self._peer = Peer(beat=beat, has_beaten=before.has_beaten or is_change)
            return
        self._peer = Peer(
            beat=before.beat,
            silent_s=before.silent_s + step_s,
            has_beaten=before.has_beaten,
        )

    def skip(self, *, now_s: float) -> None:
        """Let the time until *now_s* pass for nothing: nobody could look."""
        self._looked_s = now_s


def _number(beat: Heartbeat | None) -> tuple[int, int] | None:
    return None if beat is None else (beat.pid, beat.beat)
