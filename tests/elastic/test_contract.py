"""What launcher and program tell each other: variables, and outcomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from freetrain.elastic import LaunchError
from freetrain.elastic.contract import (
    Ending,
    Launch,
    Outcome,
    read_launch,
    read_outcome,
    write_outcome,
)
from freetrain.elastic.files import RunDir


@pytest.mark.parametrize("ending", Ending)
def test_what_was_written_is_read(tmp_path: Path, ending: Ending) -> None:
    run = RunDir(tmp_path)
    outcome = Outcome(ending, 3, step=7, committed_step=5, message="why", t=12.5)

    assert write_outcome(run, outcome)

    assert read_outcome(run, 3) == outcome
    assert read_outcome(run, 4) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"outcome": "well"}', "\0"])
def test_what_is_no_outcome_is_none(tmp_path: Path, text: str) -> None:
    run = RunDir(tmp_path)
    run.create()
    run.outcome(1).write_text(text)

    assert read_outcome(run, 1) is None


def test_what_another_program_leaves_out_is_nothing(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.create()
    run.outcome(1).write_text('{"outcome": "finished"}')

    said = read_outcome(run, 1)

    assert said == Outcome(Ending.FINISHED, 1, 0, 0, message="", t=0.0)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("FREETRAIN_GENERATION", "0", "whole number"),
        ("FREETRAIN_GENERATION", "7; rm", "whole number"),
        ("FREETRAIN_GENERATION", "9" * 5000, "whole number"),
        ("FREETRAIN_WORLD_SIZE", "-1", "whole number"),
        ("FREETRAIN_COMMIT_EVERY_S", "nan", "seconds"),
        ("FREETRAIN_STOP_SIGNALS", "TERM,USR1", "NCCL"),
        ("FREETRAIN_STOP_SIGNALS", "SIGKILL", "NCCL uses it"),
        ("FREETRAIN_STOP_SIGNALS", "TERM,,", "names such as"),
    ],
)
def test_a_variable_that_makes_no_sense_is_refused_by_name(
    name: str, text: str, why: str
) -> None:
    with pytest.raises(LaunchError, match=f"{name}.*{why}"):
        read_launch({name: text})


def test_a_launch_without_variables_leaves_everything_to_the_program() -> None:
    assert read_launch({}) == Launch()
    assert read_launch({"FREETRAIN_RUN_DIR": "/runs/a"}).run_dir == Path("/runs/a")


@pytest.mark.parametrize(
    "environment",
    [
        {"FREETRAIN_AFTER": "1"},
        {"FREETRAIN_AFTER": "2", "FREETRAIN_GENERATION": "2"},
        {"FREETRAIN_AFTER": "x", "FREETRAIN_GENERATION": "2"},
    ],
)
def test_it_may_wait_for_an_earlier_generation_only(
    environment: dict[str, str],
) -> None:
    with pytest.raises(LaunchError, match="FREETRAIN_AFTER"):
        read_launch(environment)
