"""Turns on a few CPUs, and whole CPUs, by share; pure."""

from __future__ import annotations

import math
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from signal import SIGKILL
from typing import TYPE_CHECKING, Protocol

from freetrain.errors import BadConfigurationError
from freetrain.pack.processes import packer_of, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from freetrain.pack.processes import Packer


# ----------------------------------------------------------------------
# Turns on a few CPUs, and whole CPUs, by share; pure.

_TINY = 1e-9

Turn = tuple[float, float]
"""From when to when, as parts of a period: 0 to 1."""


def filled(shares: Mapping[str, float], cpus: int) -> dict[str, float]:
    """Return the part of the time that each may run, at most 1.

    Members are taken to use one CPU each. What one of them cannot use of its share
    goes to the others, by theirs; all parts together are *cpus*, or all are 1.
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


def turns(shares: Mapping[str, float], cpus: int) -> dict[str, tuple[Turn, ...]]:
    """Return when each runs in a period, so that no more than *cpus* run at once.

    The parts are laid end to end, and the line is cut into periods, one for each CPU
    (McNaughton 1959): a member has two turns at the most, which never overlap.
    """
    at = 0.0
    found: dict[str, tuple[Turn, ...]] = {}
    for name, part in filled(shares, cpus).items():
        begin, end = at % 1.0, at % 1.0 + part
        at += part
        if end <= 1.0 + _TINY:
            found[name] = ((begin, min(1.0, end)),)
        else:
            found[name] = ((0.0, end - 1.0), (begin, 1.0))
    return found


def whole_cpus(
    shares: Mapping[str, float], cpus: Sequence[int]
) -> dict[str, tuple[int, ...]]:
    """Return the CPUs that each may use: about its share of them, one at least.

    The shares are laid end to end along the CPUs, and rounded; whoever has less than
    a CPU shares it with its neighbours.
    """
    at, found, whole = 0.0, {}, sum(shares.values())
    for name, share in shares.items():
        begin = min(len(cpus) - 1, round(at))
        at += share / whole * len(cpus)
        found[name] = tuple(cpus[begin : max(begin + 1, round(at))])
    return found


# ----------------------------------------------------------------------
# What sets CPU shares: one interface, whatever the node lets us do.

NOTHING_DUE_S = math.inf


class MeansName(StrEnum):
    """By what CPU shares are set."""

    AUTO = "auto"  # the first of the others that can be used
    CGROUP_V2 = "cgroup-v2"
    CGROUP_V1 = "cgroup-v1"
    AFFINITY = "affinity"  # whole CPUs
    DUTY_CYCLE = "duty-cycle"  # turns of a few milliseconds


class Means(Protocol):
    """Gives members of a pack their parts of its CPUs.

    Contract, checked for every implementation by ``tests/pack``: shares hold in
    proportion among members that want CPUs; a member's children and threads are
    held to its share as well, from their beginning or from the next ``follow`` on;
    after ``close`` nothing is left behind on the node, and nobody is held back.

    Attributes:
        name: What it is.
    """

    name: MeansName

    def admit(self, member: str) -> tuple[str, ...]:
        """Take *member* in; return the words that its command is to begin with.

        Raises:
            OSError: It cannot be held to a share; it must not be started.
        """
        ...

    def follow(self, member: str, pids: Iterable[int]) -> None:
        """Take note of all processes of *member* that are there now."""
        ...

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Give each member its part, above 0; those not named keep theirs.

        Raises:
            OSError: Some part could not be set.
        """
        ...

    def turn(self, now_s: float) -> float:
        """Do what is due at *now_s*, on a clock that never goes back.

        Returns:
            Seconds until something is due again; infinite for never.
        """
        ...

    def pids(self, member: str) -> tuple[int, ...]:
        """Return processes that this means knows to be of *member*."""
        ...

    def release(self, member: str) -> None:
        """Forget *member*, whose processes have all ended or are let go."""
        ...

    def close(self) -> None:
        """Hold nobody back any more, and remove all that was made."""
        ...


# ----------------------------------------------------------------------
# CPU shares by whole CPUs: where there are many, and nothing finer is allowed.

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


# ----------------------------------------------------------------------
# The files by which the kernel is told about control groups.

_REMOVED_WITHIN_S = 2.0
_AGAIN_S = 0.02


class Folders(Protocol):
    """A tree of control groups. All methods raise OSError where the kernel would."""

    def make(self, path: Path) -> None:
        """Make a group."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a group without processes; waits a moment for the last to be gone."""
        ...

    def names(self, path: Path) -> tuple[str, ...]:
        """Return the names of the groups in a group."""
        ...

    def read(self, path: Path) -> str:
        """Return what a file says."""
        ...

    def write(self, path: Path, text: str) -> None:
        """Tell a file something."""
        ...


