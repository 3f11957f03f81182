"""Worlds launched ahead: they wait, claim nothing, and begin when they may."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from freetrain import elastic
from freetrain.elastic.contract import (
    Outcome,
    OutcomeKind,
    Stop,
    StopSignals,
    read_launch,
    write_outcome,
)
from freetrain.elastic.files import Clock, RunDir
from freetrain.elastic.fragment import wait_for_predecessor
from tests.elastic.history import check_samples
from tests.elastic.launching import Stand, wait_until
from tests.elastic.threads import ThreadWorld, on_every_rank

AHEAD = {"FREETRAIN_GENERATION": "2", "FREETRAIN_AFTER": "1"}

pytestmark = pytest.mark.usefixtures("old_handlers")


def ended(
    run: RunDir, kind: OutcomeKind = OutcomeKind.RESCALED, message: str = ""
) -> None:
    write_outcome(run, Outcome(kind, 1, 0, 0, message, 0.0))


def at_third_sleep(act: Callable[[], object]) -> tuple[Clock, list[float]]:
    """A clock whose third sleep calls *act*, and its sleeps."""
    sleeps: list[float] = []

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        assert len(sleeps) < 1000
        if len(sleeps) == 3:
            act()

    return Clock(sleep=sleep), sleeps


def train_after(
    folder: Path, then: Callable[[RunDir], object]
) -> tuple[int, dict[str, object]]:
    """Train as generation 2, which waits until *then*; return steps and outcome."""
    run_dir = RunDir(folder / "run")
    clock, _ = at_third_sleep(lambda: then(run_dir))
    steps = 0
    with elastic.join(run_dir=run_dir.path, environment=AHEAD, clock=clock) as run:
        state = run.restore({"n": 0})
        for _ in run.batches(samples=6, global_batch=2, epochs=1):
            steps += 1
            run.end_step(state)
    return steps, dict(json.loads(run_dir.outcome(2).read_text()))


def test_it_begins_when_the_generation_before_has_an_outcome(tmp_path: Path) -> None:
    seen: list[tuple[bool, int]] = []

    def then(run: RunDir) -> None:
        seen.append((run.ready(2).exists(), run.newest_generation()))
        ended(run)

    steps, outcome = train_after(tmp_path, then)

    assert seen == [(True, 0)]
    assert (steps, outcome["outcome"]) == (3, "finished")


def test_it_begins_when_the_launcher_says_that_the_generation_before_is_over(
    tmp_path: Path,
) -> None:
    steps, _ = train_after(tmp_path, lambda run: run.over(1).touch())

    assert steps == 3


@pytest.mark.parametrize(
    ("asks_by_file", "has_ended"), [(True, False), (False, False), (True, True)]
)
def test_a_stop_while_it_waits_ends_it_and_fences_no_other(
    tmp_path: Path, *, asks_by_file: bool, has_ended: bool
) -> None:
    def ask(run: RunDir) -> None:
        if has_ended:
            ended(run)
        if asks_by_file:
            run.stop_request(2).touch()
        else:
            signal.raise_signal(signal.SIGUSR2)

    steps, outcome = train_after(tmp_path, ask)

    assert (steps, outcome["outcome"]) == (0, "rescaled")
    assert RunDir(tmp_path / "run").newest_generation() == 0


def test_a_training_that_was_given_up_is_not_taken_up_again(tmp_path: Path) -> None:
    steps, outcome = train_after(
        tmp_path, lambda run: ended(run, OutcomeKind.DO_NOT_RESTART, "diverged")
    )

    assert (steps, outcome["outcome"]) == (0, "do not restart")
    assert outcome["message"] == "generation 1 gave up: diverged"


@pytest.mark.parametrize("signalled", [None, 2])
def test_every_rank_waits_until_all_begin_or_the_signal_of_one_ends_the_wait(
    tmp_path: Path, signalled: int | None
) -> None:
    run = RunDir(tmp_path)

    def on_rank(world: ThreadWorld) -> tuple[Stop, int]:
        signals = StopSignals(())
        signals.came = world.rank == signalled
        clock, sleeps = at_third_sleep(lambda: ended(run) if world.rank == 0 else None)
        launch = read_launch(AHEAD)
        stop, _ = wait_for_predecessor(launch, run, world, signals, clock)
        return stop, len(sleeps)

    expected = (Stop.NO, 3) if signalled is None else (Stop.RESCALE, 0)
    assert on_every_rank(3, on_rank) == [expected] * 3


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
