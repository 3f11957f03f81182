"""The means of sharing on a bench: what they do, and what that gives to whom."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from freetrain.pack.cpu_controllers import (
    PERIOD_S,
    AffinityController,
    CgroupController,
    ControllerName,
    DutyCycleController,
    ParentGroup,
)
from freetrain.pack.processes import Packer
from tests.pack.fake_kernel import OWN, FakeKernel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from freetrain.pack.cpu_controllers import CpuController

PACKER = Packer("0123abcd", 1, 1)


class Bench(Protocol):
    """A means with what it acts on."""

    @property
    def means(self) -> CpuController: ...

    def join(self, member: str, pid: int) -> None:
        """Let process *pid* of *member* appear, as the words of admit would."""

    def given(self) -> dict[int, float]:
        """The CPU time that each process gets where all want all they can have."""

    def left_behind(self) -> object:
        """Whatever is not as it was in the beginning; empty for nothing."""


@dataclass
class GroupsBench:
    kernel: FakeKernel
    means: CgroupController

    def join(self, member: str, pid: int) -> None:
        procs = self.means.admit(member)[3]
        folder = next(p for p in self.kernel.groups if str(p / "cgroup.procs") == procs)
        self.kernel.groups[folder].pids.add(pid)

    def given(self) -> dict[int, float]:
        return {
            pid: float(group.weight)
            for path, group in self.kernel.groups.items()
            if path.parent.parent == OWN
            for pid in group.pids
        }

    def left_behind(self) -> object:
        own = self.kernel.groups[OWN]
        return [path for path in self.kernel.groups if path != OWN] or own.hands_down


@dataclass
class AffinityBench:
    means: AffinityController = field(init=False)
    pinned: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.means = AffinityController(range(16), self._pin)

    def _pin(self, pid: int, cpus: Sequence[int]) -> None:
        self.pinned[pid] = tuple(cpus)

    def join(self, member: str, pid: int) -> None:
        assert self.means.admit(member) == ()
        self.means.follow(member, (pid,))

    def given(self) -> dict[int, float]:
        on = {
            cpu: [p for p, own in self.pinned.items() if cpu in own]
            for cpu in range(16)
        }
        return {
            pid: sum(1 / len(on[cpu]) for cpu in cpus)
            for pid, cpus in self.pinned.items()
        }

    def left_behind(self) -> object:
        return {pid for pid, cpus in self.pinned.items() if len(cpus) < 16}


@dataclass
class DutyBench:
    cpus: int = 1
    means: DutyCycleController = field(init=False)
    stopped: set[int] = field(default_factory=set)
    pids: set[int] = field(default_factory=set)
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.means = DutyCycleController(self.cpus, self._tell)

    def _tell(self, pids: Iterable[int], number: signal.Signals) -> None:
        if number == signal.SIGSTOP:
            self.stopped |= set(pids)
        else:
            assert number == signal.SIGCONT
            self.stopped -= set(pids)

    def join(self, member: str, pid: int) -> None:
        assert self.means.admit(member) == ()
        self.means.follow(member, (pid,))
        self.pids.add(pid)

    def given(self) -> dict[int, float]:
        ran = dict.fromkeys(self.pids, 0.0)
        end_s = self.now_s + 50 * PERIOD_S
        while self.now_s < end_s:
            next_s = min(PERIOD_S, self.means.turn(self.now_s))
            running = self.pids - self.stopped
            for pid in running:
                ran[pid] += next_s * min(1.0, self.cpus / len(running))
            self.now_s += next_s
        return ran

    def left_behind(self) -> object:
        return self.stopped


def bench(name: ControllerName) -> Bench:
    match name:
        case ControllerName.CGROUP_V1 | ControllerName.CGROUP_V2:
            kernel = FakeKernel(1 if name is ControllerName.CGROUP_V1 else 2)
            return GroupsBench(
                kernel, CgroupController(ParentGroup(name, OWN), kernel, PACKER)
            )
        case ControllerName.AFFINITY:
            return AffinityBench()
        case _:
            return DutyBench()
