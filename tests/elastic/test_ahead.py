"""Worlds launched ahead: they wait, claim nothing, and begin when they may."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from freetrain import elastic
from freetrain.elastic.contract import (
    Ending,
    Outcome,
    Stop,
    StopSignals,
    read_launch,
    write_outcome,
)
from freetrain.elastic.files import Clock, RunDir
from freetrain.elastic.fragment import wait_for_predecessor
from tests.elastic.history import check_samples
from tests.elastic.launching import Stand, wait_until
from tests.elastic.threads import on_every_rank

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.elastic.threads import ThreadWorld

AHEAD = {"FREETRAIN_GENERATION": "2", "FREETRAIN_AFTER": "1"}


pytestmark = pytest.mark.usefixtures("old_handlers")


def ended(run: RunDir, ending: Ending, message: str = "") -> None:
    write_outcome(run, Outcome(ending, 1, 5, 5, message, 0.0))


def train_after(
    folder: Path,
    then: Callable[[RunDir], None],
    *,
    rounds: int = 3,
) -> tuple[elastic.Fragment, int]:
    """Train as generation 2; in its *rounds*-th sleep *then* happens."""
    sleeps = []
    steps = 0

    def sleep(_: float) -> None:
        sleeps.append(1)
        assert len(sleeps) < 1000
        if len(sleeps) == rounds:
            then(RunDir(folder))

    clock = Clock(sleep=sleep)
    with elastic.join(run_dir=folder, environment=AHEAD, clock=clock) as run:
        state = run.restore({"n": 0})
        for _ in run.batches(samples=6, global_batch=2, epochs=1):
            state["n"] += 1
            steps += 1
            run.end_step(state)
    return run, steps


def outcome(folder: Path) -> dict[str, object]:
    return dict(json.loads(RunDir(folder).outcome(2).read_text()))


def test_it_begins_when_the_generation_before_has_an_outcome(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    seen: list[tuple[bool, int]] = []

    def then(run: RunDir) -> None:
        seen.append((run.ready(2).exists(), run.newest_generation()))
        ended(run, Ending.RESCALED)

    run, steps = train_after(folder, then)

    assert seen == [(True, 0)]
    assert steps == 3
    assert run.finished


def test_it_begins_when_the_launcher_says_that_the_generation_before_is_over(
    tmp_path: Path,
) -> None:
    _, steps = train_after(tmp_path / "run", lambda run: run.over(1).touch())

    assert steps == 3


def _stop_file(run: RunDir) -> None:
    run.stop_request(2).touch()


def _stop_signal(_run: RunDir) -> None:
    signal.raise_signal(signal.SIGUSR2)


def _end_and_stop_file(run: RunDir) -> None:
    ended(run, Ending.RESCALED)
    _stop_file(run)


@pytest.mark.parametrize("ask", [_stop_file, _stop_signal, _end_and_stop_file])
def test_a_stop_while_it_waits_ends_it_and_fences_no_other(
    tmp_path: Path, ask: Callable[[RunDir], None]
) -> None:
    folder = tmp_path / "run"

    _, steps = train_after(folder, ask)

    assert steps == 0
    assert outcome(folder)["outcome"] == "rescaled"
    assert RunDir(folder).newest_generation() == 0


def test_a_training_that_was_given_up_is_not_taken_up_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    _, steps = train_after(
        folder, lambda run: ended(run, Ending.DO_NOT_RESTART, "diverged")
    )

    assert steps == 0
    found = outcome(folder)
    assert found["outcome"] == "do not restart"
    assert found["message"] == "generation 1 gave up: diverged"


def test_every_rank_waits_until_all_of_them_may_begin(tmp_path: Path) -> None:
    run = RunDir(tmp_path)

    def on_rank(world: ThreadWorld) -> tuple[Stop, int]:
        sleeps = []

        def sleep(_: float) -> None:
            sleeps.append(1)
            if world.rank == 0 and len(sleeps) == 5:
                ended(run, Ending.RESCALED)

        stop, _ = wait_for_predecessor(
            read_launch(AHEAD), run, world, StopSignals(()), Clock(sleep=sleep)
        )
        return stop, len(sleeps)

    assert on_every_rank(3, on_rank) == [(Stop.NO, 5)] * 3


def test_one_rank_s_signal_ends_the_wait_of_all(tmp_path: Path) -> None:
    run = RunDir(tmp_path)

    def on_rank(world: ThreadWorld) -> Stop:
        signals = StopSignals(())
        signals.came = world.rank == 2
        launch = read_launch(AHEAD)
        return wait_for_predecessor(launch, run, world, signals, Clock())[0]

    assert on_every_rank(3, on_rank) == [Stop.RESCALE] * 3


def test_a_world_launched_ahead_loses_no_step_of_the_one_that_trains(
    mpi_stand: Stand,
) -> None:
    first = mpi_stand.launch(2, 1, TEST_STEP_S="0.05")
    second = mpi_stand.launch(1, 2, FREETRAIN_AFTER="1")
    wait_until((mpi_stand.run_dir / "control" / "0000000002.ready").exists)
    wait_until(mpi_stand.lines)
    assert first.process.poll() is None

    mpi_stand.ask_to_stop(1)

    assert first.wait() == 0
    assert second.wait() == 0
    assert mpi_stand.outcome(1)["outcome"] == "rescaled"
    assert mpi_stand.outcome(2)["outcome"] == "finished"
    check_samples(mpi_stand)
    assert not any("rewound_from_step" in line for line in mpi_stand.lines())


def test_a_killed_world_ahead_leaves_the_one_that_trains_alone(stand: Stand) -> None:
    first = stand.launch(1, 1, TEST_STEP_S="0.02")
    wait_until(stand.checkpoints)
    ahead = stand.launch(1, 2, FREETRAIN_AFTER="1")
    wait_until((stand.run_dir / "control" / "0000000002.ready").exists)

    ahead.kill_all()

    assert first.wait() == 0
    assert stand.outcome(1)["outcome"] == "finished"
    check_samples(stand)
