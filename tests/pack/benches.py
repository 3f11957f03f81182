"""CPU controllers on a bench: control groups in memory, and what members get."""

from __future__ import annotations

import errno
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from freetrain.pack.cpu_controllers import (
    PERIOD_S,
    AffinityController,
    CgroupController,
    DutyCycleController,
    Packer,
    ParentGroup,
)
from freetrain.pack.pack import ControllerName

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from freetrain.pack.cpu_controllers import CpuController

OWN = Path("/cg/own")


@dataclass
class Group:
    """A group: its processes, its settings, and who gets which controllers."""

    pids: set[int] = field(default_factory=set)
    weight: int = 0
    hands_down: bool = False


class FakeKernel:
    """One hierarchy, v1 or v2, with one group ``OWN`` that this process is in."""

    def __init__(self, version: int, *, own_pids: tuple[int, ...] = (1,)) -> None:
        self.version = version
        self.groups = {OWN: Group(pids=set(own_pids))}
        self.is_read_only = False

    def make(self, path: Path) -> None:
        self._check(path.parent)
        if path in self.groups:
            raise FileExistsError(errno.EEXIST, "File exists", str(path))
        self.groups[path] = Group(weight=100)

    def remove(self, path: Path) -> None:
        group = self._check(path)
        if group.pids or self.names(path):
            raise OSError(errno.EBUSY, "Device or resource busy")
        del self.groups[path]

    def names(self, path: Path) -> tuple[str, ...]:
        self._check(path)
        return tuple(sorted(p.name for p in self.groups if p.parent == path))

    def read(self, path: Path) -> str:
        group = self._check(path.parent)
        assert path.name == "cgroup.procs"
        return "".join(f"{pid}\n" for pid in sorted(group.pids))

    def write(self, path: Path, text: str) -> None:
        group = self._check(path.parent)
        match path.name:
            case "cgroup.procs":
                self._move(group, int(text))
            case "cgroup.subtree_control" if self.version == 2:
                self._hand_down(path.parent, group, text)
            case "cpu.shares" if self.version == 1:
                group.weight = max(2, min(262_144, int(text)))
            case "cpu.weight" if self.version == 2 and self._is_shared(path.parent):
                if not 1 <= int(text) <= 10_000:
                    raise OSError(errno.ERANGE, "Numerical result out of range")
                group.weight = int(text)
            case _:
                raise FileNotFoundError(errno.ENOENT, "No such file", str(path))

    def _check(self, path: Path) -> Group:
        if path not in self.groups:
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        if self.is_read_only:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return self.groups[path]

    def _move(self, to: Group, pid: int) -> None:
        if self.version == 2 and to.hands_down:
            raise OSError(errno.EBUSY, "Device or resource busy")
        for group in self.groups.values():
            group.pids.discard(pid)
        to.pids.add(pid)

    def _hand_down(self, path: Path, group: Group, text: str) -> None:
        if text == "+cpu" and group.pids:
            raise OSError(errno.EBUSY, "Device or resource busy")
        if text == "+cpu" and path != OWN and not self._is_shared(path):
            raise FileNotFoundError(errno.ENOENT, "No such file", str(path))
        group.hands_down = text == "+cpu"

    def _is_shared(self, path: Path) -> bool:
        return self.groups[path.parent].hands_down


PACKER = Packer("0123abcd", 1, 1)


class Bench(Protocol):
    """A controller with what it acts on."""

    @property
    def controller(self) -> CpuController: ...

    def join(self, member: str, pid: int) -> None:
        """Let process *pid* of *member* appear, as the words of admit would."""

    def given(self) -> dict[int, float]:
        """The CPU time that each process gets where all want all they can have."""

    def left_behind(self) -> object:
        """All that is not as it was in the beginning; empty for nothing."""


@dataclass
class GroupsBench:
    kernel: FakeKernel
    controller: CgroupController

    def join(self, member: str, pid: int) -> None:
        procs = self.controller.admit(member)[3]
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
    controller: AffinityController = field(init=False)
    pinned: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.controller = AffinityController(range(16), self._pin)

    def _pin(self, pid: int, cpus: Sequence[int]) -> None:
        self.pinned[pid] = tuple(cpus)

    def join(self, member: str, pid: int) -> None:
        assert self.controller.admit(member) == ()
        self.controller.follow(member, (pid,))

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
    controller: DutyCycleController = field(init=False)
    stopped: set[int] = field(default_factory=set)
    pids: set[int] = field(default_factory=set)
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.controller = DutyCycleController(self.cpus, self._tell)

    def _tell(self, pids: Iterable[int], number: signal.Signals) -> None:
        if number == signal.SIGSTOP:
            self.stopped |= set(pids)
        else:
            assert number == signal.SIGCONT
            self.stopped -= set(pids)

    def join(self, member: str, pid: int) -> None:
        assert self.controller.admit(member) == ()
        self.controller.follow(member, (pid,))
        self.pids.add(pid)

    def given(self) -> dict[int, float]:
        ran = dict.fromkeys(self.pids, 0.0)
        end_s = self.now_s + 50 * PERIOD_S
        while self.now_s < end_s:
            next_s = min(PERIOD_S, self.controller.turn(self.now_s))
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
