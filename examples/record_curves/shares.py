"""A share of one processor for this process: by the kernel where it lets us."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

CPU_CGROUPS = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 20_000
"""Short, so that a measurement of a second sees fifty; the kernel's least quota is
1 ms, 5 % of it."""
WORK_S = 0.02


class Share(Protocol):
    """Keeps this process to a share.

    Attributes:
        method: How, as the table says.
    """

    method: str

    def of(self, percent: int) -> AbstractContextManager[Callable[[], None]]:
        """Hold for a while; call what is returned after each step."""
        ...


class Quota:
    """By a cgroup (version 1) of our own with ``cpu.cfs_quota_us``."""

    method = "cgroup v1"

    def __init__(self, cgroups: Path = CPU_CGROUPS) -> None:
        self._cgroups = cgroups

    @contextmanager
    def of(self, percent: int) -> Iterator[Callable[[], None]]:
        """Move this process into a group below its own, and back."""
        before = self._cgroups / _cpu_group() / "cgroup.procs"
        if not os.access(before, os.W_OK):  # no way back
            raise PermissionError(f"{before} cannot be written")
        # Below the group we are in: its shares and limits go on holding for us.
        ours = before.parent / f"freetrain-steps-{os.getpid()}"
        ours.mkdir()
        try:
            (ours / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (ours / "cpu.cfs_quota_us").write_text(str(PERIOD_US * percent // 100))
            (ours / "cgroup.procs").write_text(str(os.getpid()))
            yield lambda: None
        finally:
            before.write_text(str(os.getpid()))
            ours.rmdir()

    def works(self) -> bool:
        """Tell whether this process may do that, by doing it."""
        try:
            with self.of(100):
                return True
        except OSError:
            return False


class DutyCycle:
    """By sleeping after every 20 ms of work, as long as the share asks for."""

    method = "duty cycle"

    def __init__(
        self,
        clock_s: Callable[[], float] = perf_counter,
        sleep_s: Callable[[float], None] = sleep,
    ) -> None:
        self._clock_s, self._sleep_s = clock_s, sleep_s

    @contextmanager
    def of(self, percent: int) -> Iterator[Callable[[], None]]:
        """Sleep in proportion to what was worked."""
        began_s = self._clock_s()

        def rest() -> None:
            nonlocal began_s
            worked_s = self._clock_s() - began_s
            if worked_s >= WORK_S:
                self._sleep_s(worked_s * (100 / percent - 1))
                began_s = self._clock_s()

        yield rest


def best_share() -> Share:
    """Return the quota where it works, else the duty cycle."""
    quota = Quota()
    return quota if quota.works() else DutyCycle()


def _cpu_group() -> str:
    """This process's group in the hierarchy of ``cpu``, without the first slash."""
    for line in Path("/proc/self/cgroup").read_text("ascii").splitlines():
        _, controllers, group = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return group.removeprefix("/")
    raise FileNotFoundError("there is no cgroup v1 hierarchy of cpu")
