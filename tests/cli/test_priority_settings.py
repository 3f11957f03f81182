"""``--set NAME=VALUE``: settings of priorities, and what is refused."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import run, written

REPLAY = ("replay", "holes.csv", "--trainers", "trainers.toml", "--policy", "freetrain")
SWEEP = ("replay", "--pool", "4", "--trainers", "quality:2", "--seeds", "1")


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    written(tmp_path)


def test_each_priority_has_the_settings_that_are_its_own(tmp_path: Path) -> None:
    words = ("--priority", "slaq", "--priority", "fair", "--priority", "throughput")
    given = ("--set", "horizon_s=600", "--set", "hysteresis=0")

    ran = run(*REPLAY, *words, *given, "--json", cwd=tmp_path)

    assert [r["priority_settings"] for r in json.loads(ran.stdout)] == [
        {"horizon_s": 600, "hysteresis": 0},
        {"hysteresis": 0},
        {"hysteresis": 0},
    ]


def test_a_setting_changes_what_is_replayed(tmp_path: Path) -> None:
    drawn = ("replay", "--pool", "4", "--trainers", "quality:5", *REPLAY[-2:])

    def rescales(*words: str) -> int:
        ran = run(*drawn, "--priority", "fair", *words, "--json", cwd=tmp_path)
        return int(json.loads(ran.stdout)[0]["rescales"])

    assert rescales() == rescales("--set", "hysteresis=0.05")
    assert rescales() > rescales("--set", "hysteresis=50")


def test_the_command_of_a_report_asks_for_the_same_settings(tmp_path: Path) -> None:
    words = ("--priority", "slaq", "--set", "horizon_s=6e2", "--out", "out")
    assert run(*REPLAY, *words, cwd=tmp_path).code == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert "--priority slaq --set horizon_s=600 " in summary["command"]


def test_the_yardstick_goes_without_settings_where_it_goes_without_the_priority(
    tmp_path: Path,
) -> None:
    words = ("--priority", "slaq", "--set", "horizon_s=600", "--policy", "static")
    (_, static) = json.loads(run(*REPLAY, *words, "--json", cwd=tmp_path).stdout)
    assert (static["priority"], static["priority_settings"]) == ("throughput", {})


def test_a_sweep_says_which_settings_were_given_and_where_its_seeds_began(
    tmp_path: Path,
) -> None:
    words = ("--priority", "slaq", "--set", "horizon_s=600", "--seed", "7", "--json")
    (score,) = json.loads(run(*SWEEP, *words, cwd=tmp_path).stdout)
    assert (score["settings"], score["seed"]) == ({"horizon_s": 600}, 7)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--set horizon_s", "--set horizon_s: expected NAME=VALUE with a finite"),
        ("--set horizon_s=soon", "--set horizon_s=soon: expected NAME=VALUE"),
        ("--set horizon_s=nan", "expected NAME=VALUE with a finite number"),
        ("--set =6", "--set =6: expected NAME=VALUE"),
        ("--set mu=1 --set mu=2", "--set mu is given twice, as 1 and 2."),
        ("--set horizon_s=-1", "horizon_s -1 is not 0 or more"),
        (
            "--set horizon=6",
            "They have horizon_s, hysteresis, turn_s. Did you mean 'horizon_s'?",
        ),
        (
            "--set threshold=1",
            "have horizon_s, hysteresis, turn_s. It is one of specon.",
        ),
    ],
)
@pytest.mark.parametrize("verb", [REPLAY, SWEEP])
def test_settings_that_make_no_sense_are_refused(
    tmp_path: Path, verb: tuple[str, ...], words: str, said: str
) -> None:
    ran = run(
        *verb, "--priority", "slaq", "--against", "fair", *words.split(), cwd=tmp_path
    )

    assert ran.code == 64
    assert said in ran.stderr
    assert "Nothing was replayed." in ran.stderr
    assert ran.stdout == ""


@pytest.mark.parametrize(
    ("option", "name"), [("--priority", "fair"), ("--policy", "equal")]
)
def test_a_second_name_after_an_option_is_not_read_as_a_log(
    tmp_path: Path, option: str, name: str
) -> None:
    words = ("replay", option, "static", name, "--pool", "4")

    ran = run(*words, cwd=tmp_path)

    assert ran.code == 64
    assert f"{name!r} stands where the log does" in ran.stderr
    assert f"write {option} {name}: the option takes" in ran.stderr


def test_a_log_may_be_called_as_a_priority_is(tmp_path: Path) -> None:
    (tmp_path / "fair").write_bytes((tmp_path / "holes.csv").read_bytes())
    assert run("replay", "fair", *REPLAY[2:], cwd=tmp_path).code == 0
