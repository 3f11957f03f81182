"""``freetrain replay --in-the-loop``: what it prints, and when it refuses."""

from pathlib import Path

import pytest

from freetrain.replay.settings import IN_THE_LOOP
from tests.cli.commands import JOBS, refused, run, run_json, summary, written

LOOP = (
    *("replay", "jobs.csv", "--trainers", "trainers.toml", "--parallel", "2"),
    *("--schedule", "slurm", "--in-the-loop", "preempt"),
)


@pytest.fixture(autouse=True)
def files() -> None:
    written()
    Path("jobs.csv").write_text(JOBS)


def test_json_has_the_replay_its_holes_and_the_harm() -> None:
    (record,) = run_json(*LOOP, "--policy", "freetrain")

    assert record["policy"] == "freetrain"
    assert record["loop"]["mode"] == "preempt"
    assert record["loop"]["knows_plans"] is True
    assert record["holes"]["long_use"] is None or 0 <= record["holes"]["long_use"] <= 1
    assert record["harm"]["waited_most_s"] <= 5.0
    assert record["wall_s"] == record["load_s"] + record["replay_s"]


BOTH = ("--policy", "lookahead", "--policy", "equal")


def test_json_has_forecasts_and_promises_of_policies_that_make_them() -> None:
    ours, other = run_json(*LOOP, *BOTH)

    assert ours["forecasts"].keys() >= {"reliability", "promises"}
    assert "forecasts" not in other


def test_out_writes_the_forecasts_and_the_same_bytes_twice() -> None:
    first = run(*LOOP, *BOTH, "--out", "first")
    again = run(*LOOP, *BOTH, "--out", "again")

    assert (first.code, again.code) == (0, 0)
    assert first.stdout.endswith("Forecasts: first/forecast.html\n")
    files = {path.name: path.read_bytes() for path in Path("first").iterdir()}
    assert files.keys() >= {"summary.json", "forecast.html"}
    assert files == {path.name: path.read_bytes() for path in Path("again").iterdir()}
    policies = [each["policy"] for each in summary("first")["policies"]]
    assert policies == ["lookahead", "equal"]


@pytest.mark.parametrize(
    ("options", "shown", "command", "settings"),
    [
        (
            "preempt --policy equal",
            "ticks every 60 s and sees plans; mode preempt.",
            "--in-the-loop preempt --tick 60 --notice 30 --commit 5",
            {"lead_s": None},
        ),
        (
            "preempt --blind --margin 0 --policy equal",
            "ticks every 60 s and is blind to plans; mode preempt.",
            "--margin 0 --blind",
            {"knows_plans": False},
        ),
        (
            "yield --policy lookahead",
            "ticks every 30 s, 5 and 3 s early, and sees plans; mode yield, careful.",
            "yield --tick 30 --lead 5 --last 3 --margin 30 --careful",
            {"is_careful": True, "lead_s": 5.0, "last_s": 3.0},
        ),
        (
            "yield --careless --policy equal",
            "sees plans; mode yield, careless.",
            " --careless",
            {"is_careful": False},
        ),
    ],
)
def test_the_settings_of_a_loop_are_shown_and_written(
    options: str, shown: str, command: str, settings: dict[str, object]
) -> None:
    ran = run(*LOOP[:-1], *options.split(), "--out", "there")

    found = summary("there")
    assert shown in ran.stdout
    assert found["command"].endswith(command)
    assert settings.items() <= found["policies"][0]["loop"].items()
    has_page = "lookahead" in options
    assert Path("there/forecast.html").exists() == has_page
    assert ("Forecasts" in ran.stdout) == has_page


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


def test_a_loop_says_which_lines_and_jobs_of_its_log_it_left_out() -> None:
    # The machine is as large as its largest job; "none" asks for no node at all.
    with Path("jobs.csv").open("a") as file:
        file.write("torn,4\nnone,0,0,600,0,900,u\n")
    words = (*LOOP, "--policy", "equal", "--skip-bad", "1")

    alone = run(*words[:-6], *words[-4:])
    in_a_loop = run(*words)

    for ran in (alone, in_a_loop):
        assert ran.code == 0
        assert "1 bad line passed over." in ran.stdout
        assert "1 job left out: they needed no nodes." in ran.stdout


def test_priorities_are_told_apart_in_a_loop() -> None:
    words = ("--policy", "freetrain", "--priority", "weight", "--priority", "speedup")

    lines = run(*LOOP, *words).stdout.splitlines()

    for name in ("weight", "speedup"):
        assert sum(line.split()[:1] == [name] for line in lines) == 2


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
    assert "holds idle intervals and no jobs" in refused(
        LOOP[0], "holes.csv", *LOOP[2:], code=64
    )


def test_bad_settings_are_refused_before_a_log_is_read() -> None:
    words = ("--policy", "freetrain", "--set", "no_such=3")
    assert "no_such" in refused(LOOP[0], "missing.csv", *LOOP[2:], *words, code=64)
