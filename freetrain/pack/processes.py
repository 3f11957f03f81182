"""The processes of a pack's members: found by a mark that all of them carry."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.processes import environments, status_of

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable, Iterator

MARK = "FREETRAIN_PACK_MEMBER"
"""The variable whose value names pack, packer and member."""


@dataclass(frozen=True, slots=True)
class Packer:
    """The process of a pack on this node, which starts its members.

    Attributes:
        pack: What tells packs apart, the same at each start.
        pid: The packer's process.
        started: When it began, in clock ticks since boot.
    """

    pack: str
    pid: int
    started: int

    @property
    def label(self) -> str:
        """The packer as a text without a slash."""
        return f"{self.pack}-{self.pid}-{self.started}"

    @property
    def is_alive(self) -> bool:
        """Whether its process is there."""
        return _started(self.pid) == self.started

    def has_left(self, label: str) -> bool:
        """Tell whether *label* is of an earlier packer of this pack, which is dead."""
        other = packer_of(label)
        if other is None or other.pack != self.pack:
            return False
        return not other.is_alive


def this_packer(pack: str) -> Packer:
    """Return this process as the packer of *pack*."""
    return Packer(pack, os.getpid(), _started(os.getpid()) or 0)


def packer_of(label: str) -> Packer | None:
    """Return the packer that *label* names; None where it is no label."""
    pack, *numbers = label.rsplit("-", 2)
    if not pack or len(numbers) != 2 or not all(map(str.isdecimal, numbers)):  # noqa: PLR2004
        return None
    return Packer(pack, int(numbers[0]), int(numbers[1]))


def marked_processes() -> Iterator[tuple[int, str, str]]:
    """Yield process, label of its packer, and member of all that carry the mark."""
    wanted = f"{MARK}=".encode()
    for pid, environ in environments(wanted):
        for variable in environ.split(b"\0"):
            if variable.startswith(wanted):
                value = variable.removeprefix(wanted).decode("utf-8", "replace")
                label, _, member = value.partition("/")
                yield pid, label, member


def members_of(packer: Packer) -> dict[str, tuple[int, ...]]:
    """Return the processes of *packer*'s members, by member."""
    found: dict[str, tuple[int, ...]] = {}
    for pid, label, member in marked_processes():
        if label == packer.label and pid != packer.pid:
            found[member] = (*found.get(member, ()), pid)
    return found


def left_behind(packer: Packer) -> tuple[int, ...]:
    """Return processes of earlier packers of the same pack, which are dead."""
    return tuple(pid for pid, label, _ in marked_processes() if packer.has_left(label))


def used_s(pids: Iterable[int]) -> float:
    """Return the CPU time of *pids* and of their children that were waited for."""
    statuses = map(status_of, pids)
    ticks = sum(status.cpu_ticks for status in statuses if status is not None)
    return ticks / os.sysconf("SC_CLK_TCK")


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to all of *pids* that are there."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def is_there(pid: int) -> bool:
    """Tell whether *pid* has not ended; a zombie has."""
    return _started(pid) is not None


def _started(pid: int) -> int | None:
    """Return when *pid* began, in clock ticks since boot; None where it has ended."""
    status = status_of(pid)
    return None if status is None or status.has_ended else status.started
