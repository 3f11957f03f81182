"""A pack in leases: real agents and trainings, and a stand-in for Slurm."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import pytest

from freetrain.demo.fake_slurm.cluster import FakeJob
from freetrain.demo.fake_slurm.processes import FakeSlurmFolder, at_work, install
from tests.pack.leased import (
    LeasedPack,
    goes_on_after_its_packer_was_killed,
    leased_pack,
    loses_its_lease_and_goes_on,
    now_s,
    shares_by_growth_in_every_lease,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.long


@pytest.fixture
def fake_slurm(tmp_path: Path) -> Iterator[FakeSlurmFolder]:
    folder = tmp_path / "slurm"
    folder.mkdir()
    with at_work(install(folder, now_s=now_s())) as made:
        yield made


@pytest.fixture
def pack(fake_slurm: FakeSlurmFolder, tmp_path: Path) -> LeasedPack:
    path = f"{fake_slurm.path}:{os.environ.get('PATH', '')}"
    return leased_pack(tmp_path, {**os.environ, "PATH": path}, longest_s=240.0)


def take_away(fake_slurm: FakeSlurmFolder, node: str) -> None:
    """Let another user's job have *node* at once."""
    theirs = FakeJob(
        job_id=0,
        name="theirs",
        user="others",
        partition="main",
        limit_s=3_600.0,
        submit_s=now_s(),
        due_s=now_s(),
        wanted=[node],
        run_s=600.0,
    )
    fake_slurm.add([theirs])


def test_members_of_a_pack_lose_nothing_with_a_lease(
    fake_slurm: FakeSlurmFolder, pack: LeasedPack
) -> None:
    loses_its_lease_and_goes_on(pack, partial(take_away, fake_slurm))


def test_flowcons_shares_hold_in_a_lease_and_go_to_the_next(
    fake_slurm: FakeSlurmFolder, pack: LeasedPack
) -> None:
    shares_by_growth_in_every_lease(pack, partial(take_away, fake_slurm))


def test_the_agent_ends_members_whose_packer_was_killed(pack: LeasedPack) -> None:
    goes_on_after_its_packer_was_killed(pack)
