"""CPU shares by turns: members are stopped and go on, ten times a second."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Protocol

from freetrain.pack.lanes import turns
from freetrain.pack.means import NOTHING_DUE_S
from freetrain.pack.pack import MeansName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from freetrain.pack.lanes import Turn

PERIOD_S = 0.1
_SHORTEST_S = 0.001


class Tell(Protocol):
    """Sends a signal to processes."""

    def __call__(self, pids: Iterable[int], number: signal.Signals, /) -> None:
        """Send; what is gone meanwhile does not matter."""
        ...


class DutyCycle:
    """Members take turns; no more run at once than there are CPUs.

    What a member does not use of its turn is lost, unlike with the other means; and
    members that use several CPUs each get more than their share.
    """

    name = MeansName.DUTY_CYCLE

    def __init__(self, cpus: int, tell: Tell) -> None:
        """Take the number of CPUs of all members, and how to send signals."""
        self._cpus = cpus
        self._tell = tell
        self._shares: dict[str, float] = {}
        self._turns: dict[str, tuple[Turn, ...]] = {}
        self._pids: dict[str, tuple[int, ...]] = {}
        self._stopped: set[str] = set()

    def admit(self, member: str) -> tuple[str, ...]:
        """Let *member* run until its share is known."""
        self._pids.setdefault(member, ())
        return ()

    def follow(self, member: str, pids: Iterable[int]) -> None:
        """Take note of the processes; what is new is stopped with the others."""
        before, self._pids[member] = self._pids.get(member, ()), tuple(pids)
        if member in self._stopped:
            new = set(self._pids[member]).difference(before)
            self._tell(new, signal.SIGSTOP)

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Lay the turns out anew."""
        self._shares |= shares
        self._turns = turns(self._shares, self._cpus)

    def turn(self, now_s: float) -> float:
        """Stop and let go whom it is time for."""
        at = now_s / PERIOD_S % 1.0
        running = {n for n, own in self._turns.items() if _is_on(own, at)}
        # Those that stop come first, so that never more run than there are CPUs.
        for member in self._turns.keys() - running - self._stopped:
            self._tell(self._pids.get(member, ()), signal.SIGSTOP)
            self._stopped.add(member)
        for member in running & self._stopped:
            self._go_on(member)
        edges = {edge for own in self._turns.values() for turn in own for edge in turn}
        if edges <= {0.0, 1.0}:
            return NOTHING_DUE_S
        due = min((edge - at) % 1.0 or 1.0 for edge in edges)
        return max(_SHORTEST_S, due * PERIOD_S)

    def pids(self, member: str) -> tuple[int, ...]:
        """Return nothing: what is known was told."""
        del member
        return ()

    def release(self, member: str) -> None:
        """Let *member* go on, and the others have its turns."""
        if member in self._stopped:
            self._go_on(member)
        self._pids.pop(member, None)
        self._shares.pop(member, None)
        self._turns = turns(self._shares, self._cpus)

    def close(self) -> None:
        """Let all go on."""
        for member in tuple(self._pids):
            self.release(member)

    def _go_on(self, member: str) -> None:
        self._tell(self._pids.get(member, ()), signal.SIGCONT)
        self._stopped.discard(member)


def _is_on(own: tuple[Turn, ...], at: float) -> bool:
    return any(begin <= at < end for begin, end in own)
