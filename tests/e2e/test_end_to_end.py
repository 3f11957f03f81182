"""Three trainers of real digits on a real cluster, through everything at once.

How long training takes adapts to the machine: steps are slow until enough has
happened, and quick from then on.
"""

import signal
import threading
from collections.abc import Callable
from random import Random

import pytest

from tests.cluster.waiting import wait_for
from tests.e2e.faults import NAMES, check_all, endure, submit_all, wait_for_the_end
from tests.e2e.others import live_through, make_workload
from tests.e2e.outcome import rescales
from tests.e2e.stage import Stage

pytestmark = pytest.mark.slurm

LIMIT_S = 1_200.0  # a busy machine is no failure; alone, it takes a few minutes
TICK_EVERY_S = 3.0
RESCALES = 5
FAULTS = 6


@pytest.fixture
def stage(stage_on: Callable[..., Stage]) -> Stage:
    return stage_on()


def test_trainers_grow_and_shrink_through_holes_and_end_with_the_very_same_losses(
    stage: Stage, reference: dict[int, float]
) -> None:
    hurry = submit_all(stage, step_s=1.0)
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
        wait_for_the_end(stage, limit_s=LIMIT_S)

    check_all(stage, reference)
    counted = [rescales(*stage.trainer(name)) for name in NAMES]
    assert all(c.by_broker for c in counted)
    assert not [tick for tick in ticks if tick.exit_code not in {0, 75}]


def test_kills_and_freezes_cost_no_step_that_was_committed_and_no_sample(
    stage: Stage, reference: dict[int, float]
) -> None:
    struck = endure(
        stage,
        reference,
        Random(11),  # noqa: S311  a test's moments, no secret
        lambda chaos: len(chaos.faults) == FAULTS,
        step_s=1.0,
        pause_s=15,
        limit_s=LIMIT_S,
    )

    faults = list(struck)

    assert len(faults) == FAULTS
    assert any(number is not signal.SIGKILL for number, _ in faults)
