"""Groups of packers that were killed go with the lease, and no living one's do."""

from __future__ import annotations

import os
from dataclasses import replace

from freetrain.pack.cpu_controllers import (
    PREFIX,
    ControllerName,
    ParentGroup,
    remove_empty_groups,
)
from freetrain.pack.processes import this_packer
from tests.pack.fake_kernel import OWN, FakeKernel, Group

PLACE = ParentGroup(ControllerName.CGROUP_V1, OWN)
LIVING = this_packer("0123456789abcdef")
DEAD = replace(LIVING, started=LIVING.started - 1)
"""What had this process' number before it."""


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

    remove_empty_groups([PLACE], made)

    assert left(made) == {f"{PREFIX}{LIVING.label}", "theirs"}


def test_a_group_with_a_process_in_it_stays() -> None:
    name = f"{PREFIX}{DEAD.label}"
    made = kernel(name)
    made.groups[OWN / name / "a"].pids.add(os.getpid())

    remove_empty_groups([PLACE], made)

    assert left(made) == {name}


def test_what_is_no_label_and_what_cannot_be_written_is_left_alone() -> None:
    made = kernel(f"{PREFIX}what", f"{PREFIX}{DEAD.label}")
    made.is_read_only = True

    remove_empty_groups([PLACE], made)

    made.is_read_only = False
    assert left(made) == {f"{PREFIX}what", f"{PREFIX}{DEAD.label}"}
