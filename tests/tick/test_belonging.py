"""Two clusters that see one home, and so one state directory."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from freetrain.errors import BadConfigurationError
from tests.fakes.slurm.installing import FakeSlurm, install
from tests.tick.tick_worlds import TickWorld, running

if TYPE_CHECKING:
    from pathlib import Path

    from slurm.backend import SlurmBackend
    from slurm.records import ClusterConfig


class Elsewhere(TickWorld):
    """The same home on a cluster of another name."""

    __slots__ = ()

    def connect(self, most_requests: int) -> SlurmBackend:
        backend = super().connect(most_requests)
        config = backend.config

        def renamed() -> ClusterConfig:
            return replace(config(), cluster="elsewhere")

        backend.config = renamed  # type: ignore[method-assign]
        return backend


def elsewhere(world: TickWorld, slurm: FakeSlurm) -> Elsewhere:
    known = {one.name: getattr(world, one.name) for one in fields(world)}
    return Elsewhere(**{**known, "slurm": slurm, "now_s": world.now_s + 60.0})


@pytest.fixture
def other(quick_folder: Path) -> FakeSlurm:
    programs = quick_folder / "other-slurm"
    programs.mkdir()
    install(programs)
    return FakeSlurm(programs)


def test_a_tick_elsewhere_leaves_those_alone_who_train_on_a_cluster(
    world: TickWorld, other: FakeSlurm
) -> None:
    newest = running(world)
    there = elsewhere(world, other)

    for _ in range(3):
        with pytest.raises(BadConfigurationError, match="'standin', which has leases"):
            there.tick()
        there.now_s += 60.0
    world.now_s = there.now_s
    world.beat()
    world.tick()

    assert world.newest("a") == newest
    assert not other.calls("sbatch")


def test_state_moves_to_another_cluster_once_there_are_no_leases(
    world: TickWorld, other: FakeSlurm
) -> None:
    running(world)
    there = elsewhere(world, other)

    there.now_s += 86_400.0  # by their deadline leases have ended

    assert there.tick().status.cluster == "elsewhere"


def test_who_renamed_a_cluster_that_lost_its_jobs_is_told_until_when_to_wait(
    world: TickWorld, other: FakeSlurm
) -> None:
    running(world)
    world.now_s += 600.0
    world.beat()
    world.submit("b")
    world.tick()  # its lease has a later deadline
    there = elsewhere(world, other)

    with pytest.raises(BadConfigurationError, match="was renamed, ticks go on") as told:
        there.tick()
    (until,) = re.findall(r"\d{4}-\d\d-\d\dT[\d:]+Z", str(told.value))
    there.now_s = datetime.fromisoformat(until).timestamp() - 60.0  # commands take time
    with pytest.raises(BadConfigurationError):
        there.tick()
    there.now_s += 60.0

    assert there.tick().status.cluster == "elsewhere"


def test_a_cluster_that_was_renamed_goes_on_with_its_leases(world: TickWorld) -> None:
    running(world)
    renamed = elsewhere(world, world.slurm)

    status = renamed.tick().status

    assert status.cluster == "elsewhere"
    assert len(status.leases) == 2
