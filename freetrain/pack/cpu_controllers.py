"""The processes of a pack's members, and their shares of the node's CPUs.

All processes of members carry a mark, by which they are found (``marked_processes``).
Four controllers hold them to their shares, best first: control groups v2 and v1, whole
CPUs by affinity where there are many, and turns of a few milliseconds. The first that
works on the node is taken (``choose_controller``).
"""

from __future__ import annotations

import math
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from typing import TYPE_CHECKING, Protocol

from freetrain.errors import BadConfigurationError
from freetrain.pack.pack import ControllerName
from freetrain.processes import environments, status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

# The processes of members.

MARK = "FREETRAIN_PACK_MEMBER"
"""The variable whose value is the packer's label, a slash and the member's name."""


@dataclass(frozen=True, slots=True)
class Packer:
    """The process of a pack on this node, which starts its members.

    Attributes:
        pack: An identifier of the pack, the same in each generation.
        pid: The packer's process.
        started: Its start, in clock ticks since boot.
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
        """Whether its process still runs."""
        return _started(self.pid) == self.started

    def has_left(self, label: str) -> bool:
        """Tell whether *label* names an earlier packer of this pack that is dead."""
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
    """Yield number, label and member of each process that carries the mark.

    Raises:
        OSError: They cannot be listed, or, after all others, there may be more.
    """
    wanted = f"{MARK}=".encode()
    for pid, environ in environments(wanted):
        for variable in environ.split(b"\0"):
            if variable.startswith(wanted):
                value = variable.removeprefix(wanted).decode("utf-8", "replace")
                label, _, member = value.partition("/")
                yield pid, label, member


def members_of(packer: Packer) -> tuple[dict[str, tuple[int, ...]], bool]:
    """Return the processes of *packer*'s members, by member, and whether it is all."""
    found: dict[str, tuple[int, ...]] = {}
    try:
        for pid, label, member in marked_processes():
            if label == packer.label:
                found[member] = (*found.get(member, ()), pid)
    except OSError:
        return found, False
    return found, True


def left_behind(packer: Packer) -> tuple[tuple[int, ...], bool]:
    """Return processes that earlier, dead packers of the same pack left.

    With them comes whether these are all.
    """
    found: list[int] = []
    try:
        for pid, label, _ in marked_processes():
            if packer.has_left(label):
                found.append(pid)
    except OSError:
        return tuple(found), False
    return tuple(found), True


def used_s(pids: Iterable[int]) -> float:
    """Return the CPU time of *pids* and of their children that were waited for."""
    statuses = map(status_of, pids)
    ticks = sum(status.cpu_ticks for status in statuses if status is not None)
    return ticks / os.sysconf("SC_CLK_TCK")


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to all of *pids* that still exist."""
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


# The controllers.

NOTHING_DUE_S = math.inf


class CpuController(Protocol):
    """Gives members of a pack their parts of its CPUs.

    Contract, checked for every implementation by ``tests/pack``: shares hold in
    proportion among members that want CPUs; a member's children and threads are
    held to its share as well, from their start or from the next ``follow`` on;
    after ``close`` nothing is left behind on the node, and no member is held back.
    """

    name: ControllerName

    def admit(self, member: str) -> tuple[str, ...]:
        """Admit *member*; return the words to put before its command.

        Raises:
            OSError: It cannot be held to a share; it must not be started.
        """
        ...

    def follow(self, member: str, pids: Iterable[int]) -> None:
        """Note all processes that *member* has now."""
        ...

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Give each member its share, above 0; members not named keep theirs.

        Raises:
            OSError: Some share could not be set.
        """
        ...

    def turn(self, now_s: float) -> float:
        """Start and end the turns that are due at *now_s*, on a monotonic clock.

        Returns:
            Seconds until the next call is due; infinite for never.
        """
        ...

    def pids(self, member: str) -> tuple[int, ...]:
        """Return the processes of *member* that only this controller knows."""
        ...

    def release(self, member: str) -> None:
        """Forget *member*, and hold none of its processes back any more."""
        ...

    def close(self) -> None:
        """Release all members, and remove all that was made for them."""
        ...


