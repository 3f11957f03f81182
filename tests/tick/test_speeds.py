"""Speeds and costs are learned from what trainers report, and replace stated ones."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from freetrain.config.job import (
    NodeSettings,
    ProgressFormat,
    ProgressSettings,
    RescaleCosts,
    TrainerJob,
)
from freetrain.config.site import PlannerSettings
from freetrain.scaling import (
    LearnedScaling,
    MeasuredSpeed,
    Profiling,
    Rescale,
    RescaleCost,
    to_state,
)
from freetrain.state.files import Ended, create_ending
from freetrain.state.tables import history_of
from freetrain.tick.rate import MeasuredSpeeds, costs_s, speeds_of
from freetrain.tick.trainers import known_from
from tests.state.endings import an_ending
from tests.tick.tick_worlds import (
    NOW_S,
    TickWorld,
    assigned,
    printed,
    printing,
    tell,
    tick_world,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SEEN = LearnedScaling(
    MappingProxyType(
        {2: (MeasuredSpeed(0.0, 50.0, 1e4),), 4: (MeasuredSpeed(1.0, 40.0, 1e4),)}
    ),
    MappingProxyType({Rescale.GROW: (RescaleCost(0.0, 9.0), RescaleCost(1.0, 9.0))}),
)


@pytest.fixture
def world(quick_folder: Path) -> TickWorld:
    return tick_world(quick_folder, planner=PlannerSettings(learn=True))


def kept(world: TickWorld, name: str = "a") -> LearnedScaling:
    """What the last tick remembered of a trainer's speed."""
    with world.reading() as state:
        row = history_of(state, name, submitted_s=world.row(name).submitted_s)
    assert row is not None
    return known_from(row.scaling)


def job(**changes: object) -> TrainerJob:
    made = TrainerJob(
        name="a", command=("x",), directory=Path("/"), nodes=NodeSettings(max_nodes=4)
    )
    return structs.replace(made, **changes)


def speeds(one: TrainerJob, known: LearnedScaling) -> NDArray[np.float64]:
    return MeasuredSpeeds((), now_s=500.0).of(one, to_state(known)).samples_per_s


def test_speed_and_cost_of_a_rescale_are_learned_from_what_generations_tell(
    world: TickWorld,
) -> None:
    world.submit("a")
    run_dir = world.folder.trainer("a").run
    assigned(world.folder.trainer("a"), 1, 1, at_s=-3.0)
    tell(run_dir, *([0.5] * 30))
    assigned(world.folder.trainer("a"), 2, 2, at_s=30.0)
    tell(run_dir, *([0.4] * 30), since=37, generation=2)

    world.tick()

    scaling = kept(world)
    ((nodes, (one,)), (both, (two,))) = sorted(scaling.seen.items())
    assert (nodes, both) == (1, 2)
    assert one.samples_per_s == pytest.approx(10.0)
    assert two.samples_per_s == pytest.approx(10.0)
    assert [c.seconds for c in scaling.paid[Rescale.START]] == [4.0]
    assert [c.seconds for c in scaling.paid[Rescale.GROW]] == [8.0]


def test_coming_back_after_a_failure_is_no_rescale(world: TickWorld) -> None:
    world.submit("a")
    run_dir = world.folder.trainer("a").run
    assigned(world.folder.trainer("a"), 1, 1, at_s=0.0)
    tell(run_dir, *([0.5] * 5))
    failed(world, 1)
    assigned(world.folder.trainer("a"), 2, 2, at_s=10.0)
    tell(run_dir, *([0.5] * 5), since=50, generation=2)

    world.tick()

    assert list(kept(world).paid) == [Rescale.START]


def test_coming_back_from_no_nodes_is_a_start(world: TickWorld) -> None:
    world.submit("a")
    run_dir = world.folder.trainer("a").run
    assigned(world.folder.trainer("a"), 1, 1, at_s=0.0)
    tell(run_dir, *([0.5] * 5))
    assigned(world.folder.trainer("a"), 2, 0, at_s=10.0)
    assigned(world.folder.trainer("a"), 3, 2, at_s=40.0)
    tell(run_dir, *([0.5] * 5), since=50, generation=3)

    world.tick()

    paid = kept(world).paid
    assert [cost.seconds for cost in paid[Rescale.START]] == [1.0, 11.0]


