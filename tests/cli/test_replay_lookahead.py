"""``freetrain replay --forecaster`` and ``--topology``: how lookahead predicts."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from freetrain.lookahead.base import FORECASTERS
from tests.cli.commands import TRAINERS, refused, run, run_json, summary

REPLAY = ("replay", "holes.csv", "--trainers", "trainers.toml", "--requeue")
BOTH = ("--policy", "freetrain", "--policy", "lookahead")
TWO = ("--forecaster", "life-table", "--forecaster", "learned")


@pytest.fixture(autouse=True)
def files() -> None:
    write_holes(f"n{k % 4},{700 * k},{700 * k + 650}" for k in range(40))
    Path("trainers.toml").write_text(TRAINERS)


def write_holes(rows: Iterable[str]) -> None:
    text = "\n".join(["node,idle_start_s,idle_end_s", *rows])
    Path("holes.csv").write_text(f"{text}\n")


def replayed(*words: str) -> Any:  # noqa: ANN401 - JSON
    return run_json(*REPLAY, *BOTH, *words)


@pytest.mark.parametrize("name", FORECASTERS)
def test_each_forecaster_can_be_tried_by_its_name(name: str) -> None:
    published, ours = replayed("--forecaster", name)

    assert (published["forecaster"], ours["forecaster"]) == (None, name)
    assert ours["forecasts"]["reliability"]


def test_another_forecaster_predicts_otherwise() -> None:
    usual, same, other = (
        replayed(*words)[1]["forecasts"]["reliability"]
        for words in ((), ("--forecaster", "learned"), ("--forecaster", "life-table"))
    )

    assert usual == same != other


def test_the_table_and_the_report_name_an_unusual_forecaster() -> None:
    words = ("--forecaster", "life-table")
    shown = run(*REPLAY, *BOTH, *words)
    ran = run(*REPLAY, *BOTH, *words, "--out", "report")

    assert ran.code == 0, ran.stderr
    assert "life-table" in shown.stdout
    found = summary("report")
    assert "--forecaster life-table" in found["command"]
    assert [each["forecaster"] for each in found["policies"]] == [None, "life-table"]
    assert "lookahead life-table" in Path("report/report.html").read_text()


def test_the_usual_forecaster_is_not_named_in_the_table() -> None:
    assert "learned" not in run(*REPLAY, *BOTH).stdout


def test_forecasters_are_compared_as_policies_are() -> None:
    alone = [replayed("--forecaster", name)[1] for name in TWO[1::2]]
    both = replayed(*TWO, *TWO[:2])
    rows = run(*REPLAY, *BOTH, *TWO).stdout.splitlines()

    assert [each["forecaster"] for each in both] == [None, "life-table", "learned"]
    assert [each["samples"] for each in both[1:]] == [each["samples"] for each in alone]
    shown = [row.split(":")[0] for row in rows if row.startswith("lookahead")]
    assert shown == ["lookahead life-table", "lookahead"]


def test_forecasters_and_priorities_are_combined_and_named_in_the_command() -> None:
    asked = ("--policy", "lookahead", "--priority", "fair", "--priority", "speedup")

    ran = run(*REPLAY, *asked, *TWO, "--out", "report")

    assert ran.code == 0, ran.stderr
    assert " ".join(TWO) in summary("report")["command"]
    lines = Path("report/completions.csv").read_text().splitlines()
    assert {line.split(",")[0] for line in lines[1:]} == {
        "lookahead life-table fair",
        "lookahead fair",
        "lookahead life-table speedup",
        "lookahead speedup",
    }


RACKS = [f"SwitchName=rack{k} Nodes=n[{4 * k}-{4 * k + 3}]\n" for k in range(10)]
CONF = f"""\
# Ten racks of four, as an administrator writes them
{"".join(RACKS)}
SwitchName=spine Switches=rack[0-9]  # the old one
"""
ALONE = "".join(f"SwitchName=s{k} Nodes=n{k}\n" for k in range(40))
TIMES = ("wall_s", "load_s", "replay_s", "solver_s")
LOOKAHEAD = (*REPLAY, "--policy", "lookahead")


def test_nodes_below_one_switch_are_forecast_together() -> None:
    # Each rack is idle once, alone, and leaves whole.
    write_holes(
        f"n{4 * rack + k},{3_000 * rack},{3_000 * rack + 2_000}"
        for rack in range(10)
        for k in range(4)
    )
    Path("racks").write_text(CONF)
    Path("alone").write_text(ALONE)
    words = ((), ("--topology", "racks"), ("--topology", "alone"))

    records = [run_json(*LOOKAHEAD, *asked)[0] for asked in words]
    plain, racks, alone = (
        {name: value for name, value in record.items() if name not in TIMES}
        for record in records
    )

    assert alone == plain
    assert racks["forecasts"] != plain["forecasts"]
    assert run(*LOOKAHEAD, *words[1], "--out", "report").code == 0
    assert "--topology racks" in summary("report")["command"]


@pytest.mark.parametrize(
    ("text", "said", "code"),
    [
        (None, "cannot read racks: No such file", 66),
        ("SwitchName=s0 Nodes=n[1-\n", "racks is no topology", 65),
        ("<html>\n", "racks is no topology: expected SwitchName=", 65),
        ("SwitchName=s0 Nodes=m[1-9]\n", "racks names no node of the log, whose f", 65),
        ("", "racks names no node of the log", 65),
    ],
)
def test_what_is_no_topology_of_that_machine_is_refused(
    text: str | None, said: str, code: int
) -> None:
    if text is not None:
        Path("racks").write_text(text)

    assert said in refused(*LOOKAHEAD, "--topology", "racks", code=code)
