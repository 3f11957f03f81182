"""Three trainers of real digits on a real cluster, through everything at once.

How long training takes adapts to the machine: steps are slow until enough has
happened, and quick from then on.
"""

from __future__ import annotations

import threading
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.cluster.waiting import wait_for
from tests.e2e.faults import Chaos
from tests.e2e.others import live_through, make_workload
from tests.e2e.outcome import check_losses, check_samples, losses, rescales
from tests.e2e.stage import EPOCHS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from freetrain.elastic.files import RunDir
    from tests.e2e.stage import Stage

pytestmark = pytest.mark.slurm

NAMES = ("ada", "ben", "cleo")
LIMIT_S = 1_200.0  # a busy machine is no failure; alone, it takes a few minutes
TICK_EVERY_S = 3.0
RESCALES = 5
FAULTS = 6


@pytest.fixture
def stage(stage_on: Callable[..., Stage]) -> Stage:
    return stage_on()


def submit(stage: Stage, *, step_s: float) -> Path:
    """Submit all trainers; return the file that lets them hurry."""
    hurry = stage.folder / "hurry"
    for name in NAMES:
        stage.submit(
            name,
            DIGITS_EPOCHS=str(EPOCHS),
            DIGITS_STEP_S=str(step_s),
            DIGITS_HURRY=str(hurry),
            DIGITS_STRAY="7200",
        )
    return hurry


def runs(stage: Stage) -> list[RunDir]:
    return [stage.trainer(name)[1] for name in NAMES]


def have_finished(stage: Stage) -> bool:
    states = stage.states()
    assert "failed" not in states.values(), stage.status()
    return set(states.values()) == {"finished"}


def check_nothing_is_left(stage: Stage) -> None:
    wait_for("Slurm to have none of our jobs", lambda: not stage.leases())
    wait_for("no process of ours", lambda: not stage.processes())


def test_trainers_grow_and_shrink_through_holes_and_end_with_the_very_same_losses(
    stage: Stage, reference: dict[int, float]
) -> None:
    hurry = submit(stage, step_s=1.0)
    workload = make_workload(8, span_s=LIMIT_S, time_scale=0.25)
    folder = stage.folder / "others"
    folder.mkdir()
    enough = threading.Event()
    others = threading.Thread(
        target=live_through,
        args=(stage.cluster, workload, folder),
        kwargs={"enough": enough},
    )

    def is_enough() -> bool:
        counted = [rescales(*stage.trainer(name)) for name in NAMES]
        return any(c.by_survivors for c in counted) and all(
            c.count >= RESCALES and c.grows and c.shrinks and c.spanned > 1
            for c in counted
        )

    with stage.ticking(TICK_EVERY_S) as ticks:
        others.start()
        try:
            wait_for("rescales", is_enough, limit_s=LIMIT_S, pause_s=1)
        finally:
            enough.set()
            hurry.touch()
            others.join()
        wait_for("the end", lambda: have_finished(stage), limit_s=LIMIT_S, pause_s=1)
        wait_for("leases to go", lambda: not stage.leases(), limit_s=LIMIT_S)

    check_nothing_is_left(stage)
    counted = [rescales(*stage.trainer(name)) for name in NAMES]
    assert all(c.by_broker for c in counted)
    assert not [tick for tick in ticks if tick.exit_code not in {0, 75}]
    for run in runs(stage):
        check_losses(run, reference)
        check_samples(run)


def test_kills_and_freezes_cost_no_step_that_was_committed_and_no_sample(
    stage: Stage, reference: dict[int, float]
) -> None:
    hurry = submit(stage, step_s=1.0)
    random = Random(11)  # noqa: S311  a test's moments, no secret
    chaos = Chaos(stage, NAMES, random)

    with stage.ticking(TICK_EVERY_S):
        wait_for("all to train", lambda: all(map(losses, runs(stage))), limit_s=LIMIT_S)
        for _ in range(FAULTS):
            wait_for("something to strike", chaos.strike, limit_s=LIMIT_S)
            threading.Event().wait(random.uniform(1, 15))
        hurry.touch()
        chaos.wake()
        wait_for("the end", lambda: have_finished(stage), limit_s=LIMIT_S, pause_s=1)
        wait_for("leases to go", lambda: not stage.leases(), limit_s=LIMIT_S)

    check_nothing_is_left(stage)
    assert chaos.kills < FAULTS  # some were frozen
    chaos.check_nothing_committed_was_lost()
    for run in runs(stage):
        check_losses(run, reference)
        check_samples(run)
