"""What every CPU controller holds, and what is particular to each."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.errors import BadConfigurationError
from freetrain.pack.cpu_controllers import (
    ENOUGH_CPUS,
    PREFIX,
    CgroupController,
    ParentGroup,
    cgroups_in,
    choose_controller,
    cpu_slots,
    remove_empty_groups,
    run_fractions,
    this_packer,
    whole_cpus,
)
from freetrain.pack.pack import ControllerName
from tests.pack.benches import OWN, PACKER, Bench, DutyBench, FakeKernel, Group, bench

ALL = [name for name in ControllerName if name is not ControllerName.AUTO]
V1 = ParentGroup(ControllerName.CGROUP_V1, OWN)
V2 = ParentGroup(ControllerName.CGROUP_V2, OWN)


@pytest.fixture(params=ALL)
def any_bench(request: pytest.FixtureRequest) -> Bench:
    return bench(request.param)


def share(any_bench: Bench, **shares: float) -> None:
    """Have members of those names share, the first as process 101."""
    for pid, member in enumerate(shares, start=101):
        any_bench.join(member, pid)
    any_bench.controller.set_shares(shares)


def test_shares_hold_in_proportion(any_bench: Bench) -> None:
    share(any_bench, a=0.75, b=0.25)
    given = any_bench.given()
    assert given[101] / given[102] == pytest.approx(3, rel=0.1)


def test_shares_can_change(any_bench: Bench) -> None:
    share(any_bench, a=0.8, b=0.1, c=0.1)
    any_bench.given()
    any_bench.controller.set_shares({"a": 0.25, "b": 0.5, "c": 0.25})
    given = any_bench.given()
    assert given[102] / given[101] == pytest.approx(2, rel=0.1)
    assert given[103] / given[101] == pytest.approx(1, rel=0.1)


def test_a_member_that_is_released_is_held_back_no_more(any_bench: Bench) -> None:
    share(any_bench, a=0.9, b=0.1)
    any_bench.given()
    any_bench.controller.release("a")
    any_bench.controller.set_shares({"b": 1.0})
    any_bench.given()
    any_bench.controller.release("b")
    assert isinstance(any_bench.left_behind(), set | list)
    any_bench.controller.close()
    assert not any_bench.left_behind()


def test_closing_leaves_nothing_behind_and_no_member_held_back(
    any_bench: Bench,
) -> None:
    share(any_bench, a=0.8, b=0.1, c=0.1)
    any_bench.given()
    assert any_bench.left_behind()
    any_bench.controller.close()
    assert not any_bench.left_behind()


def test_a_process_that_a_stopped_member_started_is_stopped_too() -> None:
    duty = DutyBench()
    share(duty, a=0.9, b=0.1)
    duty.controller.turn(0.0)  # it is a's turn
    assert duty.stopped == {102}
    duty.controller.follow("b", (102, 103))
    assert duty.stopped == {102, 103}


def test_what_one_cpu_cannot_give_a_member_goes_to_the_others() -> None:
    duty = DutyBench(cpus=2)
    share(duty, a=0.8, b=0.1, c=0.1)
    given = duty.given()
    assert given[102] / given[101] == pytest.approx(0.5, rel=0.1)


def test_a_packer_alone_in_its_v2_group_moves_into_a_leaf_and_back() -> None:
    kernel = FakeKernel(2, own_pids=(PACKER.pid,))
    groups = CgroupController(V2, kernel, PACKER)
    assert kernel.groups[OWN / "freetrain-packer"].pids == {PACKER.pid}
    groups.close()
    assert kernel.groups.keys() == {OWN}
    assert kernel.groups[OWN].pids == {PACKER.pid}


def chosen(
    kernel: FakeKernel, cpus: int, wanted: ControllerName = ControllerName.AUTO
) -> ControllerName:
    return choose_controller(
        wanted,
        parents=[V2 if kernel.version == 2 else V1],
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


members = st.dictionaries(
    st.sampled_from("abcdefgh"), st.floats(min_value=0.01, max_value=1), min_size=1
)
counts = st.integers(1, 6)


def running(found: dict[str, tuple[tuple[float, float], ...]], at: float) -> list[str]:
    return [n for n, own in found.items() if any(b <= at < e for b, e in own)]


@given(members, counts)
def test_parts_fill_the_cpus_as_far_as_members_can(
    shares: dict[str, float], cpus: int
) -> None:
    parts = run_fractions(shares, cpus)
    assert parts.keys() == shares.keys()
    assert all(0 < part <= 1 for part in parts.values())
    assert sum(parts.values()) == pytest.approx(min(cpus, len(shares)))


@given(members, counts)
def test_members_that_do_not_run_all_the_time_run_in_proportion(
    shares: dict[str, float], cpus: int
) -> None:
    parts = run_fractions(shares, cpus)
    rates = [parts[n] / shares[n] for n in shares if parts[n] < 1]
    assert rates == pytest.approx([rates[0]] * len(rates) if rates else [])


@given(members, counts, st.floats(min_value=0, max_value=0.999))
def test_no_more_run_at_once_than_there_are_cpus(
    shares: dict[str, float], cpus: int, at: float
) -> None:
    found = cpu_slots(shares, cpus)
    edges = {edge for own in found.values() for turn in own for edge in turn}
    if all(abs(at - edge) > 1e-6 for edge in edges):
        assert len(running(found, at)) <= cpus


@given(members, counts)
def test_turns_last_as_long_as_the_part_and_do_not_overlap(
    shares: dict[str, float], cpus: int
) -> None:
    parts, found = run_fractions(shares, cpus), cpu_slots(shares, cpus)
    for name, own in found.items():
        assert sum(end - begin for begin, end in own) == pytest.approx(parts[name])
        assert all(0 <= begin <= end <= 1 for begin, end in own)
        assert len(own) == 1 or own[0][1] <= own[1][0] + 1e-9


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


LIVING = this_packer("0123456789abcdef")
DEAD = replace(LIVING, started=LIVING.started - 1)
"""A process that had this one's number before it."""


def kernel(*names: str) -> FakeKernel:
    made = FakeKernel(1)
    for name in names:
        made.groups[OWN / name] = Group()
        made.groups[OWN / name / "a"] = Group()
    return made


def left(kernel: FakeKernel) -> set[str]:
    return set(kernel.names(OWN))


def test_the_group_of_a_dead_packer_is_removed_with_those_in_it() -> None:
    made = kernel(f"{PREFIX}{DEAD.label}", f"{PREFIX}{LIVING.label}", "theirs")

    remove_empty_groups([V1], made)

    assert left(made) == {f"{PREFIX}{LIVING.label}", "theirs"}


def test_a_group_with_a_process_in_it_stays() -> None:
    name = f"{PREFIX}{DEAD.label}"
    made = kernel(name)
    made.groups[OWN / name / "a"].pids.add(os.getpid())

    remove_empty_groups([V1], made)

    assert left(made) == {name}


def test_a_group_without_a_label_or_that_cannot_be_written_is_left_alone() -> None:
    made = kernel(f"{PREFIX}what", f"{PREFIX}{DEAD.label}")
    made.is_read_only = True

    remove_empty_groups([V1], made)

    made.is_read_only = False
    assert left(made) == {f"{PREFIX}what", f"{PREFIX}{DEAD.label}"}
