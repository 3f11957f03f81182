"""What is long over is removed, and nothing else."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from freetrain.config.site import Caps
from freetrain.state.files import (
    AssignmentFile,
    EndingKind,
    StateDir,
    TrainerDir,
    create_assigned,
    create_ending,
    generation_name,
    generations,
    lease_name,
)
from freetrain.state.tables import (
    LossForecastRow,
    TrainerState,
    intents,
    leases,
    loss_forecast_of,
    put_loss_forecasts,
    put_trainers,
)
from freetrain.tick.environment import MOST_LOG_BYTES, rotate_full
from tests.state.endings import an_ending
from tests.tick.tick_worlds import TickWorld, tick_world

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.broker.lease import LeaseKey

DAYS_S = 86_400.0


class DeadError(BaseException):
    """The tick was killed here."""


@pytest.fixture
def world(quick_folder: Path) -> TickWorld:
    made = tick_world(quick_folder, caps=Caps(leases=8))
    made.folder.path.mkdir(mode=0o700)
    return made


def ended_leases(world: TickWorld) -> list[LeaseKey]:
    """Let three leases start and be over; their trainer wants no more."""
    world.submit("a", most=3)
    world.tick()
    world.beat()
    keys = world.running()
    for job in world.live():
        (world.folder.outputs / f"lease-{job.job_id}.out").touch()
    world.set_state("a", TrainerState.CANCELLED)
    world.end_jobs()
    world.tick()
    return keys


def known(world: TickWorld) -> int:
    with world.reading() as state:
        kept = leases(state, ending_after_s=0.0), intents(state, ending_after_s=0.0)
    return sum(map(len, kept))


def left(world: TickWorld, keys: list[LeaseKey]) -> int:
    folders = sum(world.folder.lease(key).path.exists() for key in keys)
    return folders + len(list(world.folder.outputs.iterdir())) + known(world)


def many_generations(folder: StateDir, name: str, count: int) -> TrainerDir:
    place = folder.trainer(name)
    place.create()
    for number in range(1, count + 1):
        made = AssignmentFile(
            trainer=name,
            generation=number,
            members=(),
            created_s=1.0,
            author="x-0",
            reason="",
        )
        create_assigned(place, made)
    return place


def with_all_its_files(place: TrainerDir, generation: int) -> list[Path]:
    done = {"was_asked": True, "step": 1, "committed_step": 1}
    ending = an_ending(generation, EndingKind.RESCALED, **done)
    create_ending(place, ending)
    world, name = place.world(generation), generation_name(generation)
    world.mkdir(parents=True)
    (world / "hostfile").touch()
    (place.logs / f"{name}.log").touch()
    (place.notices / f"{name}.u-0").touch()
    return [
        place.ending(generation),
        world,
        place.logs / f"{name}.log",
        place.notices / f"{name}.u-0",
        place.assignment(generation),
    ]


def test_old_leases_are_forgotten_with_their_files(world: TickWorld) -> None:
    keys = ended_leases(world)
    everything = left(world, keys)

    world.now_s += 2 * DAYS_S
    world.tick()
    young = left(world, keys)
    world.now_s += 2 * DAYS_S
    world.tick()

    assert young == everything == 3 + 3 + 3 + 1
    assert left(world, keys) == 0


def test_fits_of_a_trainer_long_over_are_forgotten(world: TickWorld) -> None:
    world.submit("a", most=1)
    over = replace(world.row("a"), state=TrainerState.FINISHED, changed_s=world.now_s)
    with world.writing() as state:
        put_trainers(state, [over])
        put_loss_forecasts(state, [LossForecastRow("a", "x", {})])

    found = []
    for _ in range(2):
        world.tick()
        with world.reading() as state:
            found.append(loss_forecast_of(state, "a", fitted_to="x"))
        world.now_s += 4 * DAYS_S

    assert found == [{}, None]


def test_a_clock_that_is_ahead_makes_nothing_old(world: TickWorld) -> None:
    keys = ended_leases(world)
    everything = left(world, keys)
    world.now_s += 9 * DAYS_S
    world.skew_s = -9 * DAYS_S
    world.tick()
    assert left(world, keys) == everything


def test_what_runs_stays_however_old_it_is(world: TickWorld) -> None:
    world.submit("a", most=2)
    world.tick()
    world.change_jobs(limit_s=1e9)
    world.go_on(4, every_s=9 * DAYS_S)
    assert known(world) == 3
    assert all(world.folder.lease(key).heartbeat.exists() for key in world.running())
    assert len(world.running()) == 2


def test_a_tick_killed_while_tidying_is_put_right(world: TickWorld) -> None:
    keys = ended_leases(world)
    world.now_s += 9 * DAYS_S
    points = 0
    for at in itertools.count():
        steps = itertools.count()

        def reached(
            point: str, at: int = at, steps: itertools.count[int] = steps
        ) -> None:
            is_ours = "remov" in point or "forgotten" in point
            if is_ours and next(steps) == at:
                raise DeadError

        try:
            replace(world, reached=reached).tick()
        except DeadError:
            points += 1
            continue
        break

    world.tick()
    assert points >= 2
    assert left(world, keys) == 0
    assert world.status().problems == ()


def test_only_the_newest_generations_are_kept(world: TickWorld) -> None:
    world.submit("a")
    world.set_state("a", TrainerState.PAUSED)
    place = many_generations(world.folder, "a", 290)
    files = [with_all_its_files(place, number) for number in (1, 90, 91)]

    first = _tick(world, place)
    later = [_tick(world, place) for _ in range(4)]

    assert first == tuple(range(1, 291)), "it was not told of all of them yet"
    assert [len(found) for found in later[:3]] == [240, 200, 200]
    assert later[-1] == tuple(range(91, 291))
    assert not any(path.exists() for path in (*files[0], *files[1]))
    assert all(path.exists() for path in files[2])


def _tick(world: TickWorld, place: TrainerDir) -> tuple[int, ...]:
    world.tick()
    return generations(place.assignments)


def test_a_generation_that_was_followed_lately_stays(world: TickWorld) -> None:
    world.submit("a")
    world.set_state("a", TrainerState.PAUSED)
    place = many_generations(world.folder, "a", 210)
    os.utime(place.assignment(5), (world.now_s, world.now_s))
    for _ in range(4):
        world.tick()
    assert generations(place.assignments)[0] == 4


def test_endings_of_a_trainer_with_a_time_limit_stay(world: TickWorld) -> None:
    world.submit("a", '[work]\ntime_limit = "1h"')
    world.set_state("a", TrainerState.PAUSED)
    place = many_generations(world.folder, "a", 205)
    ending, *others = with_all_its_files(place, 1)
    for _ in range(4):
        world.tick()
    assert ending.exists()
    assert not any(path.exists() for path in others)


def test_what_cannot_be_removed_is_told_and_the_tick_goes_on(world: TickWorld) -> None:
    keys = ended_leases(world)
    folder = world.folder.lease(keys[0]).path
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    folder.touch()
    world.now_s += 9 * DAYS_S

    status = world.status()

    assert any(lease_name(keys[0]) in problem for problem in status.problems)


def test_a_full_log_of_regular_ticks_becomes_the_last_one(tmp_path: Path) -> None:
    log = tmp_path / "cron.log"
    rotate_full(log)  # there is none yet
    log.write_text("x")
    rotate_full(log)
    assert log.read_text() == "x"

    log.write_bytes(b"x" * (MOST_LOG_BYTES + 1))
    rotate_full(log)

    assert not log.exists()
    assert log.with_name("cron.log.1").stat().st_size == MOST_LOG_BYTES + 1