def choose_controller(
    wanted: ControllerName,
    *,
    parents: Sequence[tuple[ControllerName, Path]],
    cgroups: Cgroups,
    packer: Packer,
    cpus: Sequence[int],
) -> CpuController:
    """Return the controller *wanted*; for ``auto`` the first that works.

    Args:
        wanted: Its name.
        parents: The control groups that could be used, by ``own_cgroups``.
        cgroups: The kernel's control groups.
        packer: This process.
        cpus: The CPUs of all members.

    Raises:
        BadConfigurationError: The controller does not work on this node.
    """
    if wanted is ControllerName.DUTY_CYCLE:
        return DutyCycleController(len(cpus), signal_all)
    if wanted is ControllerName.AFFINITY:
        return AffinityController(cpus, pin_process)
    why = "no such control group"
    for version, path in parents:
        if wanted in (ControllerName.AUTO, version):
            try:
                return CgroupController(version, path, cgroups, packer)
            except OSError as error:
                why = f"{path}: {error.strerror or error}"
    if wanted is ControllerName.AUTO:
        enough = len(cpus) >= ENOUGH_CPUS
        rest = ControllerName.AFFINITY if enough else ControllerName.DUTY_CYCLE
        return choose_controller(
            rest, parents=(), cgroups=cgroups, packer=packer, cpus=cpus
        )
    raise BadConfigurationError(
        f"means = {str(wanted)!r} cannot be had here: {why}. Nothing was started. Use "
        f'means = "{ControllerName.AUTO}", which takes what there is.'
    )


# Control groups: this process' own, and the kernel's files.

_CPU = "cpu"

_OWN = Path("/proc/self")


def own_cgroups() -> tuple[tuple[ControllerName, Path], ...]:
    """Return this process' groups that could share CPUs, v2 first.

    Returns:
        Pairs of the version, ``CGROUP_V1`` or ``CGROUP_V2``, and the group's folder.
    """
    try:
        mounts = (_OWN / "mountinfo").read_text("utf-8", "replace")
        groups = (_OWN / "cgroup").read_text("utf-8", "replace")
    except OSError:
        return ()
    return cgroups_in(mounts, groups)


def cgroups_in(mounts: str, groups: str) -> tuple[tuple[ControllerName, Path], ...]:
    """Return the groups in the texts of ``mountinfo`` and ``cgroup`` of proc(5)."""
    found = [pair for line in mounts.splitlines() for pair in _mounted(line, groups)]
    return tuple(sorted(found, key=lambda pair: pair[0], reverse=True))


def _mounted(line: str, groups: str) -> list[tuple[ControllerName, Path]]:
    before, _, after = line.partition(" - ")
    fields, kind = before.split(), after.split()
    if len(fields) < 5 or len(kind) < 3:  # noqa: PLR2004
        return []
    if kind[0] == "cgroup2":
        version, own = ControllerName.CGROUP_V2, _own(groups, "")
    elif kind[0] == "cgroup" and _CPU in kind[2].split(","):
        version, own = ControllerName.CGROUP_V1, _own(groups, _CPU)
    else:
        return []
    root = fields[3]  # of the hierarchy, what is mounted here
    if own is None or not Path(own).is_relative_to(root):
        return []
    return [(version, Path(fields[4]) / Path(own).relative_to(root))]


def _own(groups: str, controller: str) -> str | None:
    for line in groups.splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controller in controllers.split(","):
            return path
    return None


_REMOVED_WITHIN_S = 2.0
_AGAIN_S = 0.02


class Cgroups(Protocol):
    """A tree of control groups. All methods raise OSError where the kernel would."""

    def make(self, path: Path) -> None:
        """Make a group."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a group without processes; wait a moment for the last one's end."""
        ...

    def names(self, path: Path) -> tuple[str, ...]:
        """Return the names of the groups in a group."""
        ...

    def read(self, path: Path) -> str:
        """Return the content of a file."""
        ...

    def write(self, path: Path, text: str) -> None:
        """Write to a file."""
        ...


