"""Ticks that make room, and leases that hold a node for nothing."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from freetrain.broker.actions import EndReason
from freetrain.config.site import Mode
from freetrain.demo.fake_slurm import cluster as keeping
from freetrain.demo.fake_slurm.cluster import JobState
from freetrain.state.files import AgentState
from freetrain.state.tables import pace
from freetrain.tick.tick import tick
from tests.state.events import events_of
from tests.tick.tick_worlds import TickWorld, lease_of, theirs, tick_world

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def world(quick_folder: Path) -> TickWorld:
    made = tick_world(quick_folder)
    made.change("lease", mode=Mode.YIELD)
    return made


def running(world: TickWorld, most: int) -> None:
    world.submit("a", most=most)
    world.tick()
    world.beat()
    world.tick()


def test_a_trainer_that_cannot_be_read_makes_room_as_well(world: TickWorld) -> None:
    running(world, 8)
    world.beat(*world.running(), state=AgentState.TRAINING, trainer="a")
    world.put(replace(world.row("a"), job='name = "a"\nnonsense = 1'))
    world.slurm.standin.add([theirs(world) for _ in range(3)])

    world.tick()

    assert [job.signals for job in world.live() if job.signals] == [["TERM"]] * 3


def test_a_careful_tick_tells_of_whom_it_had_no_time_to_try(world: TickWorld) -> None:
    running(world, 4)
    planned = {"due_s": world.now_s + 50.0, "wanted": ["n1"]}
    world.slurm.standin.add([theirs(world), theirs(world, **planned)])
    world.now_s += 1.0

    def problems(clock: Callable[[], float]) -> tuple[str, ...]:
        environment = replace(world.environment, clock=clock)
        return tick(world.site, environment, dry_run=True).status.problems

    (said,) = problems(itertools.count().__next__)
    assert said.startswith("careful: the ends of 1 running jobs could not be tried")
    assert problems(lambda: 0.0) == ()
    world.change("lease", careful=False)
    assert problems(itertools.count().__next__) == ()


def test_a_job_that_could_start_at_once_need_not_wait_for_its_planned_start(
    world: TickWorld,
) -> None:
    world.change("holes", margin_s=60.0)
    running(world, 8)
    planned = {"due_s": world.now_s + 50.0, "wanted": ["n1", "n2"]}
    world.slurm.standin.add([theirs(world, **planned)])

    world.tick()

    (job,) = (one for one in world.live() if one.nodes == ["n1"])
    uuid = lease_of(job).uuid
    with world.reading() as store:
        said = events_of(store, uuid)[-1]
    assert (said.detail, said.leases) == (str(EndReason.CLAIMED), 2)


def test_a_lease_whose_agent_never_comes_is_ended_and_failed_to_start(
    world: TickWorld,
) -> None:
    world.submit("a", most=2)
    world.tick()
    world.tick()
    (heard, unheard) = sorted(world.running())
    world.beat(heard)
    world.tick()

    world.now_s += 180.0
    world.beat(heard)
    status = world.status()

    assert status.done["leases ended"] == 1
    assert unheard not in map(lease_of, world.live())
    assert heard in map(lease_of, world.live())
    with world.reading() as store:
        assert pace(store, since_s=0.0).failed_starts == 1


def test_a_lease_that_outlasts_its_deadline_by_hours_is_still_ours(
    world: TickWorld,
) -> None:
    running(world, 1)
    with keeping.opened(world.slurm.folder) as cluster:
        for job in cluster.jobs:
            job.limit_s = 1e6
    world.now_s += 20 * 3_600.0

    for _ in range(4):
        world.now_s += 100.0
        world.beat()
        status = world.status()

    (job,) = world.live()
    assert [lease.job for lease in status.leases] == [str(job.job_id)]


def test_nobody_gets_nodes_beside_leases_that_just_leave_for_somebody(
    world: TickWorld,
) -> None:
    running(world, 6)
    with keeping.opened(world.slurm.folder) as cluster:
        for job in cluster.jobs[:2]:
            job.state, job.end_s = JobState.CANCELLED, world.now_s
            job.is_completing = True
    everywhere = [f"n{k}" for k in range(1, 9)]
    late_s = world.now_s + 20_000.0
    world.slurm.standin.add([theirs(world, wanted=everywhere, due_s=late_s)])
    world.submit("b", most=2)
    before = len(world.slurm.calls("sbatch"))

    world.tick()

    assert len(world.slurm.calls("sbatch")) == before


def test_a_lease_that_lasts_is_kept_off_nodes_on_which_somebody_is_booked(
    world: TickWorld,
) -> None:
    # Somebody needs seven nodes, of which two are held for half an hour. Slurm will
    # take the first seven then, so that the last of the eight is free for longer; so
    # far it means to start that job hours later, and lets leases begin anywhere.
    world.change("holes", margin_s=300.0)
    held = {"partition": "main", "limit_s": 1_800.0, "run_s": 1_800.0}
    waits = [f"n{k}" for k in range(1, 8)]
    world.slurm.standin.add(
        [
            theirs(world, wanted=["n1"], due_s=world.now_s, **held),
            theirs(world, wanted=["n2"], due_s=world.now_s, **held),
            theirs(world, wanted=waits, due_s=world.now_s + 20_000.0),
        ]
    )
    world.submit("a", most=2)

    world.tick()

    asked = [job for job in world.live() if job.user != "bob"]
    lasting = [job for job in asked if job.limit_s > 1_500.0]
    assert len(asked) == 2
    assert [job.nodes for job in lasting] == [["n8"]]


def test_a_careful_tick_keeps_leases_off_nodes_that_it_leaves_alone(
    world: TickWorld,
) -> None:
    # Six nodes are needed by whom one end would let start, and five are held. Slurm
    # would put a lease on the first idle one, and the next tick would give it up.
    world.change("lease", careful=True)
    held = {"due_s": world.now_s, "limit_s": 3_600.0, "run_s": 3_600.0}
    ends_s, first = world.now_s + 3_600.0, [f"n{k}" for k in range(1, 5)]
    world.slurm.standin.add(
        [
            theirs(world, wanted=first, **held),
            theirs(world, wanted=["n5"], **held),
            theirs(world, wanted=[*first, "n5", "n6"], due_s=ends_s),
            theirs(world, wanted=first, due_s=ends_s + 60.0),
        ]
    )
    world.submit("a", most=8)

    status = tick(world.site, replace(world.environment, clock=lambda: 0.0)).status

    asked = [job for job in world.live() if job.user != "bob"]
    assert [hole.node for hole in status.holes if "another ended" in hole.refusal] == [
        "n6",
        "n7",
    ]
    assert [job.nodes for job in asked] == [["n8"]]


def test_a_lease_that_begins_is_over_before_somebody_who_waits_could_start(
    world: TickWorld,
) -> None:
    # One of the eight nodes that somebody needs is held for half an hour; what backfill
    # planned last is of before that was known.
    world.change("holes", margin_s=300.0)
    everywhere = [f"n{k}" for k in range(1, 9)]
    held = {"wanted": ["n8"], "due_s": world.now_s, "run_s": 1_800.0}
    world.slurm.standin.add(
        [
            theirs(world, partition="main", limit_s=1_800.0, **held),
            theirs(world, wanted=everywhere, due_s=world.now_s + 6_000.0),
        ]
    )
    world.submit("a", most=2)

    world.tick()

    limits_s = [job.limit_s for job in world.live() if job.user != "bob"]
    assert limits_s
    assert max(limits_s) <= 1_500.0
