"""A tick fits the losses of those who told something new, and of nobody else."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.config.site import PlannerSettings
from freetrain.losscurve.forecast import Better
from freetrain.state.database import migrate
from freetrain.state.tables import put_loss_forecasts
from freetrain.tick.rate import LossForecaster
from tests.losscurve.reported import noisy, reported, steps
from tests.tick.tick_worlds import TickWorld, again, tell, tick_world

if TYPE_CHECKING:
    from freetrain.losscurve.forecast import LossForecast

LOSSES = noisy(0.5 + 2 * steps(40) ** -0.5, noise=0.01, seed=0).tolist()
POINTS = reported(LOSSES)
PRIORITIES = ("slaq", "flowcon", "specon", "tradl")
TICK = """
import sys
from pathlib import Path
from tests.tick.test_outlooks import PRIORITIES, ticked

for priority in PRIORITIES:
    print(ticked(Path(sys.argv[1]), priority), "scipy" in sys.modules, sep="|")
"""


class Counting:
    """Forecasts as ticks do, and counts how often a fit was made."""

    def __init__(self) -> None:
        self.fits = 0
        self.state = sqlite3.connect(":memory:", isolation_level=None)
        migrate(self.state)

    def look(self, name: str, count: int) -> LossForecast | None:
        """Look at the first points as a tick does, and keep what it would."""
        forecaster = LossForecaster(self.state)
        found = forecaster.forecast(name, POINTS[:count], Better.LOWER)
        self.fits += len(forecaster.fresh)
        put_loss_forecasts(self.state, forecaster.fresh)
        return found


def test_nothing_is_fitted_twice() -> None:
    ticks = Counting()

    first, second = ticks.look("a", 30), ticks.look("a", 30)

    assert ticks.fits == 1
    assert first is not None
    assert second is not None
    assert second.expected(1e5) == first.expected(1e5)
    assert second.points == first.points


def test_a_new_point_makes_it_fit_again() -> None:
    ticks = Counting()
    ticks.look("a", 30)

    newer = ticks.look("a", 31)

    assert ticks.fits == 2
    assert newer is not None
    assert len(newer.points) == 31


def test_each_trainer_has_an_outlook_of_its_own() -> None:
    ticks = Counting()
    ticks.look("a", 30)

    ticks.look("b", 30)

    assert ticks.fits == 2


def test_what_another_release_kept_is_fitted_again() -> None:
    ticks = Counting()
    ticks.look("a", 30)
    ticks.state.execute("UPDATE outlooks SET outlook = ?", ('{"version": -1}',))

    again = ticks.look("a", 30)

    assert ticks.fits == 2
    assert again is not None


def test_of_too_few_values_nothing_is_said_or_kept() -> None:
    ticks = Counting()

    assert ticks.look("a", 2) is None
    assert ticks.fits == 0


def test_a_tick_that_is_told_nothing_new_fits_nothing_and_loads_no_scipy(
    quick_folder: Path,
) -> None:
    for priority in PRIORITIES:
        (quick_folder / priority).mkdir()
        world = world_of(quick_folder / priority, priority)
        tell(world.folder.trainer("a").run, *LOSSES[:30])
    first = [ticked(quick_folder, priority) for priority in PRIORITIES]

    second = in_a_process_of_its_own(quick_folder)
    tell(world.folder.trainer("a").run, *LOSSES[30:], since=30)
    third = in_a_process_of_its_own(quick_folder)

    assert second == [[rating, "False"] for rating in first], "rated as if fitted"
    assert third[-1][1] == "True", "something new was told"


def test_a_dry_run_keeps_no_outlook(quick_folder: Path) -> None:
    world = world_of(quick_folder, "slaq")
    tell(world.folder.trainer("a").run, *LOSSES)

    world.tick(dry_run=True)

    with world.reading() as state:
        assert state.execute("SELECT * FROM outlooks").fetchall() == []


def world_of(folder: Path, priority: str) -> TickWorld:
    """Make a world with a trainer whose losses matter."""
    world = tick_world(folder, planner=PlannerSettings(priority=priority))
    world.submit("a")
    return world


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
