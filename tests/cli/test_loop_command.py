"""``freetrain replay --in-the-loop``: what it prints, and when it refuses."""

import json
from pathlib import Path

import pytest

from freetrain.replay.settings import IN_THE_LOOP
from tests.cli.commands import JOBS, run, written

LOOP = (
    *("replay", "jobs.csv", "--trainers", "trainers.toml", "--parallel", "2"),
    *("--schedule", "slurm", "--in-the-loop", "preempt"),
)


@pytest.fixture(autouse=True)
def files() -> None:
    written()
    Path("jobs.csv").write_text(JOBS)


def test_json_tells_the_replay_its_holes_and_the_harm() -> None:
    ran = run(*LOOP, "--policy", "freetrain", "--json")

    (record,) = json.loads(ran.stdout)
    assert (ran.code, ran.stderr) == (0, "")
    assert record["policy"] == "freetrain"
    assert record["loop"]["mode"] == "preempt"
    assert record["loop"]["knows_plans"] is True
    assert record["holes"]["long_use"] is None or 0 <= record["holes"]["long_use"] <= 1
    assert record["harm"]["waited_most_s"] <= 5.0
    assert record["wall_s"] == record["load_s"] + record["replay_s"]


def test_json_tells_what_was_foretold_and_promised() -> None:
    words = ("--policy", "lookahead", "--policy", "equal", "--json")

    ours, other = json.loads(run(*LOOP, *words).stdout)

    assert ours["forecasts"].keys() >= {"reliability", "promises"}
    assert "forecasts" not in other


def test_out_writes_what_was_foretold_and_the_same_bytes_twice(tmp_path: Path) -> None:
    words = ("--policy", "lookahead", "--policy", "equal", "--out")

    first = run(*LOOP, *words, "first")
    again = run(*LOOP, *words, "again")

    assert (first.code, again.code) == (0, 0)
    assert first.stdout.endswith("Forecasts: first/forecast.html\n")
    files = {path.name for path in (tmp_path / "first").iterdir()}
    assert files >= {"summary.json", "forecast.html"}
    for name in files:
        one = (tmp_path / "first" / name).read_bytes()
        assert one == (tmp_path / "again" / name).read_bytes(), name
    summary = json.loads((tmp_path / "first" / "summary.json").read_text())
    assert summary["command"].endswith(
        "--in-the-loop preempt --tick 60 --notice 30 --commit 5"
    )
    assert [one["policy"] for one in summary["policies"]] == ["lookahead", "equal"]


def test_without_forecasts_out_writes_the_summary_alone(tmp_path: Path) -> None:
    words = ("--blind", "--margin", "0", "--policy", "equal", "--out", "there")

    ran = run(*LOOP, *words)

    assert [path.name for path in (tmp_path / "there").iterdir()] == ["summary.json"]
    assert "Forecasts" not in ran.stdout
    summary = json.loads((tmp_path / "there" / "summary.json").read_text())
    assert summary["command"].endswith("--margin 0 --blind")


def test_the_tables_fit_into_80_columns() -> None:
    ran = run(*LOOP, "--blind")

    lines = ran.stdout.splitlines()
    assert ran.code == 0
    assert lines[1] == (
        "The broker ticks every 60 s and is blind to plans; mode preempt."
    )
    assert max(map(len, lines)) <= 80
    for policy in IN_THE_LOOP:
        assert sum(line.split()[:1] == [policy] for line in lines) == 2


def test_priorities_are_told_apart_in_a_loop() -> None:
    words = ("--policy", "freetrain", "--priority", "weight", "--priority", "speedup")

    lines = run(*LOOP, *words).stdout.splitlines()

    for name in ("weight", "speedup"):
        assert sum(line.split()[:1] == [name] for line in lines) == 2


