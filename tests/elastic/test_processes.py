"""Real processes: killed, stopped, starved of disk; and still every sample once."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.elastic.history import (
    check_losses,
    check_no_commit_was_lost,
    check_samples,
    live_through,
    losses_by_step,
)
from tests.elastic.launching import Stand, wait_until
from tests.elastic.program import STEPS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, float]]:
    """The losses of a run of one process that was left alone."""
    alone = Stand(tmp_path_factory.mktemp("alone"))
    assert alone.run(1, 1) == 0
    check_samples(alone)
    yield losses_by_step(alone)
    alone.close()


def test_a_world_of_three_has_the_losses_of_a_world_of_one(
    mpi_stand: Stand, reference: dict[int, float]
) -> None:
    assert mpi_stand.run(3, 1) == 0

    check_losses(mpi_stand, reference)
    check_samples(mpi_stand)


def test_kills_and_stops_of_changing_worlds_leave_no_trace_in_the_training(
    mpi_stand: Stand, reference: dict[int, float]
) -> None:
    history = live_through(mpi_stand, 11, 3, sizes=(1, 2, 3), step_s=0.06)

    check_losses(mpi_stand, reference)
    check_samples(mpi_stand)
    check_no_commit_was_lost(mpi_stand, history)
    assert sum(passage.exit_code != 0 for passage in history) >= 3


def test_kills_of_a_program_alone_leave_no_trace_in_the_training(
    stand: Stand, reference: dict[int, float]
) -> None:
    history = live_through(stand, 5, 4, sizes=(1,), step_s=0.06)

    check_losses(stand, reference)
    check_samples(stand)
    check_no_commit_was_lost(stand, history)


def test_one_rank_s_signal_stops_all_of_them_together(mpi_stand: Stand) -> None:
    world = mpi_stand.launch(2, 1, TEST_STEP_S="0.05")

    os.kill(mpi_stand.pid(1, 1), signal.SIGUSR2)

    assert world.wait() == 0
    outcome = mpi_stand.outcome(1)
    assert outcome["outcome"] == "rescaled"
    assert outcome["committed_step"] == outcome["step"] < STEPS


def test_a_signal_while_the_process_ends_does_not_kill_it(stand: Stand) -> None:
    late = (
        "import atexit, os, signal\n"
        "from freetrain import elastic\n"
        "class Late:\n"
        "    def __del__(self, kill=os.kill, pid=os.getpid()):\n"
        "        kill(pid, 12)\n"
        "with elastic.join() as run:\n"
        "    run.restore({})\n"
        "import sys\n"
        "sys.late = Late()\n"
    )
    assert stand.launch(1, 1, "-c", late).wait() == 0


def test_one_rank_that_gives_up_stops_all_of_them_for_good(mpi_stand: Stand) -> None:
    assert mpi_stand.run(2, 1, TEST_GIVE_UP_AT="1:5") == 0

    outcome = mpi_stand.outcome(1)
    assert outcome["outcome"] == "do not restart"
    assert outcome["message"] == "diverged, says the test"


def test_one_rank_s_error_ends_all_of_them_and_is_the_outcome(mpi_stand: Stand) -> None:
    world = mpi_stand.launch(2, 1, TEST_RAISE_AT="1:5")

    assert world.wait() != 0
    outcome = mpi_stand.outcome(1)
    assert outcome["outcome"] == "failed"
    assert outcome["message"] == "ValueError: the test asked for this"
    assert 'raise ValueError("the test asked for this")' in world.log.read_text()


def test_a_frozen_world_that_wakes_after_its_successor_began_changes_nothing(
    stand: Stand,
) -> None:
    frozen = stand.launch(1, 1, TEST_STEP_S="0.02")
    wait_until(stand.checkpoints)
    frozen.process.send_signal(signal.SIGSTOP)

    assert stand.run(1, 2) == 0
    committed = stand.checkpoints()
    frozen.process.send_signal(signal.SIGCONT)

    assert frozen.wait() == 0
    assert stand.outcome(1)["outcome"] == "superseded"
    assert stand.checkpoints() == committed
    check_samples(stand)
    assert "a later generation of this run exists" in frozen.log.read_text()


def test_a_full_disk_stops_commits_and_not_the_training(
    stand: Stand,
) -> None:
    world = stand.launch(
        1, 1, TEST_STEP_S="0.02", TEST_FULL_FROM="20", TEST_FULL_UNTIL="60"
    )

    assert world.wait() == 0
    log = world.log.read_text()
    assert "could not be committed: [Errno 27]" in log
    assert "training goes on" in log
    assert "commits work again" in log
    check_samples(stand)
    assert not list((stand.run_dir / "checkpoints").glob(".*"))


def test_a_training_whose_end_cannot_be_kept_has_failed(stand: Stand) -> None:
    world = stand.launch(1, 1, TEST_STEP_S="0.02", TEST_FULL_FROM="20")

    assert world.wait() == 1
    assert "could not be kept" in world.log.read_text()
    assert stand.committed().position.step <= 21
