"""``freetrain replay --forecaster``: looking ahead by somebody else's word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from freetrain.lookahead.base import FORECASTERS
from tests.cli.commands import TRAINERS, run

REPLAY = ("replay", "holes.csv", "--trainers", "trainers.toml", "--requeue")
BOTH = ("--policy", "freetrain", "--policy", "lookahead")


@pytest.fixture(autouse=True)
def files() -> None:
    rows = [f"n{k % 4},{700 * k},{700 * k + 650}" for k in range(40)]
    text = "\n".join(["node,idle_start_s,idle_end_s", *rows])
    Path("holes.csv").write_text(f"{text}\n")
    Path("trainers.toml").write_text(TRAINERS)


def replayed(*words: str) -> list[dict[str, Any]]:
    ran = run(*REPLAY, *BOTH, *words, "--json")
    assert ran.code == 0, ran.stderr
    found: list[dict[str, Any]] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize("name", FORECASTERS)
def test_each_forecaster_can_be_tried_by_its_name(name: str) -> None:
    published, ours = replayed("--forecaster", name)

    assert (published["forecaster"], ours["forecaster"]) == (None, name)
    assert ours["forecasts"]["reliability"]


def test_another_forecaster_says_something_else() -> None:
    usual, same, other = (
        replayed(*words)[1]["forecasts"]["reliability"]
        for words in ((), ("--forecaster", "learned"), ("--forecaster", "life-table"))
    )

    assert usual == same != other


def test_the_table_and_the_report_name_an_unusual_forecaster(tmp_path: Path) -> None:
    words = ("--forecaster", "life-table")
    shown = run(*REPLAY, *BOTH, *words)
    ran = run(*REPLAY, *BOTH, *words, "--out", "report")

    assert ran.code == 0, ran.stderr
    assert "life-table" in shown.stdout
    told = json.loads((tmp_path / "report" / "summary.json").read_text())
    assert "--forecaster life-table" in told["command"]
    assert [one["forecaster"] for one in told["policies"]] == [None, "life-table"]
    assert "lookahead life-table" in (tmp_path / "report" / "report.html").read_text()


def test_the_usual_forecaster_is_not_named_in_the_table() -> None:
    assert "learned" not in run(*REPLAY, *BOTH).stdout


def test_forecasters_are_compared_as_policies_are() -> None:
    words = ("--forecaster", "life-table", "--forecaster", "learned")
    alone = [replayed("--forecaster", name)[1] for name in words[1::2]]
    both = replayed(*words, *words[:2])

    assert [one["forecaster"] for one in both] == [None, "life-table", "learned"]
    assert [one["samples"] for one in both[1:]] == [one["samples"] for one in alone]


def test_each_of_several_forecasters_has_a_row_of_its_own() -> None:
    words = ("--forecaster", "life-table", "--forecaster", "learned")
    rows = run(*REPLAY, *BOTH, *words).stdout.splitlines()

    told = [row.split(":")[0] for row in rows if row.startswith("lookahead")]
    assert told == ["lookahead life-table", "lookahead"]


def test_a_command_that_compares_forecasters_names_them_all(tmp_path: Path) -> None:
    words = ("--forecaster", "life-table", "--forecaster", "learned")
    run(*REPLAY, *BOTH, *words, "--out", "report")

    told = json.loads((tmp_path / "report" / "summary.json").read_text())
    assert " ".join(words) in told["command"]


def test_priorities_of_several_forecasters_are_told_apart(tmp_path: Path) -> None:
    words = ("--forecaster", "life-table", "--forecaster", "learned")
    asked = ("--policy", "lookahead", "--priority", "fair", "--priority", "speedup")
    ran = run(*REPLAY, *asked, *words, "--out", "report")

    assert ran.code == 0, ran.stderr
    lines = (tmp_path / "report" / "completions.csv").read_text().splitlines()
    assert {line.split(",")[0] for line in lines[1:]} == {
        "lookahead life-table fair",
        "lookahead fair",
        "lookahead life-table speedup",
        "lookahead speedup",
    }
