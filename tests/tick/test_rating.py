"""What trainers are worth to the planner, by whatever priority the site has chosen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from freetrain.config.job import (
    JobDeadline,
    NodeSettings,
    RescaleCosts,
    TargetSettings,
    TrainerJob,
    WorkSettings,
)
from freetrain.config.site import PlannerSettings
from freetrain.errors import BadConfigurationError
from freetrain.progress import BEGINNING, ProgressRecord
from freetrain.state.tables import TrainerRow, TrainerState
from freetrain.tick.rate import contender_of, priority_of
from freetrain.tick.trainers import TickTrainer, TrainerHistory, TrainerProgress
from tests.tick.tick_worlds import tell, tick_world

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.losscurve.forecast import Better, LossForecast, Point
    from freetrain.priority.base import Contender
    from freetrain.tick.rate import Fitter


def job(**changes: object) -> TrainerJob:
    made = TrainerJob(
        name="a", command=("x",), directory=Path("/"), nodes=NodeSettings(max_nodes=4)
    )
    return structs.replace(made, **changes)


def known(one: TrainerJob, *told: ProgressRecord) -> TrainerProgress:
    history = TrainerHistory()
    history.add(told, one)
    return TrainerProgress(
        history=history, scaling={}, bookmark=BEGINNING, submitted_s=100.0
    )


def contender(
    one: TrainerJob, *told: ProgressRecord, fit: Fitter | None = None
) -> Contender:
    row = TrainerRow("a", "", "/r", TrainerState.WANTED, 100.0, 100.0)
    trainer = TickTrainer(row=row, job=one)
    return contender_of(trainer, one, known(one, *told), speeds=None, fit=fit)


def step(n: int, loss: float) -> ProgressRecord:
    return ProgressRecord(t=200.0 + n, step=n, samples=10.0 * n, metrics={"loss": loss})


def test_a_priority_sees_what_job_file_and_past_say() -> None:
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


def test_a_program_without_our_library_loses_half_of_what_it_does_between_commits() -> (
    None
):
    costs = RescaleCosts(shrink_s=7.0)
    own = job(costs=costs)
    rare = structs.replace(own.checkpoint, every_s=60.0)
    other = job(costs=costs, elastic=False, checkpoint=rare)

    assert contender(own).loss_s == 7.0
    assert contender(other).loss_s == 7.0 + 30.0


def test_losses_are_fitted_where_the_priority_looks_at_them() -> None:
    fitted: list[tuple[str, list[float], Better]] = []

    def fit(name: str, points: Sequence[Point], better: Better) -> LossForecast | None:
        fitted.append((name, [point.value for point in points], better))
        return None

    contender(job(), step(1, 0.9), step(2, 0.4), fit=fit)

    assert fitted == [("a", [0.9, 0.4], job().measure.better)]


@pytest.mark.parametrize(("priority", "is_fitted"), [("slaq", True), ("weight", False)])
def test_a_tick_fits_losses_only_for_a_priority_that_looks_at_them(
    quick_folder: Path, priority: str, *, is_fitted: bool
) -> None:
    world = tick_world(quick_folder, planner=PlannerSettings(priority=priority))
    world.submit("a")
    tell(world.folder.trainer("a").run, *(0.9 / n for n in range(1, 12)))

    world.tick()

    with world.reading() as state:
        (count,) = state.execute("select count(*) from outlooks").fetchone()
    assert bool(count) is is_fitted


def test_a_priority_that_does_not_exist_is_a_matter_of_configuration() -> None:
    with pytest.raises(BadConfigurationError, match=r"\[planner\]: no priority 'x'"):
        priority_of(PlannerSettings(priority="x"))
