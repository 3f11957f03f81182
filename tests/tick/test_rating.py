"""What trainers are worth: by their speeds, their loss forecasts and the priority.

Speeds and costs are learned from reports and replace stated ones. Losses are fitted
only where a trainer reported something new and the site's priority looks at them.
"""

from __future__ import annotations

import math
import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from freetrain.config.job import (
    JobDeadline,
    NodeSettings,
    ProgressFormat,
    ProgressSettings,
    QualitySettings,
    RescaleCosts,
    TargetSettings,
    TrainerJob,
    WorkSettings,
)
from freetrain.config.site import PlannerSettings
from freetrain.errors import BadConfigurationError
from freetrain.formats import ProgressRecord
from freetrain.losscurve.fit import FittedForecast
from freetrain.losscurve.forecast import MetricDirection, MetricPoint
from freetrain.progress import BEGINNING
from freetrain.scaling import (
    LearnedScaling,
    MeasuredSpeed,
    Profiling,
    Rescale,
    RescaleCost,
    to_state,
)
from freetrain.state.database import migrate
from freetrain.state.files import EndingKind, create_ending
from freetrain.state.tables import (
    HistoryRow,
    TrainerRow,
    TrainerState,
    history_of,
    put_histories,
    put_loss_forecasts,
)
from freetrain.tick.plan import make_plan
from freetrain.tick.rate import (
    LossForecaster,
    MeasuredSpeeds,
    contender_of,
    costs_s,
    priority_of,
    speeds_of,
)
from freetrain.tick.trainers import (
    TickTrainer,
    TrainerHistory,
    TrainerProgress,
    known_from,
    program_of,
)
from tests.losscurve.reported import noisy, reported, steps
from tests.state.endings import an_ending
from tests.tick.tick_worlds import (
    NOW_S,
    TickWorld,
    again,
    assigned,
    observing,
    printed,
    printing,
    tell,
    tick_world,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from freetrain.losscurve.forecast import LossForecast
    from freetrain.priority.base import Contender
    from freetrain.tick.rate import Fitter


@pytest.fixture
def world(quick_folder: Path) -> TickWorld:
    return tick_world(quick_folder, planner=PlannerSettings(learn=True))


def job(**changes: object) -> TrainerJob:
    made = TrainerJob(
        name="a", command=("x",), directory=Path("/"), nodes=NodeSettings(max_nodes=4)
    )
    return structs.replace(made, **changes)


# What a priority sees.


def contender(
    one: TrainerJob, *records: ProgressRecord, fit: Fitter | None = None
) -> Contender:
    row = TrainerRow("a", "", "/r", TrainerState.WANTED, 100.0, 100.0)
    history = TrainerHistory()
    history.add(records, one)
    progress = TrainerProgress(
        history=history, scaling={}, bookmark=BEGINNING, submitted_s=100.0
    )
    return contender_of(
        TickTrainer(row=row, job=one), one, progress, speeds=None, fit=fit
    )


def step(n: int, loss: float) -> ProgressRecord:
    return ProgressRecord(t=200.0 + n, step=n, samples=10.0 * n, metrics={"loss": loss})


def test_a_priority_sees_what_job_file_and_history_say() -> None:
    one = job(
        weight=3.0,
        deadline=JobDeadline(after_s=50.0),
        target=TargetSettings(deliver=0.5, final=0.1),
        work=WorkSettings(samples=1_000.0),
        costs=RescaleCosts(shrink_s=7.0),
    )

    found = contender(one, step(1, 0.9), step(2, 0.4))

    assert (found.name, found.weight, found.sizes) == ("a", 3.0, (1, 2, 3, 4))
    assert found.deadline_s == 150.0
    assert (found.done_samples, found.total_samples) == (20.0, 1_000.0)
    assert found.target is not None
    assert (found.target.final, found.target.is_delivered) == (0.1, True)
    assert (found.grow_s, found.shrink_s, found.start_s) == (3.0, 7.0, 5.0)
    assert found.forecast is None, "the priority does not look at losses"


def test_a_program_without_our_library_loses_half_a_commit_interval() -> None:
    own = job(costs=RescaleCosts(shrink_s=7.0))
    rare = structs.replace(own.checkpoint, every_s=60.0)
    other = structs.replace(own, elastic=False, checkpoint=rare)
    assert (contender(own).loss_s, contender(other).loss_s) == (7.0, 7.0 + 30.0)


def test_losses_are_fitted_where_the_priority_looks_at_them() -> None:
    fitted: list[tuple[str, list[float], str]] = []

    def fit(
        name: str, own: TrainerJob, points: Sequence[MetricPoint]
    ) -> LossForecast | None:
        fitted.append((name, [point.value for point in points], own.name))
        return None

    contender(job(), step(1, 0.9), step(2, 0.4), fit=fit)

    assert fitted == [("a", [0.9, 0.4], "a")]


@pytest.mark.parametrize(("priority", "fits"), [("slaq", 1), ("weight", 0)])
def test_a_tick_fits_losses_only_for_a_priority_that_looks_at_them(
    quick_folder: Path, priority: str, fits: int
) -> None:
    world = tick_world(quick_folder, planner=PlannerSettings(priority=priority))
    tell(world.submit("a"), *(0.9 / n for n in range(1, 12)))
    world.tick(dry_run=True)

    with observing(world) as (context, observed):
        plan = make_plan(context, observed)
        saved = context.state.execute("SELECT * FROM outlooks").fetchall()

    assert len(plan.loss_forecasts) == fits
    assert not saved, "by a dry run"


def test_a_priority_that_does_not_exist_is_a_matter_of_configuration() -> None:
    with pytest.raises(BadConfigurationError, match=r"\[planner\]: no priority 'x'"):
        priority_of(PlannerSettings(priority="x"))


# Loss forecasts.

LOSSES = noisy(0.5 + 2 * steps(40) ** -0.5, noise=0.01, seed=0).tolist()
POINTS = reported(LOSSES)


class Ticks:
    """Forecasts as ticks do, and counts how often a fit was made."""

    def __init__(self) -> None:
        self.fits = 0
        self.state = sqlite3.connect(":memory:", isolation_level=None)
        migrate(self.state)

    def forecast(self, name: str, count: int) -> LossForecast | None:
        """Forecast by the first points, and save new fits."""
        forecaster = LossForecaster(self.state)
        found = forecaster.forecast(name, job(), POINTS[:count])
        self.fits += len(forecaster.fresh)
        put_loss_forecasts(self.state, forecaster.fresh)
        return found


def test_points_are_fitted_once_for_each_trainer_and_again_with_a_new_one() -> None:
    ticks = Ticks()

    first, second = ticks.forecast("a", 30), ticks.forecast("a", 30)
    fits = ticks.fits
    newer = ticks.forecast("a", 31)
    ticks.forecast("b", 30)

    assert first is not None
    assert second is not None
    assert newer is not None
    assert (fits, ticks.fits) == (1, 3)
    assert second.expected(1e5) == first.expected(1e5)
    assert second.points == first.points
    assert len(newer.points) == 31


def test_a_fit_of_another_release_is_made_again() -> None:
    ticks = Ticks()
    ticks.forecast("a", 30)
    ticks.state.execute("UPDATE outlooks SET outlook = ?", ('{"version": -1}',))
    assert ticks.forecast("a", 30) is not None
    assert ticks.fits == 2


PROGRAM = ("python", "train.py")
PAST = {
    "another batch size": (job(command=(*PROGRAM, "--batch", "8")), "finished"),
    "the same": (job(command=PROGRAM), "finished"),
    "another program": (job(command=("python", "other.py")), "finished"),
    "another folder": (job(command=PROGRAM, directory=Path("/x")), "finished"),
    "the other direction": (
        job(command=PROGRAM, quality=QualitySettings(better=MetricDirection.HIGHER)),
        "finished",
    ),
    "stopped by its user": (job(command=PROGRAM), "cancelled"),
}


def test_a_forecast_goes_by_finished_trainings_of_the_same_program_and_metric() -> None:
    state, past = Ticks().state, []
    for name, (own, ended) in PAST.items():
        history = TrainerHistory()
        history.add([step(n, 1.0 / n) for n in range(1, 60)], own)
        put_histories(state, [HistoryRow(name, 9.0, {}, history.to_state(), {})])
        past.append((TrainerRow(name, "", "/r", TrainerState(ended), 9.0, 9.0), own))
    points = [MetricPoint(n, 10.0 * n, 1.0 / n) for n in range(1, 30)]
    trainer = job(command=(*PROGRAM, "--batch", "64"))

    found = LossForecaster(state, past).forecast("a", trainer, points)

    assert isinstance(found, FittedForecast)
    assert len(found.guides) == 2
    assert found.is_calibrated


def test_of_too_few_values_there_is_no_forecast() -> None:
    ticks = Ticks()
    assert (ticks.forecast("a", 2), ticks.fits) == (None, 0)


PRIORITIES = ("slaq", "flowcon", "specon", "tradl")
TICK = """
import sys
from pathlib import Path
from tests.tick.test_rating import PRIORITIES, ticked

for priority in PRIORITIES:
    print(ticked(Path(sys.argv[1]), priority), "scipy" in sys.modules, sep="|")
"""


def test_a_tick_rates_losses_from_saved_and_new_fits_without_scipy(
    quick_folder: Path,
) -> None:
    for priority in PRIORITIES:
        (quick_folder / priority).mkdir()
        planner = PlannerSettings(priority=priority)
        world = tick_world(quick_folder / priority, planner=planner)
        tell(world.submit("a"), *LOSSES[:30])
    first = [ticked(quick_folder, priority) for priority in PRIORITIES]

    second = in_a_process_of_its_own(quick_folder)
    tell(world.folder.trainer("a").run, *LOSSES[30:], since=30)
    third = in_a_process_of_its_own(quick_folder)

    assert second == [[rating, "False"] for rating in first], "rated as if fitted"
    assert third[-1][1] == "False", "a trainer reported more, and is fitted again"


def ticked(folder: Path, priority: str) -> str:
    """Tick in the world of *priority*, and return how it rates."""
    world = again(folder / priority, planner=PlannerSettings(priority=priority))
    (line,) = world.status().trainers
    return line.rating


def in_a_process_of_its_own(folder: Path) -> list[list[str]]:
    """Tick in every world; return ratings, and whether SciPy was loaded by then."""
    root = Path(__file__).parents[2]
    ran = subprocess.run(  # noqa: S603 - this very program
        [sys.executable, "-c", TICK, str(folder)],
        env=os.environ | {"PYTHONPATH": str(root)},
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return [line.split("|") for line in ran.stdout.splitlines()]


# Speeds and costs, learned from the generations that trainers went through.


def learned(world: TickWorld, name: str = "a") -> LearnedScaling:
    """What the last tick saved of a trainer's speed."""
    with world.reading() as state:
        row = history_of(state, name, submitted_s=world.row(name).submitted_s)
    assert row is not None
    return known_from(row.scaling)


def generation(world: TickWorld, number: int, nodes: int, at_s: float) -> None:
    assigned(world.folder.trainer("a"), number, nodes, at_s=at_s)


def test_speeds_and_costs_are_learned_from_generations(world: TickWorld) -> None:
    run_dir = world.submit("a")
    generation(world, 1, 1, -3.0)
    tell(run_dir, *([0.5] * 30))
    generation(world, 2, 2, 30.0)
    tell(run_dir, *([0.4] * 30), since=37, generation=2)

    world.tick()

    scaling = learned(world)
    ((one, (speed,)), (two, (wider,))) = sorted(scaling.seen.items())
    assert (one, two) == (1, 2)
    assert speed.samples_per_s == wider.samples_per_s == pytest.approx(10.0)
    assert [c.seconds for c in scaling.paid[Rescale.START]] == [4.0]
    assert [c.seconds for c in scaling.paid[Rescale.GROW]] == [8.0]


def test_coming_back_after_a_failure_is_no_rescale(world: TickWorld) -> None:
    run_dir = world.submit("a")
    generation(world, 1, 1, 0.0)
    tell(run_dir, *([0.5] * 5))
    failed = an_ending(1, EndingKind.FAILED, exit_code=1)
    create_ending(world.folder.trainer("a"), failed)
    generation(world, 2, 2, 10.0)
    tell(run_dir, *([0.5] * 5), since=50, generation=2)

    world.tick()

    assert list(learned(world).paid) == [Rescale.START]


def test_coming_back_from_no_nodes_is_a_start(world: TickWorld) -> None:
    run_dir = world.submit("a")
    generation(world, 1, 1, 0.0)
    tell(run_dir, *([0.5] * 5))
    generation(world, 2, 0, 10.0)
    generation(world, 3, 2, 40.0)
    tell(run_dir, *([0.5] * 5), since=50, generation=3)

    world.tick()

    paid = learned(world).paid[Rescale.START]
    assert [cost.seconds for cost in paid] == [1.0, 11.0]


@pytest.mark.parametrize("lines", [1, 3, 10, 100])
def test_a_program_that_reports_no_time_is_timed_by_ticks(
    world: TickWorld, lines: int
) -> None:
    printing(world, r"step (?P<step>\d+)")
    generation(world, 1, 1, 0.0)
    world.tick()
    for number in range(12):
        steps = range(lines * number, lines * (number + 1))
        printed(world, "".join(f"step {step}\n" for step in steps))
        world.now_s += 100.0
        world.tick()

    (speed,) = learned(world).seen[1]

    assert speed.samples_per_s == pytest.approx(lines / 100.0, rel=0.15)


def test_times_in_whole_seconds_show_the_speed_of_many_steps_a_second(
    world: TickWorld,
) -> None:
    form = 'elastic = false\n[progress]\nformat = "csv"\nfile = "{}"\n'
    path = world.folder.path.parent / "reported.csv"
    world.submit("a", form.format(path) + 'fields = { step = "step", t = "t" }\n')
    generation(world, 1, 1, 0.0)
    rows = "".join(f"{step},{NOW_S + step // 50:.0f}\n" for step in range(2_000))
    path.write_text(f"step,t\n{rows}")

    world.tick()

    (speed,) = learned(world).seen[1]
    assert speed.samples_per_s == pytest.approx(50.0, rel=0.03)


def test_earlier_reports_are_not_of_a_generation(world: TickWorld) -> None:
    path = world.folder.path.parent / "reported.csv"
    fields = 'fields = { step = "step", t = "t" }\n'
    form = f'elastic = false\n[progress]\nformat = "csv"\nfile = "{path}"\n{fields}'
    world.submit("a", form)
    generation(world, 1, 1, 100.0)
    rows = [(50.0 + number, number) for number in range(50)]
    rows += [(100.0 + 2.0 * k, 50 + k) for k in range(50)]
    lines = "".join(f"{number},{NOW_S + t}\n" for t, number in rows)
    path.write_text(f"step,t\n{lines}")

    world.tick()

    (seen,) = learned(world).seen[1]
    assert seen.samples_per_s == pytest.approx(0.5, rel=0.02)
    assert seen.trained_s == pytest.approx(98.0, rel=0.1)


def test_the_planner_goes_by_measured_speeds(world: TickWorld) -> None:
    run_dir = world.submit("a", most=2)
    generation(world, 1, 1, 0.0)
    tell(run_dir, *([0.5] * 30))
    generation(world, 2, 2, 31.0)
    tell(run_dir, *([0.5] * 30), since=32, generation=2, step_s=4.0)
    (line,) = world.status().trainers
    assert line.planned_nodes == 1, "two nodes are half as quick as one"


def test_a_waiting_trainer_that_was_seen_for_long_is_believed_more(
    quick_folder: Path,
) -> None:
    """One of two has room: ``a``, seen for seconds, seems quicker than ``b``."""
    settings = PlannerSettings(learn=True, priority="throughput")
    world = tick_world(quick_folder, planner=settings)
    for name, count, step_s in (("a", 10, 0.98), ("b", 600, 1.0)):
        run_dir = world.submit(name, most=8, least=8)
        assigned(world.folder.trainer(name), 1, 8, at_s=0.0)
        tell(run_dir, *([0.5] * count), step_s=step_s)
        assigned(world.folder.trainer(name), 2, 0, at_s=700.0)

    status = world.status()

    quick, slow = (learned(world, name).seen[8][0].samples_per_s for name in "ab")
    assert quick > 1.01 * slow
    assert [line.name for line in status.trainers if line.planned_nodes] == ["b"]


@pytest.mark.parametrize(("profile", "nodes"), [(False, 4), (True, 7)])
def test_the_site_says_whether_sizes_are_tried(
    quick_folder: Path, nodes: int, *, profile: bool
) -> None:
    """Two alike share eight nodes; the one that never ran begins on one node."""
    settings = PlannerSettings(learn=True, profile=profile)
    world = tick_world(quick_folder, planner=settings)
    for name in "ab":
        world.submit(name, '[costs]\ngrow = "0s"\nshrink = "0s"', most=8)
    generation(world, 1, 2, 0.0)
    tell(world.folder.trainer("a").run, *([0.5] * 30))
    assert world.status().trainers[0].planned_nodes == nodes


# Speeds that are stated, measured or hoped for.

SEEN = LearnedScaling(
    MappingProxyType(
        {2: (MeasuredSpeed(0.0, 50.0, 1e4),), 4: (MeasuredSpeed(1.0, 40.0, 1e4),)}
    ),
    MappingProxyType({Rescale.GROW: (RescaleCost(0.0, 9.0), RescaleCost(1.0, 9.0))}),
)
CHEAP = tuple(RescaleCost(at_s, 0.1) for at_s in (0.0, 1.0, 2.0))
ENDS = LearnedScaling(
    MappingProxyType(
        {1: (MeasuredSpeed(0.0, 50.0, 1e4),), 16: (MeasuredSpeed(1.0, 50.0, 1e4),)}
    ),
    MappingProxyType(dict.fromkeys(Rescale, CHEAP)),
)


def speeds(one: TrainerJob, known: LearnedScaling) -> NDArray[np.float64]:
    return MeasuredSpeeds((), now_s=500.0).of(one, to_state(known)).samples_per_s


def test_measured_costs_count_where_none_are_stated() -> None:
    one = job(costs=RescaleCosts(shrink_s=7.0))
    speed = MeasuredSpeeds((), now_s=500.0).of(one, to_state(SEEN))
    assert (speed.grow_s, speed.shrink_s, speed.start_s) == (9.0, 7.0, 5.0)
    assert costs_s(RescaleCosts(grow_s=9.0)) == (9.0, 3.0, 5.0), "others are assumed"


def test_stated_speeds_count_until_speeds_are_measured() -> None:
    one = job(scaling=((1, 100.0), (4, 400.0)))
    assert list(speeds(one, LearnedScaling())) == [0.0, 100.0, 200.0, 300.0, 400.0]
    assert speeds(one, SEEN)[2] == pytest.approx(50.0, rel=0.1)


def test_stated_samples_are_compared_with_measured_steps_by_their_shape() -> None:
    progress = ProgressSettings(form=ProgressFormat.PATTERN, pattern=r"(?P<step>\d+)")
    one = job(scaling=((1, 1e6), (4, 4e6)), elastic=False, progress=progress)
    one_size = LearnedScaling(MappingProxyType({4: (MeasuredSpeed(0.0, 8.0, 1e5),)}))
    assert speeds(one, one_size)[1] == pytest.approx(2.0, rel=0.02)


def test_a_trainer_that_is_not_known_yet_is_taken_to_be_like_the_others() -> None:
    others: list[dict[str, object]] = [to_state(SEEN), {"version": "anothers"}]
    found = MeasuredSpeeds(others, now_s=500.0).of(job(), {})
    assert 20.0 < found.samples_per_s[1] < 100.0


def test_stated_speed_is_linear_between_its_points_and_goes_on_as_assumed() -> None:
    wide = NodeSettings(max_nodes=8)
    found = speeds_of(job(scaling=((2, 100.0), (4, 180.0)), nodes=wide))
    assert list(found[:5]) == [0.0, 50.0, 100.0, 140.0, 180.0]
    assert found[8] == pytest.approx(180.0 * 2**0.9)
    assert speeds_of(job(nodes=wide))[8] == pytest.approx(8**0.9)


def hoped(
    known: LearnedScaling, *, held: int, remaining: float = math.inf
) -> NDArray[np.float64]:
    """What profiling adds to the speeds of a trainer."""
    one, scaling = job(nodes=NodeSettings(max_nodes=16)), to_state(known)
    plain, profiled = (
        MeasuredSpeeds((), now_s=500.0, profiling=profiling)
        .of(one, scaling, held=held, remaining=remaining)
        .samples_per_s
        for profiling in (None, Profiling())
    )
    added: NDArray[np.float64] = profiled - plain
    return added


def test_a_running_trainer_may_hope_for_unknown_sizes_where_that_pays() -> None:
    dear = MappingProxyType({Rescale.GROW: (RescaleCost(0.0, 900.0),)})
    added = hoped(ENDS, held=1, remaining=5e4)
    assert (added[4] > 0.0, added[1]) == (True, 0.0), "the size it has is known"
    assert not hoped(ENDS, held=0).any(), "it waits"
    assert not hoped(ENDS, held=1, remaining=1.0).any(), "it is nearly done"
    paid = replace(ENDS, paid=dear)
    assert not hoped(paid, held=1, remaining=5e4).any(), "a trial is too dear"


def test_a_trainer_that_reports_no_speed_does_not_stay_on_its_smallest_size() -> None:
    site = MeasuredSpeeds((), now_s=1000.0, profiling=Profiling())
    new, old = (site.of(job(), {}, held=1, since_s=own) for own in (900.0, 100.0))
    silent = site.of(job(elastic=False, progress=None), {}, held=1, since_s=900.0)

    assert new.samples_per_s[4] == new.samples_per_s[1], "it begins on one node"
    assert old.samples_per_s[4] == silent.samples_per_s[4] > 3 * new.samples_per_s[1]


def test_slow_reports_make_a_trial_long() -> None:
    site = MeasuredSpeeds((), now_s=500.0, profiling=Profiling())
    wide = job(nodes=NodeSettings(max_nodes=16))
    often, seldom = (
        site.of(wide, to_state(ENDS), held=1, remaining=5e4, report_s=own)
        for own in (1.0, 600.0)
    )

    assert often.samples_per_s[4] > seldom.samples_per_s[4]


def test_trainers_of_one_program_share_what_they_showed() -> None:
    first = job(command=("python", "train.py", "--seed", "1"))
    again, other = (
        structs.replace(first, name=name, command=("python", name, "--seed", "2"))
        for name in ("train.py", "other.py")
    )
    shown = {**to_state(SEEN), "program": program_of(first)}
    site = MeasuredSpeeds([shown], now_s=500.0, profiling=Profiling())

    known = site.of(again, {}).samples_per_s
    assert known[[2, 4]] == pytest.approx([50.0, 40.0], rel=0.01)
    assert site.of(other, {}).samples_per_s[4] == site.of(other, {}).samples_per_s[1]
