"""``--set NAME=VALUE``: settings of priorities, and what is refused."""

import json
from pathlib import Path

import pytest

from tests.cli.commands import run, run_json, summary, written

REPLAY = ("replay", "holes.csv", "--trainers", "trainers.toml", "--policy", "freetrain")
SWEEP = ("replay", "--pool", "4", "--trainers", "quality:2", "--seeds", "1")


@pytest.fixture(autouse=True)
def files() -> None:
    written()


def test_each_priority_has_the_settings_that_are_its_own() -> None:
    words = ("--priority", "slaq", "--priority", "fair", "--priority", "throughput")
    given = ("--set", "horizon_s=600", "--set", "hysteresis=0")

    ran = run(*REPLAY, *words, *given, "--json")

    assert [r["priority_settings"] for r in json.loads(ran.stdout)] == [
        {"horizon_s": 600, "hysteresis": 0},
        {"hysteresis": 0},
        {"hysteresis": 0},
    ]


def test_a_setting_changes_what_is_replayed() -> None:
    drawn = ("replay", "--pool", "4", "--trainers", "quality:5", *REPLAY[-2:])

    def rescales(*words: str) -> int:
        ran = run(*drawn, "--priority", "fair", *words, "--json")
        return int(json.loads(ran.stdout)[0]["rescales"])

    assert rescales() == rescales("--set", "hysteresis=0.05")
    assert rescales() > rescales("--set", "hysteresis=50")


def test_the_command_of_a_report_asks_for_the_same_settings() -> None:
    words = ("--priority", "slaq", "--set", "horizon_s=6e2", "--out", "out")
    assert run(*REPLAY, *words).code == 0
    assert "--priority slaq --set horizon_s=600 " in summary("out")["command"]


def test_the_yardstick_goes_without_settings_where_it_goes_without_the_priority() -> (
    None
):
    words = ("--priority", "slaq", "--set", "horizon_s=600", "--policy", "static")
    (_, static) = run_json(*REPLAY, *words)
    assert (static["priority"], static["priority_settings"]) == ("throughput", {})


def test_a_sweep_says_which_settings_were_given_and_where_its_seeds_began() -> None:
    words = ("--priority", "slaq", "--set", "horizon_s=600", "--seed", "7", "--json")
    (score,) = json.loads(run(*SWEEP, *words).stdout)
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
    verb: tuple[str, ...], words: str, said: str
) -> None:
    ran = run(*verb, "--priority", "slaq", "--against", "fair", *words.split())

    assert ran.code == 64
    assert said in ran.stderr
    assert "Nothing was replayed." in ran.stderr
    assert ran.stdout == ""


@pytest.mark.parametrize(
    ("option", "name"), [("--priority", "fair"), ("--policy", "equal")]
)
def test_a_second_name_after_an_option_is_not_read_as_a_log(
    option: str, name: str
) -> None:
    words = ("replay", option, "static", name, "--pool", "4")

    ran = run(*words)

    assert ran.code == 64
    assert f"{name!r} stands where the log does" in ran.stderr
    assert f"write {option} {name}: the option takes" in ran.stderr


def test_a_log_may_be_called_as_a_priority_is() -> None:
    Path("fair").write_bytes(Path("holes.csv").read_bytes())
    assert run("replay", "fair", *REPLAY[2:]).code == 0
