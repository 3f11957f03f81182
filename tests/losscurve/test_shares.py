"""A share of a processor, enforced by the kernel where it lets us."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

if find_spec("examples") is None:
    pytest.skip("no examples folder here", allow_module_level=True)

from examples.record_curves.shares import CPU_CGROUPS, PERIOD_US, DutyCycle, Quota


def group() -> Path:
    """Where this process is in the hierarchy of cpu; skips where there is none."""
    lines = Path("/proc/self/cgroup").read_text("ascii").splitlines()
    found = (w[2] for w in (x.split(":", 2) for x in lines) if "cpu" in w[1].split(","))
    for path in found:
        return CPU_CGROUPS / path.removeprefix("/")
    pytest.skip("there is no cgroup v1 hierarchy of cpu here")


@pytest.fixture
def quota() -> Quota:
    """Asks the machine, not the quota, which would skip tests that it fails."""
    needed = (group(), group() / "cgroup.procs")
    if not all(os.access(path, os.W_OK) for path in needed):
        pytest.skip("this process may not make cgroups (version 1) of its own")
    return Quota()


def test_a_quota_holds_within_and_nothing_is_left_after(quota: Quota) -> None:
    before = group()

    with quota.of(50):
        ours = group()
        told_us = int((ours / "cpu.cfs_quota_us").read_text("ascii"))

    assert ours != before
    assert told_us == PERIOD_US // 2
    assert group() == before
    assert not ours.exists()


def test_an_error_within_leaves_nothing_either(quota: Quota) -> None:
    before = group()

    with pytest.raises(ZeroDivisionError), quota.of(50):
        _ = 1 / 0

    assert group() == before
    assert not (before / f"freetrain-steps-{os.getpid()}").exists()


def test_a_quota_works_where_the_machine_lets_us(quota: Quota) -> None:
    before = group()

    assert quota.works()
    assert group() == before


def test_a_process_that_may_not_come_back_does_not_go(tmp_path: Path) -> None:
    assert not Quota(tmp_path).works()
    assert list(tmp_path.iterdir()) == []


def test_a_whole_processor_needs_no_sleep() -> None:
    slept_s: list[float] = []
    times_s = iter([0.0, 1.0, 1.0])

    with DutyCycle(lambda: next(times_s), slept_s.append).of(100) as rest:
        rest()

    assert slept_s == [0.0]


def test_limits_that_held_before_go_on_holding(quota: Quota) -> None:
    before = group()

    with quota.of(100):
        assert group() == before / f"freetrain-steps-{os.getpid()}"