def test_a_program_that_tells_no_time_is_timed_by_the_ticks(world: TickWorld) -> None:
    printing(world, r"step (?P<step>\d+)")
    assigned(world.folder.trainer("a"), 1, 1, at_s=0.0)
    world.tick()
    for step in (10, 20, 30, 40):
        printed(world, f"step {step}\n")
        world.now_s += 100.0
        world.tick()

    (speed,) = kept(world).seen[1]

    assert speed.samples_per_s == pytest.approx(0.1, rel=0.15)


def failed(world: TickWorld, generation: int) -> None:
    ending = an_ending(generation, Ended.FAILED, exit_code=1)
    create_ending(world.folder.trainer("a"), ending)


def test_measured_speeds_take_the_place_of_assumed_ones_even_where_they_fall() -> None:
    found = speeds(job(), SEEN)

    assert found[2] == pytest.approx(50.0, rel=0.05)
    assert found[4] == pytest.approx(40.0, rel=0.05)


def test_measured_costs_count_where_their_user_says_nothing() -> None:
    site = MeasuredSpeeds((), now_s=500.0)
    one = job(costs=RescaleCosts(shrink_s=7.0))

    speed = site.of(one, to_state(SEEN))

    assert (speed.grow_s, speed.shrink_s, speed.start_s) == (9.0, 7.0, 5.0)


def test_what_its_user_says_counts_until_it_is_measured() -> None:
    one = job(scaling=((1, 100.0), (4, 400.0)))

    before = speeds(one, LearnedScaling())
    after = speeds(one, SEEN)

    assert list(before) == [0.0, 100.0, 200.0, 300.0, 400.0]
    assert after[2] == pytest.approx(50.0, rel=0.1)


def test_samples_that_its_user_says_are_compared_with_steps_by_their_shape() -> None:
    told = ProgressSettings(form=ProgressFormat.PATTERN, pattern=r"(?P<step>\d+)")
    one = job(scaling=((1, 1e6), (4, 4e6)), elastic=False, progress=told)
    one_size = LearnedScaling(MappingProxyType({4: (MeasuredSpeed(0.0, 8.0, 1e5),)}))

    assert speeds(one, one_size)[1] == pytest.approx(2.0, rel=0.02)


def test_a_trainer_that_is_not_known_yet_is_taken_to_be_like_the_others() -> None:
    others: list[dict[str, object]] = [to_state(SEEN), {"version": "anothers"}]

    found = MeasuredSpeeds(others, now_s=500.0).of(job(), {})

    assert 20.0 < found.samples_per_s[1] < 100.0


ONE_SIZE = LearnedScaling(
    MappingProxyType({2: (MeasuredSpeed(0.0, 50.0, 1e4),)}),
    MappingProxyType(
        {
            kind: (RescaleCost(0.0, 0.1), RescaleCost(1.0, 0.1), RescaleCost(2.0, 0.1))
            for kind in Rescale
        }
    ),
)


def hoped(
    known: LearnedScaling, *, held: int, remaining: float = math.inf
) -> NDArray[np.float64]:
    """What profiling adds to the speeds of a trainer."""
    made = [
        MeasuredSpeeds((), now_s=500.0, profiling=profiling)
        .of(
            job(nodes=NodeSettings(max_nodes=16)),
            to_state(known),
            held=held,
            remaining=remaining,
        )
        .samples_per_s
        for profiling in (None, Profiling())
    ]
    added: NDArray[np.float64] = made[1] - made[0]
    return added


def test_a_running_trainer_may_hope_for_sizes_that_nobody_knows() -> None:
    added = hoped(ONE_SIZE, held=2)

    assert added[3] > 0.0
    assert added[2] == 0.0, "it is known"


@pytest.mark.parametrize(
    ("held", "remaining"), [(0, math.inf), (2, 1.0)], ids=["waiting", "nearly done"]
)
def test_a_trainer_that_waits_or_is_nearly_done_tries_no_sizes(
    held: int, remaining: float
) -> None:
    assert not hoped(ONE_SIZE, held=held, remaining=remaining).any()


def test_nobody_tries_sizes_where_rescales_cost_more_than_that_may_teach() -> None:
    paid = MappingProxyType({Rescale.GROW: (RescaleCost(0.0, 900.0),)})

    assert not hoped(replace(ONE_SIZE, paid=paid), held=2).any()


