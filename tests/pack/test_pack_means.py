"""The contract of all means of sharing CPUs, and what is particular to each."""

from __future__ import annotations

import pytest

from freetrain.errors import BadConfigurationError
from freetrain.pack.cpu_controllers import (
    ENOUGH_CPUS,
    CgroupController,
    ControllerName,
    ParentGroup,
    cgroups_in,
    choose_controller,
)
from tests.pack.benches import PACKER, Bench, DutyBench, bench
from tests.pack.fake_kernel import OWN, FakeKernel

ALL = [name for name in ControllerName if name is not ControllerName.AUTO]
V1 = ParentGroup(ControllerName.CGROUP_V1, OWN)
V2 = ParentGroup(ControllerName.CGROUP_V2, OWN)


@pytest.fixture(params=ALL)
def any_bench(request: pytest.FixtureRequest) -> Bench:
    return bench(request.param)


def test_shares_hold_in_proportion(any_bench: Bench) -> None:
    any_bench.join("a", 101)
    any_bench.join("b", 102)
    any_bench.means.set_shares({"a": 0.75, "b": 0.25})
    given = any_bench.given()
    assert given[101] / given[102] == pytest.approx(3, rel=0.1)


def test_shares_can_change(any_bench: Bench) -> None:
    for number, member in enumerate("abc"):
        any_bench.join(member, 101 + number)
    any_bench.means.set_shares({"a": 0.8, "b": 0.1, "c": 0.1})
    any_bench.given()
    any_bench.means.set_shares({"a": 0.25, "b": 0.5, "c": 0.25})
    given = any_bench.given()
    assert given[102] / given[101] == pytest.approx(2, rel=0.1)
    assert given[103] / given[101] == pytest.approx(1, rel=0.1)


def test_who_is_released_is_held_back_no_more(any_bench: Bench) -> None:
    any_bench.join("a", 101)
    any_bench.join("b", 102)
    any_bench.means.set_shares({"a": 0.9, "b": 0.1})
    any_bench.given()
    any_bench.means.release("a")
    any_bench.means.set_shares({"b": 1.0})
    any_bench.given()
    any_bench.means.release("b")
    assert isinstance(any_bench.left_behind(), set | list)
    any_bench.means.close()
    assert not any_bench.left_behind()


def test_closing_leaves_nothing_behind_and_nobody_held_back(any_bench: Bench) -> None:
    for number, member in enumerate("abc"):
        any_bench.join(member, 101 + number)
    any_bench.means.set_shares({"a": 0.8, "b": 0.1, "c": 0.1})
    any_bench.given()
    assert any_bench.left_behind()
    any_bench.means.close()
    assert not any_bench.left_behind()


def test_a_process_that_a_stopped_member_started_is_stopped_too() -> None:
    duty = DutyBench()
    duty.join("a", 101)
    duty.join("b", 102)
    duty.means.set_shares({"a": 0.9, "b": 0.1})
    duty.means.turn(0.0)  # it is a's turn
    assert duty.stopped == {102}
    duty.means.follow("b", (102, 103))
    assert duty.stopped == {102, 103}


def test_what_one_cpu_cannot_give_a_member_goes_to_the_others() -> None:
    duty = DutyBench(cpus=2)
    for number, member in enumerate("abc"):
        duty.join(member, 101 + number)
    duty.means.set_shares({"a": 0.8, "b": 0.1, "c": 0.1})
    given = duty.given()
    assert given[102] / given[101] == pytest.approx(0.5, rel=0.1)


def test_a_packer_alone_in_its_v2_group_moves_into_a_leaf_and_back() -> None:
    kernel = FakeKernel(2, own_pids=(PACKER.pid,))
    groups = CgroupController(V2, kernel, PACKER)
    assert kernel.groups[OWN / "freetrain-packer"].pids == {PACKER.pid}
    groups.close()
    assert kernel.groups.keys() == {OWN}
    assert kernel.groups[OWN].pids == {PACKER.pid}


def test_a_v2_group_with_processes_of_others_is_left_alone() -> None:
    kernel = FakeKernel(2, own_pids=(PACKER.pid, 77))
    means = choose_controller(
        ControllerName.AUTO, parents=[V2], cgroups=kernel, packer=PACKER, cpus=[0, 1]
    )
    assert means.name is ControllerName.DUTY_CYCLE
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
    means = choose_controller(
        ControllerName.AUTO,
        parents=[V2 if version == 2 else V1],
        cgroups=kernel,
        packer=PACKER,
        cpus=range(cpus),
    )
    assert means.name is expected


def test_a_means_that_was_asked_for_and_is_not_there_is_refused() -> None:
    kernel = FakeKernel(1)
    kernel.is_read_only = True
    with pytest.raises(BadConfigurationError, match="Permission denied"):
        choose_controller(
            ControllerName.CGROUP_V1,
            parents=[V1],
            cgroups=kernel,
            packer=PACKER,
            cpus=[0],
        )


MOUNTS = """\
25 30 0:23 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
26 25 0:24 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
27 25 0:25 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
28 25 0:26 /pod7 /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""


def test_own_groups_are_found_by_mount_and_controller() -> None:
    groups = "5:cpuset:/\n4:cpu,cpuacct:/slurm/job_7\n0::/pod7/step_0\n"
    assert cgroups_in(MOUNTS, groups) == (
        ParentGroup(
            ControllerName.CGROUP_V2, OWN.parent.parent / "sys/fs/cgroup/unified/step_0"
        ),
        ParentGroup(
            ControllerName.CGROUP_V1,
            OWN.parent.parent / "sys/fs/cgroup/cpu,cpuacct/slurm/job_7",
        ),
    )


@pytest.mark.parametrize("groups", ["", "rubbish", "0::/elsewhere\n3:memory:/x\n"])
def test_groups_that_are_not_mounted_are_none(groups: str) -> None:
    assert cgroups_in(MOUNTS, groups) == ()
    assert cgroups_in("rubbish\n", "0::/\n") == ()
