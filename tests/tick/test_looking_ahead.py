"""Ticks that plan by what is expected of nodes, against the fake Slurm."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from freetrain.config.site import Caps, PlannerSettings
from freetrain.demo.fake_slurm import cluster as keeping
from freetrain.lookahead.experience import Experience
from freetrain.state.tables import (
    ended_lease_forecasts,
    pending_lease_forecasts,
    put_forecast,
)
from freetrain.tick.lookahead import MOST_ENDED
from freetrain.tick.plan import with_short_wait
from slurm.records import expand
from tests.broker.broker_records import NOW_S, intent
from tests.tick.tick_worlds import TickWorld, theirs, tick_world

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any


@pytest.fixture
def world(quick_folder: Path) -> TickWorld:
    return looking_ahead(tick_world(quick_folder))


def looking_ahead(world: TickWorld) -> TickWorld:
    planner = PlannerSettings(policy="lookahead")
    return replace(world, site=structs.replace(world.site, planner=planner))


def test_what_is_learned_of_nodes_is_kept_from_tick_to_tick(world: TickWorld) -> None:
    world.tick()
    first = world.forecast()
    world.now_s += 300.0
    world.tick()

    second = world.forecast()

    assert first["watched_s"] == 0.0
    assert second["watched_s"] > 300.0
    clusters = second["learned"]["clusters"]
    assert sum(len(nodes) for _, _, _, nodes in clusters) == 8


def test_a_trainer_runs_as_under_the_published_planner(world: TickWorld) -> None:
    world.submit("a", most=3)
    world.tick()
    world.beat()
    status = world.status()

    newest = world.newest("a")
    assert len(newest.members) == 3
    assert not status.problems
    assert "left out" not in status.planner_reason
    assert status.is_by_lives
    assert status.forecaster == "learned"
    assert status.planner_gap == pytest.approx(0.0, abs=1e-5)


def test_how_trainers_fare_is_learned_from_look_to_look(world: TickWorld) -> None:
    world.submit("a", most=3)
    world.tick()
    world.beat()
    world.tick()
    world.now_s += 60.0
    world.beat()
    world.tick()
    world.now_s += 60.0
    world.tick()

    learned = world.forecast()["experience"]
    changes, trained_s = Experience().to_state()["changes"]

    assert len(learned["held"]["a"]) == 3
    assert learned["changes"][0] == changes
    assert learned["changes"][1] >= trained_s + 60.0


def test_a_dry_run_keeps_nothing(world: TickWorld) -> None:
    world.tick()
    before = world.forecast()
    world.now_s += 60.0

    world.tick(dry_run=True)

    assert world.forecast() == before


@pytest.mark.parametrize(
    "spoilt",
    [
        {"version": 99},
        {"cluster": "elsewhere"},
        {"learned": 7},
        {"promises": {}},
        {"experience": {"hits": 7}},
        {"experience": {**Experience().to_state(), "held": {"a": [77]}}},
    ],
)
def test_what_cannot_be_used_is_dropped_with_a_line(
    world: TickWorld, spoilt: dict[str, Any]
) -> None:
    world.tick()
    with world.writing() as state:
        put_forecast(state, json.dumps(world.forecast() | spoilt))
    world.now_s += 60.0

    status = world.status()
    world.now_s += 60.0
    after = world.status()

    assert any(
        "the saved forecast of nodes cannot be used" in p for p in status.problems
    )
    assert not after.problems
    assert world.forecast()["watched_s"] > 0.0


def test_another_forecaster_learns_anew_and_the_report_says_so(
    world: TickWorld,
) -> None:
    world.tick()
    other = structs.replace(world.site.planner, forecaster="life-table")
    world = replace(world, site=structs.replace(world.site, planner=other))
    world.now_s += 60.0
    status, first = world.status(), world.forecast()
    assert status.forecaster == "life-table"
    world.now_s += 60.0
    after = world.status()

    assert any("of forecaster 'learned'" in problem for problem in status.problems)
    assert (first["forecaster"], first["watched_s"]) == ("life-table", 0.0)
    assert len(first["learned"]["idle"]) == 8
    assert not after.problems
    assert world.forecast()["watched_s"] > 0.0


def pass_by(world: TickWorld, for_s: float, *, every_s: float = 200.0) -> None:
    """Tick on while time passes."""
    until_s = world.now_s + for_s
    while world.now_s < until_s:
        world.now_s += every_s
        world.beat()
        world.tick()


def taken(world: TickWorld, *nodes: str, run_s: float = 300.0) -> None:
    """Let somebody have *nodes* for a while, at once."""
    job = theirs(world, partition="main", run_s=run_s, limit_s=run_s)
    job.due_s, job.wanted = world.now_s, list(nodes)
    world.slurm.standin.add([job])
    pass_by(world, 2.0 * run_s)


def test_nodes_that_left_together_twice_are_held_together_the_third_time(
    world: TickWorld,
) -> None:
    every = {f"n{k}" for k in range(1, 9)}
    odd = {"n1", "n3", "n5", "n7"}
    world.tick()
    for _ in range(2):
        taken(world, *odd)
        pass_by(world, 1_500.0)
    taken(world, *every)

    world.submit("a", most=4)
    world.submit("b", most=4)
    pass_by(world, 600.0, every_s=60.0)

    assert not world.forecast()["watched_s"] < 3_600.0
    held = [world.nodes(name) for name in ("a", "b")]
    assert odd in held
    assert held[0] | held[1] == every


def test_what_was_expected_of_a_lease_is_kept_with_what_came(world: TickWorld) -> None:
    world.submit("a", most=2)
    pass_by(world, 120.0, every_s=60.0)
    with world.reading() as state:
        running = pending_lease_forecasts(state)
    with keeping.opened(world.slurm.folder) as cluster:
        for job in cluster.jobs:
            job.limit_s = 1.0
    pass_by(world, 300.0, every_s=60.0)

    with world.reading() as state:
        ended = ended_lease_forecasts(state, most=MOST_ENDED)
    later = {(one.uuid, one.task): one for one in ended}

    assert len(running) == 2
    assert all(
        one.ended_s is None and 0.0 <= one.departure_probability <= 1.0
        for one in running
    )
    for one in running:
        told = later[one.uuid, one.task]
        assert (told.at_s, told.departure_probability, told.node) == (
            one.at_s,
            one.departure_probability,
            one.node,
        )
        assert told.ended_s is not None
        assert told.outcome


def test_a_lease_that_slurm_forgot_long_ago_is_told_to_have_ended_by_its_limit(
    world: TickWorld,
) -> None:
    world.submit("a", most=1)
    pass_by(world, 120.0, every_s=60.0)
    (lease,) = world.status().leases
    with keeping.opened(world.slurm.folder) as cluster:
        cluster.jobs.clear()
    world.now_s += 2 * 86_400.0

    pass_by(world, 300.0)
    (told,) = world.status().came

    assert lease.end_s is not None
    assert told.at_s < told.ended_s <= lease.end_s


def test_no_lease_is_told_to_have_ended_before_it_ran_where_the_clock_went_back(
    world: TickWorld,
) -> None:
    world.submit("a", most=1)
    pass_by(world, 120.0, every_s=60.0)
    with keeping.opened(world.slurm.folder) as cluster:
        cluster.jobs.clear()
    world.now_s -= 7_200.0

    pass_by(world, 600.0)
    (told,) = world.status().came

    assert told.ended_s >= told.at_s


def test_leases_start_where_nodes_are_expected_to_stay(world: TickWorld) -> None:
    world.tick()
    for _ in range(12):
        taken(world, "n1", "n2", "n3", "n4", run_s=200.0)

    world.submit("a", most=4)
    world.tick()
    world.beat()
    world.tick()

    (argv,) = world.slurm.calls("sbatch")
    assert "--exclude=n[1-4]" in argv
    assert world.nodes("a") == {"n5", "n6", "n7", "n8"}
    said = world.status().holes
    leaves = {one.node: one.expected.leaves for one in said if one.expected}
    assert leaves["n1"] > 2 * leaves["n5"]


def test_leases_are_kept_off_nodes_that_are_beyond_the_cap(world: TickWorld) -> None:
    world = replace(world, site=structs.replace(world.site, caps=Caps(leases=2)))
    world.tick()
    for _ in range(12):
        taken(world, "n1", "n2", "n3", "n4", run_s=200.0)

    world.submit("a", most=4)
    world.tick()

    (argv,) = world.slurm.calls("sbatch")
    (excluded,) = (word for word in argv if word.startswith("--exclude="))
    kept_off = set(expand(excluded.removeprefix("--exclude=")))
    assert len(kept_off) == 6
    assert {"n1", "n2", "n3", "n4"} < kept_off


def test_before_enough_was_seen_any_hole_will_do(world: TickWorld) -> None:
    world.tick()
    world.submit("a", most=4)
    world.tick()

    (argv,) = world.slurm.calls("sbatch")
    assert not any("exclude" in word for word in argv)


def test_weights_and_the_background_count_as_for_the_published_planner(
    world: TickWorld,
) -> None:
    world.submit("late", 'order = "background"\nweight = 100.0', most=8)
    world.submit("light", "weight = 0.001", most=4)
    world.submit("heavy", "weight = 10.0", most=6)
    pass_by(world, 240.0, every_s=60.0)

    held = {name: len(world.nodes(name)) for name in ("late", "light", "heavy")}
    assert held == {"late": 0, "light": 2, "heavy": 6}


def test_leases_kept_off_nodes_wait_a_few_minutes_for_theirs_at_most() -> None:
    long, short = intent(deadline_s=NOW_S + 9_000.0), intent(deadline_s=NOW_S + 3_660.0)

    assert with_short_wait(long).deadline_s == NOW_S + 60 * 60.0 + 180.0
    assert with_short_wait(short) == short
