"""What every CPU controller holds, on models of a node, and what each adds to it."""

import errno
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.errors import BadConfigurationError
from freetrain.pack.cpu_controllers import (
    ENOUGH_CPUS,
    PERIOD_S,
    PREFIX,
    AffinityController,
    CgroupController,
    CpuController,
    DutyCycleController,
    Packer,
    cgroups_in,
    choose_controller,
    cpu_slots,
    remove_empty_groups,
    run_fractions,
    this_packer,
    whole_cpus,
)
from freetrain.pack.pack import ControllerName

OWN = Path("/cg/own")
PACKER = Packer("0123abcd", 1, 1)
PARENTS = {
    1: (ControllerName.CGROUP_V1, OWN),
    2: (ControllerName.CGROUP_V2, OWN),
}


@dataclass
class Group:
    pids: set[int] = field(default_factory=set)
    weight: int = 0
    hands_down: bool = False


class FakeKernel:
    """One hierarchy, v1 or v2, with one group ``OWN`` that this process is in."""

    def __init__(
        self, version: int, *groups: Path, own_pids: tuple[int, ...] = (1,)
    ) -> None:
        self.version = version
        self.groups = {OWN: Group(pids=set(own_pids))} | {p: Group() for p in groups}
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


class Bench(Protocol):
    """A controller with a model of the node that it acts on."""

    @property
    def controller(self) -> CpuController: ...

    def join(self, member: str, pid: int) -> None:
        """Let process *pid* of *member* appear, as the words of admit would."""

    def given(self) -> dict[int, float]:
        """The CPU time of each process, where all want as much as they can get."""

    def left_behind(self) -> object:
        """All that differs from the beginning; empty for nothing."""


class GroupsBench:
    def __init__(self, version: int) -> None:
        self.kernel = FakeKernel(version)
        self.controller = CgroupController(*PARENTS[version], self.kernel, PACKER)

    def join(self, member: str, pid: int) -> None:
        procs = self.controller.admit(member)[3]
        self.kernel.groups[Path(procs).parent].pids.add(pid)

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


class AffinityBench:
    def __init__(self) -> None:
        self.pinned: dict[int, tuple[int, ...]] = {}
        self.controller = AffinityController(range(16), self._pin)

    def _pin(self, pid: int, cpus: Sequence[int]) -> None:
        self.pinned[pid] = tuple(cpus)

    def join(self, member: str, pid: int) -> None:
        assert self.controller.admit(member) == ()
        self.controller.follow(member, (pid,))

    def given(self) -> dict[int, float]:
        on = [sum(cpu in own for own in self.pinned.values()) for cpu in range(16)]
        return {
            pid: sum(1 / on[cpu] for cpu in cpus) for pid, cpus in self.pinned.items()
        }

    def left_behind(self) -> object:
        return {pid for pid, cpus in self.pinned.items() if len(cpus) < 16}


class DutyBench:
    def __init__(self, cpus: int = 1) -> None:
        self.cpus = cpus
        self.controller = DutyCycleController(cpus, self._send)
        self.stopped: set[int] = set()
        self.pids: set[int] = set()
        self.now_s = 0.0

    def _send(self, pids: Iterable[int], number: signal.Signals) -> None:
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


BENCHES: dict[ControllerName, Callable[[], Bench]] = {
    ControllerName.CGROUP_V1: lambda: GroupsBench(1),
    ControllerName.CGROUP_V2: lambda: GroupsBench(2),
    ControllerName.AFFINITY: AffinityBench,
    ControllerName.DUTY_CYCLE: DutyBench,
}


@pytest.fixture(params=list(BENCHES))
def bench(request: pytest.FixtureRequest) -> Bench:
    return BENCHES[request.param]()


def share(bench: Bench, **shares: float) -> None:
    """Have members of those names share, the first as process 101."""
    for pid, member in enumerate(shares, start=101):
        bench.join(member, pid)
    bench.controller.set_shares(shares)


