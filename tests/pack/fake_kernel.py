"""Control groups as the kernel has them, in memory: both versions, with their rules."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from pathlib import Path

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