def test_a_loop_that_yields_is_played_too(tmp_path: Path) -> None:
    words = ("--policy", "lookahead", "--out", "there")
    ran = run(*LOOP[:-1], "yield", *words)

    assert ran.code == 0
    assert (
        "ticks every 30 s, 5 and 3 s early, and sees plans; mode yield, careful."
        in ran.stdout
    )
    summary = json.loads((tmp_path / "there" / "summary.json").read_text())
    asked = "yield --tick 30 --lead 5 --last 3 --margin 30 --careful"
    assert summary["command"].endswith(asked)
    assert summary["policies"][0]["loop"]["is_careful"]
    assert summary["policies"][0]["loop"]["lead_s"] == 5.0
    assert summary["policies"][0]["loop"]["last_s"] == 3.0


def test_a_careless_loop_says_so_and_its_command_does(tmp_path: Path) -> None:
    words = ("--policy", "equal", "--careless", "--out", "there")
    ran = run(*LOOP[:-1], "yield", *words)

    assert "sees plans; mode yield, careless." in ran.stdout
    summary = json.loads((tmp_path / "there" / "summary.json").read_text())
    assert summary["command"].endswith(" --careless")
    assert not summary["policies"][0]["loop"]["is_careful"]


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        (("--tick", "60"), "preempt"),
        (("--notice", "9"), "preempt"),
        (("--blind",), "preempt"),
        (("--careful",), "yield"),
        (("--careless",), "yield"),
        (("--last", "1"), "yield"),
    ],
)
def test_options_of_a_loop_need_one_that_knows_them(
    options: tuple[str, ...], mode: str
) -> None:
    ran = run(*LOOP[:-2], *options)
    followed = run(*LOOP[:-2], *options, "--in-the-loop", mode)

    assert ran.code == 64
    assert f"{options[0]} is for replays with --in-the-loop" in ran.stderr
    assert f"Add --in-the-loop {mode}, or leave it out." in ran.stderr
    assert followed.code == 0


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--schedule", "recorded"), "that starts jobs at recorded times"),
        (("--nodes", "2"), "jobs need the whole machine"),
        (("--policy", "static"), "the policy 'static' cannot be in the loop"),
        (("--against", "fair"), "does not go with --against"),
        (("--topology", "t"), "does not go with --topology"),
        (("--every", "60"), "it decides at ticks"),
        (("--trainers", "quality:3"), "a load needs a known pool"),
        (("--in-the-loop", "yield", "--notice", "3"), "--notice is for --in-the-loop"),
        (("--lead", "3"), "--lead is for --in-the-loop yield"),
        (("--last", "3"), "--last is for --in-the-loop yield"),
        (("--careful",), "--careful is for --in-the-loop yield"),
        (("--careless",), "--careless is for --in-the-loop yield"),
        (("--start", "1e9"), "Start earlier"),
    ],
)
def test_what_does_not_go_with_a_loop_is_refused(
    options: tuple[str, ...], why: str
) -> None:
    ran = run(*LOOP, *options)

    assert ran.code == 64
    assert why in ran.stderr
    assert "othing was replayed" in ran.stderr or "nothing was replayed" in ran.stderr


def test_jobs_that_all_come_at_once_are_no_loop_and_cannot_be_begun_earlier() -> None:
    Path("jobs.csv").write_text(JOBS[: JOBS.index("c,100")])

    ran = run(*LOOP)

    assert ran.code == 64
    assert "its last job is submitted at second 0, and the loop lasts" in ran.stderr
    assert "Leave --in-the-loop out." in ran.stderr


def test_a_log_of_idle_intervals_has_no_jobs_for_a_loop() -> None:
    ran = run(LOOP[0], "holes.csv", *LOOP[2:])

    assert ran.code == 64
    assert "holds idle intervals and no jobs" in ran.stderr


def test_bad_settings_are_refused_before_a_log_is_read() -> None:
    words = ("--policy", "freetrain", "--set", "no_such=3")
    ran = run(LOOP[0], "missing.csv", *LOOP[2:], *words)

    assert ran.code == 64
    assert "no_such" in ran.stderr
