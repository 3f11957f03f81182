"""What the context of a process tells of progress, and what faults make of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from freetrain import elastic
from freetrain.elastic import LaunchError, NotCommittedError, ProgramError
from tests.elastic.joining import lines, outcome, train

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("old_handlers")


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
    def at_step(_run: elastic.Fragment, step: int) -> None:
        if step == 5:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(tmp_path, at_step)
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
