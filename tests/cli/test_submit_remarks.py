"""What may be a mistake in a job file is told on submit, and refuses nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.desk_files import JOB, at_home, run_json

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("work", "fields", "is_told"),
    [
        ("samples = 9", 'step = "s"', False),
        ("samples = 9", 'samples = "s"', True),
        ("epochs = 9", 'step = "s"', False),
        ("epochs = 9", 'epoch = "s"', True),
        ('time_limit = "1h"', 'step = "s"', True),
    ],
)
def test_work_that_nobody_can_count_is_told_of(
    tmp_path: Path, work: str, fields: str, *, is_told: bool
) -> None:
    told = f'[progress]\nformat = "csv"\nfile = "m.csv"\nfields = {{ {fields} }}\n'
    at_home(tmp_path, f"elastic = false\n{JOB}[work]\n{work}\n{told}")

    remarks = run_json("submit", "job.toml", "--dry-run", cwd=tmp_path)["remarks"]

    said = f"[work] {work.partition(' ')[0]} ends nothing"
    assert any(one.startswith(said) for one in remarks) != is_told


@pytest.mark.parametrize(
    ("deadline", "is_told"),
    [
        ("2020-01-01T00:00:00Z", True),
        ("2020-01-01T01:00:00+01:00", True),
        ("2999-01-01T00:00:00Z", False),
        ('"1s"', False),
    ],
)
def test_a_deadline_that_is_past_is_told_of_and_not_refused(
    tmp_path: Path, deadline: str, *, is_told: bool
) -> None:
    at_home(tmp_path, f"deadline = {deadline}\n{JOB}")

    shown = run_json("submit", "job.toml", cwd=tmp_path)

    assert shown["began"] == "new"
    said = "the deadline 2020-01-01T"
    assert any(one.startswith(said) for one in shown["remarks"]) == is_told
