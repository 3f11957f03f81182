"""A second tick once the leases of the first have begun, against the fake Slurm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from freetrain.tick.follow_up import tick_and_follow_up
from tests.tick.tick_worlds import TickWorld, tick_world

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def world(quick_folder: Path) -> TickWorld:
    return tick_world(quick_folder)


def follow(
    world: TickWorld, wait: Callable[[float], None], *, within_s: float = 20.0
) -> int:
    """Tick and follow up; return how many ticks that were."""
    done = tick_and_follow_up(world.site, world.outside, within_s=within_s, wait=wait)
    return len(done)


def test_new_leases_train_without_another_tick(world: TickWorld) -> None:
    world.submit("a", most=2)

    ticks = follow(world, lambda _: world.beat())

    newest = world.newest("a")
    assert ticks == 2
    assert newest is not None
    assert newest.keys == set(world.running())


def test_who_has_begun_does_not_wait_long_for_the_rest(world: TickWorld) -> None:
    world.submit("a", most=2)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        world.beat(world.running()[0])

    ticks = follow(world, wait, within_s=1000.0)

    newest = world.newest("a")
    assert ticks == 2
    assert newest is not None
    assert len(newest.keys) == 1
    assert len(waits) < 5


def test_without_a_sign_of_life_there_is_no_second_tick(world: TickWorld) -> None:
    world.submit("a", most=2)
    waits: list[float] = []

    assert follow(world, waits.append) == 1

    assert 1 < len(waits) <= 20
    assert world.newest("a") is None


def test_nobody_waits_where_nothing_was_asked_for(world: TickWorld) -> None:
    waits: list[float] = []

    assert follow(world, waits.append) == 1

    assert not waits


def test_nobody_waits_who_did_not_ask_to(world: TickWorld) -> None:
    world.submit("a", most=2)
    waits: list[float] = []

    assert follow(world, waits.append, within_s=0.0) == 1

    assert not waits
