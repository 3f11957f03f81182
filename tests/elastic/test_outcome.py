"""How a fragment ended, written and read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from freetrain.elastic.contract import Ending, Outcome, read_outcome, write_outcome
from freetrain.elastic.files import RunDir

if TYPE_CHECKING:
    from pathlib import Path


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