class KernelCgroups:
    """The control groups of the kernel."""

    def make(self, path: Path) -> None:
        """Make a group."""
        path.mkdir()

    def remove(self, path: Path) -> None:
        """Remove a group."""
        until_s = time.monotonic() + _REMOVED_WITHIN_S
        while True:
            try:
                path.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                # A process that was killed is in its group until it is reaped.
                if time.monotonic() > until_s:
                    raise
                time.sleep(_AGAIN_S)
            else:
                return

    def names(self, path: Path) -> tuple[str, ...]:
        """Return the names of the groups in a group."""
        with os.scandir(path) as entries:
            return tuple(sorted(entry.name for entry in entries if entry.is_dir()))

    def read(self, path: Path) -> str:
        """Return the content of a file."""
        return path.read_text("utf-8")

    def write(self, path: Path, text: str) -> None:
        """Write to a file, in one write."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def pids_in(cgroups: Cgroups, group: Path) -> tuple[int, ...]:
    """Return the processes of *group*; none where there is no such group."""
    with suppress(OSError):
        return tuple(map(int, cgroups.read(group / "cgroup.procs").split()))
    return ()


# Shares by control groups: the kernel's own, and work-conserving.

PREFIX = "freetrain-pack-"
_OWN_LEAF = "freetrain-packer"
_PROCS = "cgroup.procs"
_CONTROL = "cgroup.subtree_control"
_WEIGHT_FILE = {
    ControllerName.CGROUP_V1: "cpu.shares",
    ControllerName.CGROUP_V2: "cpu.weight",
}
_MOST_WEIGHT = 10_000  # of v2; v1 begins at 2 and takes more
_LEAST_WEIGHT = 2

# The process enters its group before it becomes the member, so that no process that
# the member starts can be outside of it.
_ENTER = 'echo $$ > "$0" && exec "$@"'


class CgroupController:
    """A group for the pack, and in it one for each member; v1 or v2."""

    def __init__(
        self, version: ControllerName, parent: Path, cgroups: Cgroups, packer: Packer
    ) -> None:
        """Make the pack's group in *parent*, which is of *version*.

        Raises:
            OSError: This process may not, or the kernel will not share CPUs here.
        """
        self.name = version
        self._own = parent
        self._cgroups = cgroups
        self._pid = packer.pid
        self._home = parent  # of released processes
        self._path = parent / f"{PREFIX}{packer.label}"
        self._weight = _WEIGHT_FILE[version]
        cgroups.make(self._path)
        try:
            if version is ControllerName.CGROUP_V2:
                self._let_children_share()
            # A group that can be made may still refuse its settings.
            self.admit("probe")
            self.set_shares({"probe": 1.0})
            self.release("probe")
        except OSError:
            self.close()
            raise

    def admit(self, member: str) -> tuple[str, ...]:
        """Make a group for *member*."""
        with suppress(FileExistsError):
            self._cgroups.make(self._path / member)
        return ("/bin/sh", "-c", _ENTER, str(self._path / member / _PROCS))

    def follow(self, member: str, pids: Iterable[int]) -> None:
        """Do nothing: the kernel keeps children in the group."""

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Set the weights."""
        for member, share in shares.items():
            weight = max(_LEAST_WEIGHT, min(_MOST_WEIGHT, round(share * _MOST_WEIGHT)))
            self._cgroups.write(self._path / member / self._weight, str(weight))

    def turn(self, now_s: float) -> float:
        """Do nothing: the kernel does."""
        del now_s
        return NOTHING_DUE_S

    def pids(self, member: str) -> tuple[int, ...]:
        """Return the processes in the group of *member*."""
        return pids_in(self._cgroups, self._path / member)

    def release(self, member: str) -> None:
        """Remove the group of *member*, or move its processes to this process' own."""
        for pid in self.pids(member):
            with suppress(OSError):
                self._cgroups.write(self._home / _PROCS, str(pid))
        with suppress(OSError):
            self._cgroups.remove(self._path / member)

    def close(self) -> None:
        """Remove all groups."""
        with suppress(OSError):
            for member in self._cgroups.names(self._path):
                self.release(member)
        with suppress(OSError):
            self._cgroups.remove(self._path)
        if self._home != self._own:
            self._move_back()

    def _let_children_share(self) -> None:
        """Hand the CPU controller down two levels, as v2 demands.

        A group that hands it down may hold no processes itself, so this process moves
        into a leaf if it is alone in its group.
        """
        try:
            self._cgroups.write(self._own / _CONTROL, "+cpu")
        except OSError:
            if pids_in(self._cgroups, self._own) != (self._pid,):
                raise
            leaf = self._own / _OWN_LEAF
            with suppress(FileExistsError):  # left by a killed packer
                self._cgroups.make(leaf)
            self._home = leaf
            self._cgroups.write(leaf / _PROCS, str(self._pid))
            self._cgroups.write(self._own / _CONTROL, "+cpu")
        self._cgroups.write(self._path / _CONTROL, "+cpu")

    def _move_back(self) -> None:
        with suppress(OSError):
            self._cgroups.write(self._own / _CONTROL, "-cpu")
        for pid in pids_in(self._cgroups, self._home):
            with suppress(OSError):
                self._cgroups.write(self._own / _PROCS, str(pid))
        with suppress(OSError):
            self._cgroups.remove(self._home)


