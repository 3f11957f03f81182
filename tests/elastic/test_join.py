"""A fragment of one process: how it ends, its progress lines, refused programs."""

import json
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

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
from freetrain.elastic.checkpoint import CheckpointStore
from freetrain.elastic.files import Clock, RunDir

Act = Callable[[elastic.Fragment], object]

pytestmark = pytest.mark.usefixtures("old_handlers")

NUMBERS = {"samples": 10, "global_batch": 3, "epochs": 4}
STEPS = 16
SUM = 4 * sum(range(10))


class Ticking:
    """A clock that goes on by a tenth of a second whenever it is read."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def read(self) -> float:
        self.now_s += 0.1
        return self.now_s


def train(
    folder: Path,
    act: Act = lambda _run: None,
    *,
    step: int = 5,
    environment: dict[str, str] | None = None,
    changes: dict[str, int] | None = None,
) -> elastic.Fragment:
    """Train to the end or to a stop; *act* in the step of that number."""
    tick = Ticking()
    with elastic.join(
        run_dir=folder,
        progress_every_s=0,
        environment=environment or {},
        clock=Clock(unix_s=tick.read, elapsed_s=tick.read),
    ) as run:
        state = run.restore({"sum": 0})
        for batch in run.batches(**NUMBERS | (changes or {})):
            if batch.step == step:
                act(run)
            state["sum"] += int(batch.indices.sum())
            run.end_step(state, loss=1 / (batch.step + 1))
    return run


def raising(error: BaseException) -> Act:
    def act(_run: elastic.Fragment) -> None:
        raise error

    return act


def ask(run: elastic.Fragment) -> None:
    RunDir(run.run_dir).stop_request(1).touch()


def succeed(run: elastic.Fragment) -> None:
    (run.run_dir / "generations" / "0000000002.assignment.json").touch()
    ask(run)


def lines(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "progress.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def outcome(folder: Path, generation: int = 1) -> tuple[str, int, str]:
    """The ending, the committed step, the message."""
    found = json.loads(RunDir(folder).outcome(generation).read_text())
    return found["outcome"], found["committed_step"], found["message"]


def committed(folder: Path) -> elastic.Checkpoint:
    newest = max((folder / "checkpoints").glob("*.npz"))
    return elastic.read_checkpoint(newest.read_bytes())


def test_a_training_left_alone_finishes_and_does_nothing_when_started_again(
    tmp_path: Path,
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert train(tmp_path).finished
    assert train(tmp_path).generation == 2

    assert outcome(tmp_path) == outcome(tmp_path, 2) == ("finished", STEPS, "")
    assert committed(tmp_path).generation == 1
    assert committed(tmp_path).state == {"sum": SUM}
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_finished_training_goes_on_with_more_epochs(tmp_path: Path) -> None:
    train(tmp_path)

    train(tmp_path, changes={"epochs": 5})

    assert committed(tmp_path).state == {"sum": SUM * 5 // 4}


@pytest.mark.parametrize(
    ("act", "step", "expected"),
    [
        pytest.param(ask, 5, ("rescaled", 6, ""), id="a stop file"),
        pytest.param(ask, 15, ("finished", STEPS, ""), id="a stop in the last step"),
        pytest.param(
            succeed,
            5,
            ("superseded", 0, "the last 6 steps were not committed"),
            id="a successor, so that nothing may be committed",
        ),
        pytest.param(
            lambda run: run.stop_for_good("nan"),
            5,
            ("do not restart", 6, "nan"),
            id="giving up",
        ),
        pytest.param(
            lambda run: run.stop_for_good(""),
            5,
            ("do not restart", 6, "no reason given"),
            id="giving up without a reason",
        ),
    ],
)
def test_it_stops_after_the_step_with_an_outcome(
    tmp_path: Path, act: Act, step: int, expected: tuple[str, int, str]
) -> None:
    run = train(tmp_path, act, step=step)

    assert run.finished == (expected[0] == "finished")
    assert outcome(tmp_path) == expected
    assert len(list((tmp_path / "checkpoints").iterdir())) == bool(expected[1])
    if expected[0] == "rescaled":
        assert train(tmp_path).finished
        assert committed(tmp_path).state == {"sum": SUM}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (SystemExit(0), ("finished", 5, "")),
        (SystemExit(None), ("finished", 5, "")),
        (SystemExit(3), ("failed", 0, "SystemExit: 3")),
        (ZeroDivisionError("x"), ("failed", 0, "ZeroDivisionError: x")),
    ],
)
def test_leaving_with_exit_code_0_finishes_and_any_other_error_is_a_failure(
    tmp_path: Path, error: BaseException, expected: tuple[str, int, str]
) -> None:
    with pytest.raises(type(error)):
        train(tmp_path, raising(error))

    assert outcome(tmp_path) == expected


def test_an_evaluation_is_left_with_the_last_step_committed(tmp_path: Path) -> None:
    evaluated = []

    def evaluate(run: elastic.Fragment) -> None:
        ask(run)
        for batch in range(100):
            if run.poll():
                return
            evaluated.append(batch)

    train(tmp_path, evaluate)

    # Asked to stop, it evaluates no further; the step that had begun is ended.
    assert len(evaluated) < 3
    assert outcome(tmp_path) == ("rescaled", 6, "")


def test_an_evaluation_does_not_put_off_a_commit(tmp_path: Path) -> None:
    seen = []

    def evaluate(run: elastic.Fragment) -> None:
        for _ in range(1000):  # of a clock's tenths of a second
            assert not run.poll()
        seen.append(committed(tmp_path))

    train(tmp_path, evaluate)

    assert [checkpoint.position.step for checkpoint in seen] == [5]


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
    train(tmp_path, lambda _run: os.kill(os.getpid(), number), environment=environment)

    assert outcome(tmp_path) == ("rescaled", 6, "")


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


def no_restore(run: elastic.Fragment) -> None:
    next(run.batches(**NUMBERS))


def no_end(run: elastic.Fragment) -> None:
    run.restore({})
    batches = run.batches(**NUMBERS)
    next(batches)
    next(batches)


def ends_twice(run: elastic.Fragment) -> None:
    state = run.restore({})
    next(run.batches(**NUMBERS))
    run.end_step(state)
    run.end_step(state)


def takes_a_name(run: elastic.Fragment) -> None:
    state = run.restore({})
    next(run.batches(**NUMBERS))
    run.end_step(state, generation=4.0)


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (no_restore, "restore"),
        (no_end, "step 0 was not ended"),
        (ends_twice, "once"),
        (takes_a_name, "generation"),
    ],
)
def test_a_wrong_loop_is_refused(tmp_path: Path, program: Act, why: str) -> None:
    with (
        elastic.join(run_dir=tmp_path, environment={}) as run,
        pytest.raises(ProgramError, match=why),
    ):
        program(run)


def test_a_state_may_be_a_function_called_only_for_commits(tmp_path: Path) -> None:
    calls = []

    def state() -> dict[str, Any]:
        calls.append(1)
        return {"weights": np.ones(2)}

    with elastic.join(run_dir=tmp_path, environment={}, commit_every_s=1e6) as run:
        run.restore({})
        for _ in run.batches(**NUMBERS):
            run.end_step(state)

    assert len(calls) == 1
    assert committed(tmp_path).state["weights"].tolist() == [1, 1]


def test_a_state_that_a_thread_saves_is_committed_once_it_is_saved(
    tmp_path: Path,
) -> None:
    begun: list[Future[dict[str, int]]] = []
    seen: list[tuple[int, int]] = []

    def save() -> Future[dict[str, int]]:
        assert all(future.done() for future in begun)
        begun.append(Future())
        if len(begun) > 1:  # a thread's, which the end must wait for
            threading.Timer(0.2, begun[-1].set_result, [{"number": 2}]).start()
        return begun[-1]

    tick = Ticking()
    with elastic.join(
        run_dir=tmp_path,
        commit_every_s=0,
        environment={},
        clock=Clock(unix_s=tick.read, elapsed_s=tick.read),
    ) as run:
        run.restore({})
        for batch in run.batches(**NUMBERS):
            if batch.step == 5:
                begun[0].set_result({"number": 1})
            run.end_step(save)
            if batch.step < 6:
                seen.append((len(begun), run.committed_step))

    # Steps go on meanwhile; what is committed is the step at which it began.
    assert seen == [(1, 0)] * 5 + [(2, 1)]
    assert committed(tmp_path).position.step == STEPS
    assert committed(tmp_path).state == {"number": 2}


def test_a_program_that_breaks_off_is_finished(tmp_path: Path) -> None:
    with elastic.join(run_dir=tmp_path, environment={}) as run:
        state = run.restore({})
        for _ in run.batches(**NUMBERS):
            run.end_step(state)
            break

    assert outcome(tmp_path) == ("finished", 1, "")


def test_the_launcher_s_variables_override_the_program_s_arguments(
    tmp_path: Path,
) -> None:
    environment = {
        "FREETRAIN_RUN_DIR": str(tmp_path / "theirs"),
        "FREETRAIN_GENERATION": "7",
        "FREETRAIN_COMMIT_EVERY_S": "0",
        "FREETRAIN_PROGRESS_EVERY_S": "1000",
    }

    run = train(tmp_path / "mine", environment=environment)

    assert run.generation == 7
    assert outcome(tmp_path / "theirs", 7)[0] == "finished"
    assert not (tmp_path / "mine").exists()
    assert len(list((tmp_path / "theirs" / "checkpoints").iterdir())) == 2
    steps = [line["step"] for line in lines(tmp_path / "theirs")]
    assert steps == [0, 1, 4, 8, 12, 16]


def test_a_generation_that_failed_before_it_began_is_not_begun_again(
    tmp_path: Path,
) -> None:
    environment = {"FREETRAIN_GENERATION": "1"}
    with pytest.raises(WorldMismatchError):
        train(tmp_path, environment=environment | {"FREETRAIN_WORLD_SIZE": "4"})
    assert outcome(tmp_path)[0] == "failed"

    with pytest.raises(GenerationTakenError, match="has ended already"):
        train(tmp_path, environment=environment)


def test_a_generation_that_another_world_runs_is_left_to_it(tmp_path: Path) -> None:
    CheckpointStore(RunDir(tmp_path), generation=1).claim()

    with pytest.raises(GenerationTakenError, match="was started before"):
        train(tmp_path, environment={"FREETRAIN_GENERATION": "1"})

    assert not RunDir(tmp_path).outcome(1).exists()


def test_progress_lines_tell_where_training_is(tmp_path: Path) -> None:
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


def test_what_is_measured_after_a_step_is_told_with_it(tmp_path: Path) -> None:
    train(tmp_path, lambda run: run.report(accuracy=0.5), step=4)

    (line,) = [line for line in lines(tmp_path) if "accuracy" in line]
    last = next(line for line in lines(tmp_path) if line["step"] == 4)
    assert line["accuracy"] == 0.5
    assert {n: line[n] for n in ("step", "samples", "epoch", "generation")} == {
        n: last[n] for n in ("step", "samples", "epoch", "generation")
    }
    with pytest.raises(ProgramError, match="names"):
        train(tmp_path / "other", lambda run: run.report(samples=1))


def test_a_rewind_is_visible_and_time_never_runs_backwards(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        train(tmp_path, raising(ZeroDivisionError()))
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


def test_a_full_disk_costs_progress_lines_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "progress.jsonl").symlink_to("/dev/full")

    train(tmp_path)

    assert outcome(tmp_path)[0] == "finished"
    assert caplog.text.count("progress lines cannot be written") == 1


@pytest.mark.parametrize(
    ("name", "error", "why"),
    [
        ("control", NotCommittedError, "last 16 steps could not be kept"),
        ("checkpoints", LaunchError, "cannot be read"),
    ],
    ids=["it goes on and fails at its end", "it is not taken for an empty one"],
)
def test_where_the_run_directory_cannot_be_used(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    error: type[Exception],
    why: str,
) -> None:
    (tmp_path / name).write_text("a file where a folder should be")

    with pytest.raises(error, match=why):
        train(tmp_path)

    assert "cannot be written" in caplog.text
