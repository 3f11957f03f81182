"""Ticks that plan by what is expected of nodes, against the fake Slurm."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from freetrain.site.settings import PlannerSettings, PolicyName
from freetrain.store.database import transaction
from freetrain.store.forecasts import forecast_state, put_forecast
from freetrain.store.open_store import read_store
from tests.tick.tick_worlds import UID, TickWorld, tick_world

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any


@pytest.fixture
def world(quick_folder: Path) -> TickWorld:
    return looking_ahead(tick_world(quick_folder))


def looking_ahead(world: TickWorld) -> TickWorld:
    planner = PlannerSettings(policy=PolicyName.LOOKAHEAD)
    return replace(world, site=replace(world.site, planner=planner))


def kept(world: TickWorld) -> dict[str, Any]:
    with read_store(world.folder.path, uid=UID) as state:
        found: dict[str, Any] = json.loads(forecast_state(state) or "{}")
    return found


def test_what_is_learned_of_nodes_is_kept_from_tick_to_tick(world: TickWorld) -> None:
    world.tick()
    first = kept(world)
    world.now_s += 300.0
    world.tick()

    second = kept(world)

    assert first["watched_s"] == 0.0
    assert second["watched_s"] > 300.0
    clusters = second["learned"]["clusters"]
    assert sum(len(nodes) for _, _, _, nodes in clusters) == 8


def test_a_trainer_runs_as_under_the_published_planner(world: TickWorld) -> None:
    world.submit("a", most=3)
    world.tick()
    world.beat()
    page = world.tick().page

    newest = world.newest("a")
    assert newest is not None
    assert len(newest.members) == 3
    assert not page.problems
    assert page.planner_reason == ""


def test_a_dry_run_keeps_nothing(world: TickWorld) -> None:
    world.tick()
    before = kept(world)
    world.now_s += 60.0

    world.tick(dry_run=True)

    assert kept(world) == before


@pytest.mark.parametrize(
    "spoilt",
    [{"version": 99}, {"cluster": "elsewhere"}, {"learned": 7}, {"promises": {}}],
)
def test_what_cannot_be_used_is_dropped_with_a_line(
    world: TickWorld, spoilt: dict[str, Any]
) -> None:
    world.tick()
    with world.opened() as state, transaction(state):
        put_forecast(state, kept(world) | spoilt)
    world.now_s += 60.0

    page = world.tick().page
    world.now_s += 60.0
    after = world.tick().page

    assert any("what was learned of nodes cannot be used" in p for p in page.problems)
    assert not after.problems
    assert kept(world)["watched_s"] > 0.0
