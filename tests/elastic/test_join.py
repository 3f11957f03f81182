"""A fragment of one process: how it ends, what it reports, what is refused."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from freetrain import elastic
from freetrain.elastic import (
    ChangedTrainingError,
    GenerationTakenError,
    LaunchError,
    NotCommittedError,
    ProgramError,
    WorldMismatchError,
)
from tests.elastic.joining import EPOCHS, SAMPLES, ask, committed, lines, outcome, train

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("old_handlers")


def at(
    step: int, act: Callable[[elastic.Fragment], None]
) -> Callable[[elastic.Fragment, int], None]:
    """Return what calls *act* in the step of that number."""
    return lambda run, now: act(run) if now == step else None


def raising(error: BaseException) -> Callable[[elastic.Fragment], None]:
    def act(_run: elastic.Fragment) -> None:
        raise error

    return act


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
    run = train(tmp_path, at(5, lambda _run: ask(tmp_path)))

    assert not run.finished
    assert outcome(tmp_path)["outcome"] == "rescaled"
    assert outcome(tmp_path)["committed_step"] == outcome(tmp_path)["step"] == 6
    assert train(tmp_path).finished
    assert committed(tmp_path).state == {"sum": EPOCHS * sum(range(SAMPLES))}


@pytest.mark.parametrize(
    ("number", "environment"),
    [
        (signal.SIGTERM, {}),
        (signal.SIGUSR2, {}),
        (signal.SIGHUP, {"FREETRAIN_STOP_SIGNALS": "HUP"}),
    ],
)
def test_a_signal_stops_it_after_the_step(
    tmp_path: Path, number: int, environment: dict[str, str]
) -> None:
    at_fifth = at(5, lambda _run: os.kill(os.getpid(), number))

    train(tmp_path, at_fifth, environment=environment)

    assert outcome(tmp_path)["outcome"] == "rescaled"
    assert outcome(tmp_path)["committed_step"] == 6


def test_old_handlers_are_put_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)

    train(tmp_path)

    assert signal.getsignal(signal.SIGTERM) is before


def test_a_stop_at_the_very_last_step_is_a_finish(tmp_path: Path) -> None:
    train(tmp_path, at(15, lambda _run: ask(tmp_path)))

    assert outcome(tmp_path)["outcome"] == "finished"


def test_giving_up_says_why_and_is_committed(tmp_path: Path) -> None:
    train(tmp_path, at(5, lambda run: run.stop_for_good("the loss is not a number")))

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
    with pytest.raises(SystemExit):
        train(tmp_path, at(5, raising(SystemExit(code))))

    assert outcome(tmp_path)["outcome"] == "finished"
    assert outcome(tmp_path)["committed_step"] == 5


def test_an_error_is_the_outcome_and_goes_on_its_way(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        train(tmp_path, at(5, raising(ZeroDivisionError("in the model"))))

    assert outcome(tmp_path)["outcome"] == "failed"
    assert outcome(tmp_path)["message"] == "ZeroDivisionError: in the model"


def test_a_world_with_a_successor_stops_and_commits_nothing(
    tmp_path: Path,
) -> None:
    def succeed(_run: elastic.Fragment) -> None:
        (tmp_path / "generations" / "0000000002.assignment.json").touch()
        ask(tmp_path)

    train(tmp_path, at(5, succeed))

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


def test_progress_lines_say_where_training_is(tmp_path: Path) -> None:
    train(tmp_path)

    start, first, *_, last = lines(tmp_path)
    assert start["event"] == "start"
    assert first == {
        "t": first["t"],
        "step": 1,
        "samples": 3,
        "epoch": 0,
        "generation": 1,
        "world_size": 1,
        "loss": 1.0,
    }
    assert (last["step"], last["samples"], last["epoch"]) == (16, 40, 3)


def test_a_rewind_is_visible_and_time_never_runs_backwards(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        train(tmp_path, at(5, raising(ZeroDivisionError())))
    train(tmp_path)

    start = next(line for line in lines(tmp_path)[1:] if "event" in line)
    assert start["rewound_from_step"] == 5
    assert (start["step"], start["generation"]) == (0, 2)
    times = [line["t"] for line in lines(tmp_path)]
    assert times == sorted(times)


def test_values_that_are_not_finite_are_valid_json_and_flagged(tmp_path: Path) -> None:
    with elastic.join(run_dir=tmp_path, environment={}) as run:
        state = run.restore({})
        for _ in run.batches(samples=1, global_batch=1, epochs=1):
            run.end_step(state, loss=float("nan"), gap=float("-inf"), good=2.0)

    line = lines(tmp_path)[-1]
    assert (line["loss"], line["gap"], line["good"]) == (None, None, 2.0)
    assert line["nonfinite"] == {"loss": "nan", "gap": "-inf"}


def test_a_line_that_a_crash_cut_off_does_not_spoil_the_next(tmp_path: Path) -> None:
    (tmp_path / "progress.jsonl").write_text('{"t": 5, "st')

    train(tmp_path)

    torn, start, *_ = (tmp_path / "progress.jsonl").read_text().splitlines()
    assert torn == '{"t": 5, "st'
    assert json.loads(start)["event"] == "start"


def test_lines_are_throttled_but_for_the_ends_of_epochs(tmp_path: Path) -> None:
    with elastic.join(run_dir=tmp_path, environment={}, progress_every_s=1e6) as run:
        state = run.restore({})
        for _ in run.batches(samples=9, global_batch=3, epochs=2):
            run.end_step(state, loss=1.0)

    assert [line["step"] for line in lines(tmp_path)] == [0, 1, 3, 6]


def test_a_metric_with_the_name_of_a_field_is_refused(tmp_path: Path) -> None:
    with elastic.join(run_dir=tmp_path, environment={}) as run:
        state = run.restore({})
        next(run.batches(samples=9, global_batch=3, epochs=2))

        with pytest.raises(ProgramError, match="generation"):
            run.end_step(state, generation=4.0)


def test_a_full_disk_costs_progress_lines_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "progress.jsonl").symlink_to("/dev/full")

    train(tmp_path)

    assert outcome(tmp_path)["outcome"] == "finished"
    assert caplog.text.count("progress lines cannot be written") == 1


def test_where_nothing_can_be_kept_training_goes_on_and_fails_at_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "control").write_text("a file where a folder should be made")

    with pytest.raises(NotCommittedError, match="last 16 steps could not be kept"):
        train(tmp_path)

    assert "cannot be written" in caplog.text


def test_a_run_directory_that_cannot_be_read_is_not_taken_for_an_empty_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "checkpoints").write_text("a file where a folder should be")

    with pytest.raises(LaunchError, match="cannot be read"):
        train(tmp_path)