def test_shares_hold_in_proportion_and_can_change(bench: Bench) -> None:
    share(bench, a=0.5, b=0.25, c=0.25)
    given = bench.given()
    assert given[101] / given[102] == pytest.approx(2, rel=0.1)
    assert given[103] / given[102] == pytest.approx(1, rel=0.1)

    bench.controller.set_shares({"a": 0.125, "b": 0.75, "c": 0.125})
    given = bench.given()
    assert given[102] / given[101] == pytest.approx(6, rel=0.1)
    assert given[103] / given[101] == pytest.approx(1, rel=0.1)


def test_a_member_that_is_released_is_held_back_no_more(bench: Bench) -> None:
    share(bench, a=0.9, b=0.1)
    bench.given()
    bench.controller.release("a")
    bench.controller.set_shares({"b": 1.0})
    bench.given()
    bench.controller.release("b")
    assert isinstance(bench.left_behind(), set | list)
    bench.controller.close()
    assert not bench.left_behind()


def test_closing_leaves_nothing_behind_and_no_member_held_back(bench: Bench) -> None:
    share(bench, a=0.8, b=0.1, c=0.1)
    bench.given()
    assert bench.left_behind()
    bench.controller.close()
    assert not bench.left_behind()


def test_a_process_that_a_stopped_member_started_is_stopped_too() -> None:
    duty = DutyBench()
    share(duty, a=0.9, b=0.1)
    duty.controller.turn(0.0)  # it is a's turn
    assert duty.stopped == {102}
    duty.controller.follow("b", (102, 103))
    assert duty.stopped == {102, 103}


def test_a_share_beyond_one_cpu_goes_to_the_other_members() -> None:
    duty = DutyBench(cpus=2)
    share(duty, a=0.8, b=0.1, c=0.1)
    given = duty.given()
    assert given[102] / given[101] == pytest.approx(0.5, rel=0.1)


def test_a_packer_alone_in_its_v2_group_moves_into_a_leaf_and_back() -> None:
    kernel = FakeKernel(2, own_pids=(PACKER.pid,))
    groups = CgroupController(*PARENTS[2], kernel, PACKER)
    assert kernel.groups[OWN / "freetrain-packer"].pids == {PACKER.pid}
    groups.close()
    assert kernel.groups.keys() == {OWN}
    assert kernel.groups[OWN].pids == {PACKER.pid}


def chosen(
    kernel: FakeKernel, cpus: int, wanted: ControllerName = ControllerName.AUTO
) -> ControllerName:
    return choose_controller(
        wanted,
        parents=[PARENTS[kernel.version]],
        cgroups=kernel,
        packer=PACKER,
        cpus=range(cpus),
    ).name


def test_a_v2_group_with_processes_of_others_is_left_alone() -> None:
    kernel = FakeKernel(2, own_pids=(PACKER.pid, 77))
    assert chosen(kernel, 2) is ControllerName.DUTY_CYCLE
    assert kernel.groups.keys() == {OWN}
    assert kernel.groups[OWN].pids == {PACKER.pid, 77}


@pytest.mark.parametrize(
    ("version", "is_read_only", "cpus", "expected"),
    [
        (2, False, 2, ControllerName.CGROUP_V2),
        (1, False, 2, ControllerName.CGROUP_V1),
        (1, True, ENOUGH_CPUS, ControllerName.AFFINITY),
        (1, True, ENOUGH_CPUS - 1, ControllerName.DUTY_CYCLE),
    ],
)
def test_the_best_that_works_is_taken(
    version: int, *, is_read_only: bool, cpus: int, expected: ControllerName
) -> None:
    kernel = FakeKernel(version)
    kernel.is_read_only = is_read_only
    assert chosen(kernel, cpus) is expected


def test_a_controller_that_was_asked_for_and_is_not_there_is_refused() -> None:
    kernel = FakeKernel(1)
    kernel.is_read_only = True
    with pytest.raises(BadConfigurationError, match="Permission denied"):
        chosen(kernel, 1, ControllerName.CGROUP_V1)