def remove_group(cgroups: Cgroups, group: Path, *, kills: bool) -> None:
    """Remove *group* and the groups in it, as far as that is possible.

    Args:
        cgroups: The control groups.
        group: A packer's group.
        kills: Whether to kill the processes in them; else their groups stay.
    """
    with suppress(OSError):
        for name in cgroups.names(group):
            if kills:
                signal_all(pids_in(cgroups, group / name), SIGKILL)
            cgroups.remove(group / name)
        cgroups.remove(group)


def packers_groups(
    parent: Path, cgroups: Cgroups, is_wanted: Callable[[str], bool]
) -> tuple[Path, ...]:
    """Return the packers' groups in *parent* whose labels are wanted."""
    try:
        names = cgroups.names(parent)
    except OSError:
        return ()
    return tuple(
        parent / name
        for name in names
        if name.startswith(PREFIX) and is_wanted(name.removeprefix(PREFIX))
    )


def remove_empty_groups(parents: Iterable[Path], cgroups: Cgroups) -> None:
    """Remove dead packers' groups in *parents*; a group with a process in it stays.

    The agent on the node first ends processes by their lease's marks, and then calls
    this: Slurm cannot remove a job's group while there are other groups in it.
    """
    for parent in parents:
        for group in packers_groups(parent, cgroups, _is_of_dead_packer):
            remove_group(cgroups, group, kills=False)


def _is_of_dead_packer(label: str) -> bool:
    packer = packer_of(label)
    return packer is not None and not packer.is_alive


# Shares by whole CPUs.

ENOUGH_CPUS = 8
"""With fewer, whole CPUs are too coarse for a few members."""


class AffinityController:
    """Each member has CPUs of its own, or shares a CPU with its neighbours."""

    name = ControllerName.AFFINITY

    def __init__(
        self, cpus: Sequence[int], pin: Callable[[int, Sequence[int]], None]
    ) -> None:
        """Take the CPUs of all members, and the function that pins a process."""
        self._cpus = tuple(cpus)
        self._pin = pin
        self._shares: dict[str, float] = {}
        self._pids: dict[str, tuple[int, ...]] = {}

    def admit(self, member: str) -> tuple[str, ...]:
        """Do nothing: *member* has all CPUs until its share is known."""
        del member
        return ()

    def follow(self, member: str, pids: Iterable[int]) -> None:
        """Pin the processes that *member* started since the last call."""
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
        """Return nothing: the caller knows all processes."""
        del member
        return ()

    def release(self, member: str) -> None:
        """Let *member* run on all CPUs, and give the others its CPUs."""
        for pid in self._pids.pop(member, ()):
            self._pin(pid, self._cpus)
        self._shares.pop(member, None)
        self._pin_all()

    def close(self) -> None:
        """Let all members run on all CPUs."""
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


def whole_cpus(
    shares: Mapping[str, float], cpus: Sequence[int]
) -> dict[str, tuple[int, ...]]:
    """Return the CPUs that each member may use: about its share, one at least.

    The shares are laid end to end along the CPUs, and rounded; a member with less than
    a CPU shares it with its neighbours.
    """
    at, found, whole = 0.0, {}, sum(shares.values())
    for name, share in shares.items():
        begin = min(len(cpus) - 1, round(at))
        at += share / whole * len(cpus)
        found[name] = tuple(cpus[begin : max(begin + 1, round(at))])
    return found


# Shares by turns: members are stopped and go on, ten times a second.

PERIOD_S = 0.1
_SHORTEST_S = 0.001


