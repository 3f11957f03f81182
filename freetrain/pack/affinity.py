"""CPU shares by whole CPUs: where there are many, and nothing finer is allowed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from freetrain.pack.lanes import whole_cpus
from freetrain.pack.means import NOTHING_DUE_S
from freetrain.pack.pack import MeansName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ENOUGH_CPUS = 8
"""With fewer, whole CPUs are too coarse for a few members."""


class Pin(Protocol):
    """Lets a process with all its threads run on these CPUs only."""

    def __call__(self, pid: int, cpus: Sequence[int], /) -> None:
        """Pin; what is gone meanwhile does not matter."""
        ...


class Affinity:
    """Each member has CPUs of its own, or shares some with a neighbour."""

    name = MeansName.AFFINITY

    def __init__(self, cpus: Sequence[int], pin: Pin) -> None:
        """Take the CPUs of all members, and how to pin."""
        self._cpus = tuple(cpus)
        self._pin = pin
        self._shares: dict[str, float] = {}
        self._pids: dict[str, tuple[int, ...]] = {}

    def admit(self, member: str) -> tuple[str, ...]:
        """Give *member* all CPUs until its share is known."""
        self._pids.setdefault(member, ())
        return ()

    def follow(self, member: str, pids: Iterable[int]) -> None:
        """Pin what *member* started since the last look."""
        self._pids[member] = tuple(pids)
        self._pin_all()

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Deal the CPUs out anew."""
        self._shares |= shares
        self._pin_all()

    def turn(self, now_s: float) -> float:
        """Do nothing: the kernel does."""
        del now_s
        return NOTHING_DUE_S

    def pids(self, member: str) -> tuple[int, ...]:
        """Return nothing: what is known was told."""
        del member
        return ()

    def release(self, member: str) -> None:
        """Let *member* run everywhere, and the others have its CPUs."""
        for pid in self._pids.pop(member, ()):
            self._pin(pid, self._cpus)
        self._shares.pop(member, None)
        self._pin_all()

    def close(self) -> None:
        """Let all run everywhere."""
        for member in tuple(self._pids):
            self.release(member)

    def _pin_all(self) -> None:
        if not self._shares:
            return
        for member, cpus in whole_cpus(self._shares, self._cpus).items():
            for pid in self._pids.get(member, ()):
                self._pin(pid, cpus)


def pin_process(pid: int, cpus: Sequence[int], /) -> None:
    """Pin process *pid*: affinity is of threads, and new ones inherit it."""
    with suppress(OSError):
        for thread in Path("/proc", str(pid), "task").iterdir():
            with suppress(OSError):
                if os.sched_getaffinity(int(thread.name)) != set(cpus):
                    os.sched_setaffinity(int(thread.name), cpus)