class KernelFolders:
    """The kernel's own."""

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
        """Return what a file says."""
        return path.read_text("utf-8")

    def write(self, path: Path, text: str) -> None:
        """Tell a file something, in one write."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def pids_in(folders: Folders, group: Path) -> tuple[int, ...]:
    """Return the processes of *group*; none where it is not there."""
    with suppress(OSError):
        return tuple(map(int, folders.read(group / "cgroup.procs").split()))
    return ()


# ----------------------------------------------------------------------
# CPU shares by control groups: the kernel's own, and work-conserving.

PREFIX = "freetrain-pack-"
_OWN_LEAF = "freetrain-packer"
_PROCS = "cgroup.procs"
_CONTROL = "cgroup.subtree_control"
_WEIGHT_FILE = {MeansName.CGROUP_V1: "cpu.shares", MeansName.CGROUP_V2: "cpu.weight"}
_MOST_WEIGHT = 10_000  # of v2; v1 begins at 2 and takes more
_LEAST_WEIGHT = 2

# The process enters its group before it becomes the member, so that nothing that the
# member starts can be outside of it.
_ENTER = 'echo $$ > "$0" && exec "$@"'


class Groups:
    """A group for the pack, and in it one for each member; v1 or v2."""

    def __init__(self, place: Place, folders: Folders, packer: Packer) -> None:
        """Make the pack's group.

        Raises:
            OSError: This process may not, or the kernel will not share CPUs here.
        """
        self.name = place.version
        self._own = place.path
        self._folders = folders
        self._pid = packer.pid
        self._home = place.path  # where processes go that are let go
        self._path = place.path / f"{PREFIX}{packer.label}"
        self._weight = _WEIGHT_FILE[place.version]
        folders.make(self._path)
        try:
            if place.version is MeansName.CGROUP_V2:
                self._let_children_share()
            # What can be made need not be what can be set.
            self.admit("probe")
            self.set_shares({"probe": 1.0})
            self.release("probe")
        except OSError:
            self.close()
            raise

    def admit(self, member: str) -> tuple[str, ...]:
        """Make a group for *member*."""
        with suppress(FileExistsError):
            self._folders.make(self._path / member)
        return ("/bin/sh", "-c", _ENTER, str(self._path / member / _PROCS))

    def follow(self, member: str, pids: Iterable[int]) -> None:
        """Do nothing: the kernel follows."""

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Set the weights."""
        for member, share in shares.items():
            weight = max(_LEAST_WEIGHT, min(_MOST_WEIGHT, round(share * _MOST_WEIGHT)))
            self._folders.write(self._path / member / self._weight, str(weight))

    def turn(self, now_s: float) -> float:
        """Do nothing: the kernel does."""
        del now_s
        return NOTHING_DUE_S

    def pids(self, member: str) -> tuple[int, ...]:
        """Return the processes in the group of *member*."""
        return pids_in(self._folders, self._path / member)

    def release(self, member: str) -> None:
        """Remove the group of *member*, or let its processes go where we are."""
        for pid in self.pids(member):
            with suppress(OSError):
                self._folders.write(self._home / _PROCS, str(pid))
        with suppress(OSError):
            self._folders.remove(self._path / member)

    def close(self) -> None:
        """Remove all groups."""
        with suppress(OSError):
            for member in self._folders.names(self._path):
                self.release(member)
        with suppress(OSError):
            self._folders.remove(self._path)
        if self._home != self._own:
            self._move_back()

    def _let_children_share(self) -> None:
        """Hand the CPU controller down two levels, as v2 wants it.

        A group that hands it down may hold no processes itself, so that this process,
        where it is alone in its group, goes into a leaf.
        """
        try:
            self._folders.write(self._own / _CONTROL, "+cpu")
        except OSError:
            if pids_in(self._folders, self._own) != (self._pid,):
                raise
            leaf = self._own / _OWN_LEAF
            with suppress(FileExistsError):  # of a packer that was killed
                self._folders.make(leaf)
            self._home = leaf
            self._folders.write(leaf / _PROCS, str(self._pid))
            self._folders.write(self._own / _CONTROL, "+cpu")
        self._folders.write(self._path / _CONTROL, "+cpu")

    def _move_back(self) -> None:
        with suppress(OSError):
            self._folders.write(self._own / _CONTROL, "-cpu")
        for pid in pids_in(self._folders, self._home):
            with suppress(OSError):
                self._folders.write(self._own / _PROCS, str(pid))
        with suppress(OSError):
            self._folders.remove(self._home)