class DutyCycleController:
    """Members take turns; no more run at once than there are CPUs.

    The unused rest of a turn is lost, unlike with other controllers; and members that
    use several CPUs each get more than their share.
    """

    name = ControllerName.DUTY_CYCLE

    def __init__(
        self, cpus: int, send: Callable[[Iterable[int], signal.Signals], None]
    ) -> None:
        """Take the number of CPUs of all members, and the function that signals."""
        self._cpus = cpus
        self._send = send
        self._shares: dict[str, float] = {}
        self._slots: dict[str, tuple[_Slot, ...]] = {}
        self._pids: dict[str, tuple[int, ...]] = {}
        self._stopped: set[str] = set()

    def admit(self, member: str) -> tuple[str, ...]:
        """Do nothing: *member* runs until its share is known."""
        del member
        return ()

    def follow(self, member: str, pids: Iterable[int]) -> None:
        """Note the processes; stop new ones of a member that is stopped."""
        before, self._pids[member] = self._pids.get(member, ()), tuple(pids)
        if member in self._stopped:
            new = set(self._pids[member]).difference(before)
            self._send(new, signal.SIGSTOP)

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Lay the slots out anew."""
        self._shares |= shares
        self._slots = cpu_slots(self._shares, self._cpus)

    def turn(self, now_s: float) -> float:
        """Stop and resume the members whose turns end and begin."""
        at = now_s / PERIOD_S % 1.0
        running = {n for n, own in self._slots.items() if _is_on(own, at)}
        # Stop before resuming, so that never more run than there are CPUs.
        for member in self._slots.keys() - running - self._stopped:
            self._send(self._pids.get(member, ()), signal.SIGSTOP)
            self._stopped.add(member)
        for member in running & self._stopped:
            self._resume(member)
        edges = {edge for own in self._slots.values() for slot in own for edge in slot}
        if edges <= {0.0, 1.0}:
            return NOTHING_DUE_S
        due = min((edge - at) % 1.0 or 1.0 for edge in edges)
        return max(_SHORTEST_S, due * PERIOD_S)

    def pids(self, member: str) -> tuple[int, ...]:
        """Return nothing: the caller knows all processes."""
        del member
        return ()

    def release(self, member: str) -> None:
        """Resume *member*, and give the others its slots."""
        if member in self._stopped:
            self._resume(member)
        self._pids.pop(member, None)
        self._shares.pop(member, None)
        self._slots = cpu_slots(self._shares, self._cpus)

    def close(self) -> None:
        """Resume all members."""
        for member in tuple(self._pids):
            self.release(member)

    def _resume(self, member: str) -> None:
        self._send(self._pids.get(member, ()), signal.SIGCONT)
        self._stopped.discard(member)


def _is_on(own: tuple[_Slot, ...], at: float) -> bool:
    return any(begin <= at < end for begin, end in own)


_TINY = 1e-9
_Slot = tuple[float, float]
"""Begin and end of a turn, as parts of a period: 0 to 1."""


def run_fractions(shares: Mapping[str, float], cpus: int) -> dict[str, float]:
    """Return the part of the time that each member may run, at most 1.

    Each member is taken to use one CPU. Shares beyond one CPU go to the other members,
    in proportion; all parts together are *cpus*, or all are 1.
    """
    parts: dict[str, float] = {}
    open_ = dict(shares)
    left = float(cpus)
    while open_:
        whole = sum(open_.values())
        full = {n for n, share in open_.items() if left * share >= whole * (1 - _TINY)}
        if not full:
            return parts | {n: left * share / whole for n, share in open_.items()}
        parts |= dict.fromkeys(full, 1.0)
        left -= len(full)
        open_ = {n: share for n, share in open_.items() if n not in full}
    return parts


def cpu_slots(shares: Mapping[str, float], cpus: int) -> dict[str, tuple[_Slot, ...]]:
    """Return when each member runs in a period: never more than *cpus* at once.

    The parts are laid end to end, and the line is cut into periods, one for each CPU
    (McNaughton 1959): a member has two slots at the most, which never overlap.
    """
    at = 0.0
    found: dict[str, tuple[_Slot, ...]] = {}
    for name, part in run_fractions(shares, cpus).items():
        begin, end = at % 1.0, at % 1.0 + part
        at += part
        if end <= 1.0 + _TINY:
            found[name] = ((begin, min(1.0, end)),)
        else:
            found[name] = ((0.0, end - 1.0), (begin, 1.0))
    return found