MOUNTS = """\
25 30 0:23 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
26 25 0:24 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
27 25 0:25 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
28 25 0:26 /pod7 /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""


def test_own_groups_are_found_by_mount_and_controller() -> None:
    groups = "5:cpuset:/\n4:cpu,cpuacct:/slurm/job_7\n0::/pod7/step_0\n"
    fs = Path("/sys/fs/cgroup")
    assert cgroups_in(MOUNTS, groups) == (
        (ControllerName.CGROUP_V2, fs / "unified/step_0"),
        (ControllerName.CGROUP_V1, fs / "cpu,cpuacct/slurm/job_7"),
    )


@pytest.mark.parametrize("groups", ["", "rubbish", "0::/elsewhere\n3:memory:/x\n"])
def test_groups_that_are_not_mounted_are_none(groups: str) -> None:
    assert cgroups_in(MOUNTS, groups) == ()
    assert cgroups_in("rubbish\n", "0::/\n") == ()


members = st.dictionaries(
    st.sampled_from("abcdefgh"), st.floats(min_value=0.01, max_value=1), min_size=1
)
counts = st.integers(1, 6)


@given(members, counts)
def test_parts_of_the_time_fill_the_cpus_and_are_in_proportion_below_a_whole_cpu(
    shares: dict[str, float], cpus: int
) -> None:
    parts = run_fractions(shares, cpus)

    assert parts.keys() == shares.keys()
    assert all(0 < part <= 1 for part in parts.values())
    assert sum(parts.values()) == pytest.approx(min(cpus, len(shares)))
    rates = [parts[name] / shares[name] for name in shares if parts[name] < 1]
    assert rates == pytest.approx([rates[0]] * len(rates) if rates else [])


@given(members, counts)
def test_turns_last_as_long_as_the_part_and_no_more_run_at_once_than_there_are_cpus(
    shares: dict[str, float], cpus: int
) -> None:
    parts, slots = run_fractions(shares, cpus), cpu_slots(shares, cpus)

    for name, own in slots.items():
        assert sum(end - begin for begin, end in own) == pytest.approx(parts[name])
        assert all(0 <= begin <= end <= 1 for begin, end in own)
        assert len(own) == 1 or own[0][1] <= own[1][0] + 1e-9
    turns = [turn for own in slots.values() for turn in own]
    for before, after in pairwise(sorted({edge for turn in turns for edge in turn})):
        if after - before > 1e-6:
            middle = (before + after) / 2
            assert sum(begin <= middle < end for begin, end in turns) <= cpus


@given(members, st.lists(st.integers(0, 200), min_size=1, max_size=64, unique=True))
def test_every_member_has_a_cpu_and_only_given_ones(
    shares: dict[str, float], cpus: list[int]
) -> None:
    found = whole_cpus(shares, cpus)
    assert all(own and set(own) <= set(cpus) for own in found.values())
    assert {cpu for own in found.values() for cpu in own} == set(cpus)


def test_whole_cpus_go_by_share() -> None:
    found = whole_cpus({"a": 0.5, "b": 0.25, "c": 0.25}, range(8))
    assert found == {"a": (0, 1, 2, 3), "b": (4, 5), "c": (6, 7)}


@pytest.mark.parametrize(
    ("pids", "is_read_only", "is_removed"),
    [((), False, True), ((os.getpid(),), False, False), ((), True, False)],
    ids=["empty", "with a process", "read-only"],
)
def test_only_empty_groups_of_dead_packers_are_removed(
    pids: tuple[int, ...], *, is_read_only: bool, is_removed: bool
) -> None:
    living = this_packer("0123456789abcdef")
    # A process that had this one's number before it.
    dead = PREFIX + replace(living, started=living.started - 1).label
    others = {PREFIX + living.label, "theirs", f"{PREFIX}what"}
    groups = [OWN / name / "a" for name in {dead} | others]
    kernel = FakeKernel(1, *groups, *(group.parent for group in groups))
    kernel.groups[OWN / dead / "a"].pids.update(pids)
    kernel.is_read_only = is_read_only

    remove_empty_groups([OWN], kernel)

    kernel.is_read_only = False
    assert set(kernel.names(OWN)) == others | (set() if is_removed else {dead})


def test_a_packer_has_left_processes_only_if_it_is_dead_and_of_the_same_pack() -> None:
    living = this_packer("0123456789abcdef")
    dead = replace(living, started=living.started - 1)
    stranger = replace(dead, pack="fedcba9876543210")

    labels = (dead.label, living.label, stranger.label, "what")
    assert [living.has_left(label) for label in labels] == [True, False, False, False]