def remove_group(folders: Folders, group: Path, *, kills: bool) -> None:
    """Remove *group* and the groups in it, as far as that is possible.

    Args:
        folders: How the kernel is told.
        group: A packer's group.
        kills: Whether what is in those groups is killed; else they stay with it.
    """
    with suppress(OSError):
        for name in folders.names(group):
            if kills:
                tell(pids_in(folders, group / name), SIGKILL)
            folders.remove(group / name)
        folders.remove(group)


def groups_where(
    place: Place, folders: Folders, is_meant: Callable[[str], bool]
) -> tuple[Path, ...]:
    """Return the groups of packers whose labels are meant."""
    try:
        names = folders.names(place.path)
    except OSError:
        return ()
    return tuple(
        place.path / name
        for name in names
        if name.startswith(PREFIX) and is_meant(name.removeprefix(PREFIX))
    )


# ----------------------------------------------------------------------
# Where this process is in the node's control groups; pure but for three files.

_CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Place:
    """A control group that may hold others.

    Attributes:
        version: ``CGROUP_V1`` or ``CGROUP_V2``.
        path: Its folder.
    """

    version: MeansName
    path: Path


def own_places(proc: Path = Path("/proc/self")) -> tuple[Place, ...]:
    """Return this process' groups that could share CPUs, v2 first.

    Args:
        proc: Where the kernel tells of this process.
    """
    try:
        mounts = (proc / "mountinfo").read_text("utf-8", "replace")
        groups = (proc / "cgroup").read_text("utf-8", "replace")
    except OSError:
        return ()
    return places_in(mounts, groups)


def places_in(mounts: str, groups: str) -> tuple[Place, ...]:
    """Return the groups that *mounts* and *groups*, as proc(5) has them, tell of."""
    found = [
        Place(version, path)
        for line in mounts.splitlines()
        for version, path in _mounted(line, groups)
    ]
    return tuple(sorted(found, key=lambda place: place.version, reverse=True))


def _mounted(line: str, groups: str) -> list[tuple[MeansName, Path]]:
    before, _, after = line.partition(" - ")
    fields, kind = before.split(), after.split()
    if len(fields) < 5 or len(kind) < 3:  # noqa: PLR2004
        return []
    if kind[0] == "cgroup2":
        version, own = MeansName.CGROUP_V2, _own(groups, "")
    elif kind[0] == "cgroup" and _CPU in kind[2].split(","):
        version, own = MeansName.CGROUP_V1, _own(groups, _CPU)
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


# ----------------------------------------------------------------------
# CPU shares by turns: members are stopped and go on, ten times a second.

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


# ----------------------------------------------------------------------
# Which means this node has: the best that is writable, tried rather than guessed.


def choose(
    wanted: MeansName,
    *,
    places: Sequence[Place],
    folders: Folders,
    packer: Packer,
    cpus: Sequence[int],
) -> Means:
    """Return the means *wanted*, or the first that works where any will do.

    Args:
        wanted: Its name.
        places: The control groups that could be used, best first.
        folders: How they are told.
        packer: This process.
        cpus: The CPUs of all members.

    Raises:
        BadConfigurationError: A means was wanted that this node does not have.
    """
    if wanted is MeansName.DUTY_CYCLE:
        return DutyCycle(len(cpus), tell)
    if wanted is MeansName.AFFINITY:
        return Affinity(cpus, pin_process)
    why = "no such control group"
    for place in places:
        if wanted in (MeansName.AUTO, place.version):
            try:
                return Groups(place, folders, packer)
            except OSError as error:
                why = f"{place.path}: {error.strerror or error}"
    if wanted is MeansName.AUTO:
        enough = len(cpus) >= ENOUGH_CPUS
        rest = MeansName.AFFINITY if enough else MeansName.DUTY_CYCLE
        return choose(rest, places=(), folders=folders, packer=packer, cpus=cpus)
    raise BadConfigurationError(
        f"means = {str(wanted)!r} cannot be had here: {why}. Nothing was started. Use "
        f'means = "{MeansName.AUTO}", which takes what there is.'
    )


# ----------------------------------------------------------------------
# Control groups that packers left which were killed, for whoever tidies a node.


def remove_empty_groups(places: Iterable[Place], folders: Folders) -> None:
    """Remove groups of packers that are dead; one with a process in it stays.

    Whoever holds the node knows by other marks which processes to end, and calls
    this afterwards: Slurm cannot remove a job's group while there are others in it.
    """
    for place in places:
        for group in groups_where(place, folders, _is_of_the_dead):
            remove_group(folders, group, kills=False)


def _is_of_the_dead(label: str) -> bool:
    packer = packer_of(label)
    return packer is not None and not packer.is_alive
