"""``freetrain replay --forecaster``: looking ahead by somebody else's word."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from freetrain.forecast.registry import FORECASTERS
from tests.cli.worlds import TRAINERS, run

if TYPE_CHECKING:
    from pathlib import Path

REPLAY = ("replay", "holes.csv", "--trainers", "trainers.toml", "--requeue")
BOTH = ("--policy", "freetrain", "--policy", "lookahead")


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    rows = [f"n{k % 4},{700 * k},{700 * k + 650}" for k in range(40)]
    text = "\n".join(["node,idle_start_s,idle_end_s", *rows])
    (tmp_path / "holes.csv").write_text(f"{text}\n")
    (tmp_path / "trainers.toml").write_text(TRAINERS)


def replayed(tmp_path: Path, *words: str) -> list[dict[str, Any]]:
    ran = run(*REPLAY, *BOTH, *words, "--json", cwd=tmp_path)
    assert ran.code == 0, ran.stderr
    found: list[dict[str, Any]] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize("name", FORECASTERS)
def test_each_forecaster_can_be_tried_by_its_name(tmp_path: Path, name: str) -> None:
    published, ours = replayed(tmp_path, "--forecaster", name)

    assert (published["forecaster"], ours["forecaster"]) == (None, name)
    assert ours["forecasts"]["reliability"]


def test_another_forecaster_says_something_else(tmp_path: Path) -> None:
    usual, same, other = (
        replayed(tmp_path, *words)[1]["forecasts"]["reliability"]
        for words in ((), ("--forecaster", "learned"), ("--forecaster", "life-table"))
    )

    assert usual == same != other


def test_the_table_and_the_report_name_an_unusual_forecaster(tmp_path: Path) -> None:
    words = ("--forecaster", "life-table")
    shown = run(*REPLAY, *BOTH, *words, cwd=tmp_path)
    ran = run(*REPLAY, *BOTH, *words, "--out", "report", cwd=tmp_path)

    assert ran.code == 0, ran.stderr
    assert "life-table" in shown.stdout
    told = json.loads((tmp_path / "report" / "summary.json").read_text())
    assert "--forecaster life-table" in told["command"]
    assert [one["forecaster"] for one in told["policies"]] == [None, "life-table"]
    assert "lookahead life-table" in (tmp_path / "report" / "report.html").read_text()


def test_the_usual_forecaster_is_not_named_in_the_table(tmp_path: Path) -> None:
    assert "learned" not in run(*REPLAY, *BOTH, cwd=tmp_path).stdout
