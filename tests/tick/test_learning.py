"""Ticks remember what trainers tell, and read nothing twice."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from freetrain.state.database import read_store
from freetrain.state.tables import history_of
from freetrain.tick.history import (
    MOST_POINTS,
    TrainerHistory,
    history_from,
    total_of,
    unit_of,
)
from tests.tick.tellers import NOW_S, printed, printing, tell
from tests.tick.tick_worlds import UID, TickWorld, tick_world

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def world(quick_folder: Path) -> TickWorld:
    return tick_world(quick_folder)


def kept(world: TickWorld) -> TrainerHistory:
    """What the last tick remembered of the trainer."""
    with read_store(world.folder.path, uid=UID) as state:
        row = history_of(state, "a", submitted_s=world.row("a").submitted_s)
    assert row is not None
    return history_from(row.history)


def values(past: TrainerHistory) -> list[float]:
    return [point.value for point in past.metric_points()]


def test_each_tick_adds_what_was_told_since(world: TickWorld) -> None:
    world.submit("a")
    run_dir = world.folder.trainer("a").run
    tell(run_dir, 0.9, float("nan"))
    world.tick()
    first = kept(world)
    tell(run_dir, float("inf"), -0.5, since=2)
    with run_dir.progress.open("a") as file:
        file.write('{"step": 5, "samples"')

    world.tick()
    world.tick()

    again = kept(world)
    assert (values(first)[0], len(values(first))) == (0.9, 2)
    assert [str(value) for value in values(again)] == ["0.9", "nan", "inf", "-0.5"]
    assert [point.samples for point in again.metric_points()] == [10, 20, 30, 40]
    assert (again.work, again.step, again.told_s) == (40, 4, NOW_S + 4)


def test_a_dry_run_remembers_nothing(world: TickWorld) -> None:
    world.submit("a")
    tell(world.folder.trainer("a").run, 0.9)

    world.tick(dry_run=True)

    with read_store(world.folder.path, uid=UID) as state:
        assert history_of(state, "a", submitted_s=1.0) is None


def test_of_a_long_training_a_few_hundred_points_are_kept_and_the_newest(
    world: TickWorld,
) -> None:
    world.submit("a")
    run_dir = world.folder.trainer("a").run
    for part in range(3):
        tell(run_dir, *(float(n) for n in range(1000)), since=1000 * part)
        world.tick()

    past = kept(world)
    points = past.metric_points()

    assert MOST_POINTS / 2 <= len(points) <= MOST_POINTS + 1
    assert (points[0].samples, points[-1].samples) == (10, 30_000)
    gaps = {b.samples - a.samples for a, b in pairwise(points)}
    assert len(gaps) <= 2, "evenly, but for the newest"


def test_a_past_that_another_release_kept_is_read_anew_from_the_files(
    world: TickWorld,
) -> None:
    world.submit("a")
    tell(world.folder.trainer("a").run, 0.9, 0.8)
    world.tick()
    with world.opened() as state:
        state.execute("UPDATE pasts SET past = '{}'")

    world.tick()

    assert values(kept(world)) == [0.9, 0.8]


def test_work_is_counted_in_what_a_program_tells(world: TickWorld) -> None:
    printing(world, r"step (?P<step>\d+) (?P<loss>\S+)", "[work]\nsamples = 9\n")
    printed(world, "step 1 0.5\nstep 2 0.25\n")

    world.tick()

    past = kept(world)
    assert [(p.samples, p.value) for p in past.metric_points()] == [(1, 0.5), (2, 0.25)]
    job = world.job("a")
    assert unit_of(job) == "step"
    assert total_of(job, past) is None, "nobody knows how many steps 9 samples are"


def test_epochs_to_come_take_as_many_steps_as_those_that_were(
    world: TickWorld,
) -> None:
    pattern = r"epoch (?P<epoch>\d+) step (?P<step>\d+)"
    printing(world, pattern, "[work]\nepochs = 10\n")
    printed(world, "epoch 0 step 50\n")
    world.tick()
    early = kept(world)
    printed(world, "epoch 2 step 200\n")

    world.tick()

    job = world.job("a")
    assert total_of(job, early) is None
    assert total_of(job, kept(world)) == 1000.0


def test_a_diverging_trainer_is_told_apart(world: TickWorld) -> None:
    for name, losses in (("a", (0.9, 0.5, math.nan)), ("b", (0.9, 0.5, 0.4))):
        world.submit(name)
        tell(world.folder.trainer(name).run, *losses)

    page = world.tick().status

    assert [line.is_diverging for line in page.trainers] == [True, False]
