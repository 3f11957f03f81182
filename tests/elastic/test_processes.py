"""Real processes: killed, stopped, starved of disk; and still every sample once."""

import os
import re
import signal
import textwrap
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freetrain import elastic
from tests.elastic.history import (
    check_losses,
    check_no_commit_was_lost,
    check_samples,
    live_through,
    losses_by_step,
)
from tests.elastic.launching import REPOSITORY, Stand, wait_until
from tests.elastic.program import STEPS

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


@pytest.mark.parametrize(
    ("name", "fate"), [("mpi_stand", (11, 3, (1, 2, 3))), ("stand", (5, 4, (1,)))]
)
def test_kills_and_stops_of_changing_worlds_leave_no_trace_in_the_training(
    request: pytest.FixtureRequest,
    reference: dict[int, float],
    name: str,
    fate: tuple[int, int, tuple[int, ...]],
) -> None:
    worlds: Stand = request.getfixturevalue(name)
    seed, kills, sizes = fate

    history = live_through(worlds, seed, kills, sizes=sizes, step_s=0.06)

    check_losses(worlds, reference)
    check_samples(worlds)
    check_no_commit_was_lost(worlds, history)
    assert sum(passage.exit_code != 0 for passage in history) >= 3


def test_one_rank_s_signal_stops_all_of_them_together(mpi_stand: Stand) -> None:
    world = mpi_stand.launch(2, 1, TEST_STEP_S="0.05")

    os.kill(mpi_stand.pid(1, 1), signal.SIGUSR2)

    assert world.wait() == 0
    outcome = mpi_stand.outcome(1)
    assert outcome["outcome"] == "rescaled"
    assert outcome["committed_step"] == outcome["step"] < STEPS


LATE_SIGNAL = """
import os, signal, sys
from freetrain import elastic
class Late:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGUSR2):
        kill(pid, number)
with elastic.join() as run:
    run.restore({})
sys.late = Late()
"""


def test_a_signal_while_the_process_ends_does_not_kill_it(stand: Stand) -> None:
    assert stand.launch(1, 1, "-c", LATE_SIGNAL).wait() == 0


@pytest.mark.parametrize(
    ("variable", "is_failure", "ending", "message"),
    [
        ("TEST_GIVE_UP_AT", False, "do not restart", "diverged, says the test"),
        ("TEST_RAISE_AT", True, "failed", "ValueError: the test asked for this"),
    ],
)
def test_one_rank_ends_all_of_them_and_its_reason_is_the_outcome(
    mpi_stand: Stand, variable: str, *, is_failure: bool, ending: str, message: str
) -> None:
    world = mpi_stand.launch(2, 1, **{variable: "1:5"})

    assert (world.wait() != 0) == is_failure
    outcome = mpi_stand.outcome(1)
    assert (outcome["outcome"], outcome["message"]) == (ending, message)
    raised = 'raise ValueError("the test asked for this")' in world.log.read_text()
    assert raised == is_failure


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


def test_a_full_disk_stops_commits_and_not_the_training(stand: Stand) -> None:
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


DIGITS = REPOSITORY / "examples" / "digits" / "train.py"
PAGE = REPOSITORY / "docs" / "guide" / "own-program.md"


@pytest.mark.skipif(
    find_spec("sklearn") is None or not DIGITS.exists(),
    reason="no scikit-learn here (pip install scikit-learn), or no examples folder",
)
def test_digits_begun_by_two_ranks_is_finished_by_one_with_the_losses_of_one(
    mpi_stand: Stand, stand: Stand
) -> None:
    assert stand.launch(1, 1, str(DIGITS)).wait() == 0
    assert stand.lines()[-1]["accuracy"] > 0.95
    assert stand.outcome(1)["outcome"] == "finished"
    world = mpi_stand.launch(2, 1, str(DIGITS))
    wait_until(lambda: len(mpi_stand.lines()) > 5)

    mpi_stand.ask_to_stop(1)

    assert world.wait() == 0
    assert mpi_stand.outcome(1)["outcome"] == "rescaled"
    assert mpi_stand.launch(1, 2, str(DIGITS)).wait() == 0
    losses = {line["step"]: line["loss"] for line in stand.lines() if "loss" in line}
    for line in mpi_stand.lines():
        assert "event" in line or line["loss"] == losses[line["step"]]
    assert mpi_stand.committed().position == stand.committed().position


def ten_lines() -> str:
    shown = elastic.__doc__ or ""
    found = re.search(r"elastic:\n\n(.*?)\n\nThe same", shown, re.DOTALL)
    assert found
    return textwrap.dedent(found[1])


@pytest.mark.skipif(not PAGE.exists(), reason="no docs folder here")
def test_the_ten_lines_are_ten_and_the_page_shows_the_same() -> None:
    assert f"```python\n{ten_lines()}\n```" in PAGE.read_text()
    assert len([line for line in ten_lines().splitlines() if line.strip()]) <= 10


def test_the_ten_lines_train_as_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(0).normal(size=(203, 4))
    y = x @ np.array([1.0, 2.0, 3.0, 4.0])

    def loss_and_gradient(
        weights: np.ndarray, indices: np.ndarray
    ) -> tuple[float, np.ndarray]:
        error = x[indices] @ weights - y[indices]
        return float(error @ error), x[indices].T @ error

    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"np": np, "x": x, "loss_and_gradient": loss_and_gradient}

    exec(ten_lines(), names)  # noqa: S102  # our own documentation

    assert names["run"].finished
    np.testing.assert_allclose(names["state"]["weights"], [1, 2, 3, 4], atol=1e-3)
