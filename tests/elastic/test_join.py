"""The context of one process: how a training ends, and what is refused."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from freetrain import elastic
from freetrain.elastic import (
    ChangedTrainingError,
    GenerationTakenError,
    ProgramError,
    WorldMismatchError,
)
from tests.elastic.joining import EPOCHS, SAMPLES, ask, committed, outcome, train

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("old_handlers")


def test_a_training_left_alone_finishes_and_is_committed(tmp_path: Path) -> None:
    run = train(tmp_path)

    assert run.finished
    assert outcome(tmp_path)["outcome"] == "finished"
    assert outcome(tmp_path)["committed_step"] == 16
    assert committed(tmp_path).state == {"sum": EPOCHS * sum(range(SAMPLES))}


def test_a_finished_training_started_again_does_nothing(tmp_path: Path) -> None:
    train(tmp_path)

    again = train(tmp_path)

    assert again.generation == 2
    assert committed(tmp_path).generation == 1
    assert outcome(tmp_path, 2)["outcome"] == "finished"


def test_a_finished_training_goes_on_with_more_epochs(tmp_path: Path) -> None:
    train(tmp_path)

    train(tmp_path, changes={"epochs": EPOCHS + 1})

    assert committed(tmp_path).state == {"sum": (EPOCHS + 1) * sum(range(SAMPLES))}


def test_the_control_file_stops_its_generation_after_the_step(tmp_path: Path) -> None:
    def at_step(_run: elastic.Fragment, step: int) -> None:
        if step == 5:
            ask(tmp_path)

    run = train(tmp_path, at_step)

    assert not run.finished
    assert outcome(tmp_path)["outcome"] == "rescaled"
    assert outcome(tmp_path)["committed_step"] == outcome(tmp_path)["step"] == 6
    assert train(tmp_path).finished
    assert committed(tmp_path).state == {"sum": EPOCHS * sum(range(SAMPLES))}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_a_signal_stops_it_after_the_step(tmp_path: Path, number: int) -> None:
    def at_step(_run: elastic.Fragment, step: int) -> None:
        if step == 5:
            os.kill(os.getpid(), number)

    train(tmp_path, at_step)

    assert outcome(tmp_path)["outcome"] == "rescaled"
    assert outcome(tmp_path)["committed_step"] == 6


def test_the_launcher_chooses_the_signal(tmp_path: Path) -> None:
    def at_step(_run: elastic.Fragment, step: int) -> None:
        if step == 5:
            os.kill(os.getpid(), signal.SIGHUP)

    train(tmp_path, at_step, environment={"FREETRAIN_STOP_SIGNALS": "HUP"})

    assert outcome(tmp_path)["outcome"] == "rescaled"


def test_old_handlers_are_put_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)

    train(tmp_path)

    assert signal.getsignal(signal.SIGTERM) is before


def test_a_stop_at_the_very_last_step_is_a_finish(tmp_path: Path) -> None:
    def at_step(_run: elastic.Fragment, step: int) -> None:
        if step == 15:
            ask(tmp_path)

    train(tmp_path, at_step)

    assert outcome(tmp_path)["outcome"] == "finished"


def test_giving_up_says_why_and_is_committed(tmp_path: Path) -> None:
    def at_step(run: elastic.Fragment, step: int) -> None:
        if step == 5:
            run.stop_for_good("the loss is not a number")

    train(tmp_path, at_step)

    found = outcome(tmp_path)
    assert found["outcome"] == "do not restart"
    assert found["message"] == "the loss is not a number"
    assert found["committed_step"] == 6


def test_a_program_that_breaks_off_is_finished(tmp_path: Path) -> None:
    with elastic.join(run_dir=tmp_path, environment={}) as run:
        state = run.restore({})
        for _ in run.batches(samples=9, global_batch=3, epochs=2):
            run.end_step(state)
            break

    assert outcome(tmp_path)["outcome"] == "finished"
    assert outcome(tmp_path)["committed_step"] == 1


@pytest.mark.parametrize("code", [0, None])
def test_leaving_with_exit_code_0_is_an_end_like_any_other(
    tmp_path: Path, code: int | None
) -> None:
    def at_step(_run: elastic.Fragment, step: int) -> None:
        if step == 5:
            raise SystemExit(code)

    with pytest.raises(SystemExit):
        train(tmp_path, at_step)

    assert outcome(tmp_path)["outcome"] == "finished"
    assert outcome(tmp_path)["committed_step"] == 5


def test_an_error_is_the_outcome_and_goes_on_its_way(tmp_path: Path) -> None:
    def at_step(_run: elastic.Fragment, step: int) -> None:
        if step == 5:
            raise ZeroDivisionError("in the model")

    with pytest.raises(ZeroDivisionError):
        train(tmp_path, at_step)

    assert outcome(tmp_path)["outcome"] == "failed"
    assert outcome(tmp_path)["message"] == "ZeroDivisionError: in the model"


def test_a_world_with_a_successor_stops_and_writes_nothing_of_its(
    tmp_path: Path,
) -> None:
    def at_step(_run: elastic.Fragment, step: int) -> None:
        if step == 5:
            (tmp_path / "generations" / "0000000002.assignment.json").touch()
            ask(tmp_path)

    train(tmp_path, at_step)

    assert outcome(tmp_path)["outcome"] == "superseded"
    assert not list((tmp_path / "checkpoints").iterdir())


@pytest.mark.parametrize(
    ("name", "number"),
    [("samples", 11), ("global_batch", 4), ("seed", 1), ("chunks", 2)],
)
def test_other_numbers_than_the_checkpoint_s_are_refused(
    tmp_path: Path, name: str, number: int
) -> None:
    train(tmp_path)

    with pytest.raises(ChangedTrainingError, match=f"{name} .* → {number}"):
        train(tmp_path, changes={name: number})


def test_a_step_that_is_not_ended_is_refused(tmp_path: Path) -> None:
    with elastic.join(run_dir=tmp_path, environment={}) as run:
        run.restore({})
        batches = run.batches(samples=9, global_batch=3, epochs=2)
        next(batches)

        with pytest.raises(ProgramError, match="step 0 was not ended"):
            next(batches)


def test_ending_a_step_twice_is_refused(tmp_path: Path) -> None:
    with elastic.join(run_dir=tmp_path, environment={}) as run:
        state = run.restore({})
        next(run.batches(samples=9, global_batch=3, epochs=2))
        run.end_step(state)

        with pytest.raises(ProgramError, match="once"):
            run.end_step(state)


def test_training_without_restoring_is_refused(tmp_path: Path) -> None:
    with (
        elastic.join(run_dir=tmp_path, environment={}) as run,
        pytest.raises(ProgramError, match="restore"),
    ):
        next(run.batches(samples=9, global_batch=3, epochs=2))


def test_a_state_may_be_a_function_called_only_for_commits(tmp_path: Path) -> None:
    calls = []

    def state() -> dict[str, Any]:
        calls.append(1)
        return {"weights": np.ones(2)}

    with elastic.join(run_dir=tmp_path, environment={}, commit_every_s=1e6) as run:
        run.restore({})
        for _ in run.batches(samples=9, global_batch=3, epochs=2):
            run.end_step(state)

    assert len(calls) == 1
    assert committed(tmp_path).state["weights"].tolist() == [1, 1]


def test_the_launcher_s_word_counts_more_than_the_program_s(tmp_path: Path) -> None:
    environment = {
        "FREETRAIN_RUN_DIR": str(tmp_path / "theirs"),
        "FREETRAIN_GENERATION": "7",
    }

    run = train(tmp_path / "mine", environment=environment)

    assert run.generation == 7
    assert outcome(tmp_path / "theirs", 7)["outcome"] == "finished"
    assert not (tmp_path / "mine").exists()


def test_a_generation_that_failed_before_it_began_is_not_begun_again(
    tmp_path: Path,
) -> None:
    environment = {"FREETRAIN_GENERATION": "1", "FREETRAIN_WORLD_SIZE": "4"}
    with pytest.raises(WorldMismatchError):
        train(tmp_path, environment=environment)
    assert outcome(tmp_path)["outcome"] == "failed"

    with pytest.raises(GenerationTakenError, match="has ended already"):
        train(tmp_path, environment={"FREETRAIN_GENERATION": "1"})