def test_who_waits_and_was_seen_for_long_is_believed_more(quick_folder: Path) -> None:
    """One of two has room: ``a``, seen for seconds, seems quicker than ``b``."""
    settings = PlannerSettings(learn=True, priority="throughput")
    world = tick_world(quick_folder, planner=settings)
    for name, steps, step_s in (("a", 10, 0.98), ("b", 600, 1.0)):
        world.submit(name, most=8, least=8)
        assigned(world.folder.trainer(name), 1, 8, at_s=0.0)
        tell(world.folder.trainer(name).run, *([0.5] * steps), step_s=step_s)
        assigned(world.folder.trainer(name), 2, 0, at_s=700.0)

    status = world.status()

    quick, slow = (kept(world, name).seen[8][0].samples_per_s for name in "ab")
    assert quick > 1.01 * slow
    assert [line.name for line in status.trainers if line.planned_nodes] == ["b"]


def test_who_runs_is_not_lowered_nor_anybody_where_samples_are_not_compared() -> None:
    waits, runs, plain = (
        MeasuredSpeeds((), now_s=500.0, deviations=deviations)
        .of(job(), to_state(ONE_SIZE), held=held)
        .samples_per_s
        for deviations, held in ((1.0, 0), (1.0, 2), (0.0, 0))
    )

    assert (waits[1:] < plain[1:]).all()
    assert (runs == plain).all()


@pytest.mark.parametrize(("profile", "nodes"), [(False, 4), (True, 5)])
def test_the_site_says_whether_sizes_are_tried(
    quick_folder: Path,
    profile: bool,  # noqa: FBT001 -- a parameter of the test
    nodes: int,
) -> None:
    """Two alike share eight nodes; one of them runs, and its next sizes are unknown."""
    settings = PlannerSettings(learn=True, profile=profile)
    world = tick_world(quick_folder, planner=settings)
    for name in "ab":
        world.submit(name, '[costs]\ngrow = "0s"\nshrink = "0s"', most=8)
    assigned(world.folder.trainer("a"), 1, 2, at_s=0.0)
    tell(world.folder.trainer("a").run, *([0.5] * 30))

    assert world.status().trainers[0].planned_nodes == nodes


def test_the_planner_is_told_what_was_measured(world: TickWorld) -> None:
    world.submit("a", most=2)
    run_dir = world.folder.trainer("a").run
    assigned(world.folder.trainer("a"), 1, 1, at_s=0.0)
    tell(run_dir, *([0.5] * 30))
    assigned(world.folder.trainer("a"), 2, 2, at_s=31.0)
    tell(run_dir, *([0.5] * 30), since=32, generation=2, step_s=4.0)

    status = world.status()

    assert status.trainers[0].planned_nodes == 1, "two nodes are half as quick as one"


def test_what_was_told_before_a_generation_was_made_is_not_its_own(
    world: TickWorld,
) -> None:
    path = world.folder.path.parent / "told.csv"
    world.submit(
        "a",
        f'elastic = false\n[progress]\nformat = "csv"\nfile = "{path}"\n'
        'fields = { step = "step", t = "t" }\n',
    )
    assigned(world.folder.trainer("a"), 1, 1, at_s=100.0)
    rows = [(50.0 + step, step) for step in range(50)]
    rows += [(100.0 + 2.0 * k, 50 + k) for k in range(50)]
    lines = "".join(f"{step},{NOW_S + t}\n" for t, step in rows)
    path.write_text(f"step,t\n{lines}")

    world.tick()

    (seen,) = kept(world).seen[1]
    assert seen.samples_per_s == pytest.approx(0.5, rel=0.02)
    assert seen.trained_s == pytest.approx(98.0, rel=0.1)


def test_speed_goes_through_the_points_given_and_on_as_is_assumed_of_all() -> None:
    speeds = speeds_of(
        job(scaling=((2, 100.0), (4, 180.0)), nodes=NodeSettings(max_nodes=8))
    )

    assert list(speeds[[0, 1, 2, 3, 4]]) == [0.0, 50.0, 100.0, 140.0, 180.0]
    assert speeds[8] == pytest.approx(180.0 * 2**0.9)
    assert speeds_of(job(nodes=NodeSettings(max_nodes=8)))[8] == pytest.approx(8**0.9)


def test_costs_that_are_not_stated_are_assumed() -> None:
    assert costs_s(RescaleCosts(grow_s=9.0)) == (9.0, 3.0, 5.0)
