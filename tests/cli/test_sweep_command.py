"""``freetrain replay`` of drawn trainers, and over several seeds and loads."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.commands import run, run_json, written

PRIORITIES = ("--priority", "weight", "--priority", "speedup")
DRAWS = (*PRIORITIES, "--trainers", "quality:3", "--seeds", "2")
SWEEP = ("replay", *DRAWS, "--pool", "4")
POOL = ("replay", "--pool", "4", "--trainers", "quality:4")
DRAWN = (*POOL, "--curves", "c")


def curves(folder: Path) -> None:
    """Write two curves: one that learns soon, one that learns late."""
    (folder / "c").mkdir()
    for name, turn in (("soon", 5), ("late", 40)):
        rows = [f"{k},{k},{k / (k + turn):.6f}" for k in range(1, 61)]
        text = "\n".join(["progress,iteration,metric", *rows])
        (folder / "c" / f"{name}.csv").write_text(text + "\n")


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    curves(tmp_path)
    written()


def test_a_sweep_has_a_table_a_load_and_names_the_losers() -> None:
    ran = run(*SWEEP, "--loads", "1", "--loads", "3", "--curves", "c")

    lines = ran.stdout.splitlines()
    assert (ran.code, ran.stderr) == (0, "")
    assert [line.split()[:4] for line in lines if "vs fair" in line] == [
        ["load", "1,", "vs", "fair"],
        ["load", "3,", "vs", "fair"],
    ]
    assert sum("share later" in line for line in lines) == 4
    assert sum("worst trainer" in line for line in lines) == 2
    assert all(len(line) <= 80 for line in lines if not line.startswith("Changes"))


def test_a_sweep_is_the_same_in_one_process_and_in_two(tmp_path: Path) -> None:
    words = (*SWEEP, "--curves", str(tmp_path / "c"), "--json")

    one = run(*words)
    two = run(*words, "--processes", "2")

    records = json.loads(one.stdout)
    assert one.stdout == two.stdout
    assert [(r["priority"], r["seed"]) for r in records] == [
        ("weight", 1),
        ("speedup", 1),
        ("weight", 2),
        ("speedup", 2),
    ]
    assert records[0]["against"]["time_to"]["finish"]["trainers"] == 3


@pytest.mark.skipif(not Path("/proc").exists(), reason="no /proc here")
def test_an_interrupt_ends_all_processes_of_a_sweep_with_one_line() -> None:
    # Shells let what they run in the background, such as these tests, hear no Ctrl-C.
    listens = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from freetrain.__main__ import run; sys.exit(run())"
    )
    words = ("replay", "--priority", "slaq", "--seeds", "5", "--processes", "2")
    with subprocess.Popen(  # noqa: S603 - this very program
        [sys.executable, "-c", listens, *words],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while len(children.read_text().split()) < 3:  # Python's tracker is one
            assert process.poll() is None
            time.sleep(0.02)
        time.sleep(0.2)  # they are reading their programs
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)

    assert process.returncode == 130
    assert said == "error: interrupted before the end; no file written.\n"


def test_a_sweep_may_be_made_in_the_holes_of_a_log() -> None:
    ran = run("replay", "holes.csv", *DRAWS, "--curves", "c", "--json")

    assert ran.code == 0
    assert len(json.loads(ran.stdout)) == 4


def test_a_sweep_that_is_written_twice_is_the_same_file() -> None:
    words = (*SWEEP, "--curves", "c", "--out", "found.json")

    assert run(*words).code == 0
    assert run(*words).code == 0
    assert len(json.loads(Path("found.json").read_text())) == 4


def test_drawn_trainers_are_replayed_against_a_baseline() -> None:
    asked = (*DRAWN, "--priority", "weight", "--against", "fair", "--policy")

    text = run(*asked, "freetrain")
    records = run_json(*asked, "freetrain")

    assert text.code == 0
    assert "4 nodes: 4 nodes that no other job takes." in text.stdout
    assert "vs fair" in text.stdout
    assert [r["priority"] for r in records] == ["weight", "fair"]
    assert records[0]["quality"]["time_to"]["finish"]["trainers"] == 4
    assert records[1]["against"]["time_to"]["finish"]["slower"] == 0


def test_a_policy_that_others_are_held_against_is_replayed_too() -> None:
    asked = (*DRAWN, "--policy", "freetrain", "--against", "equal")

    records = run_json(*asked)

    assert [r["policy"] for r in records] == ["freetrain", "equal"]
    assert [r["against"]["name"] for r in records] == ["equal", "equal"]


def test_a_policy_that_goes_by_no_priority_is_not_held_for_one() -> None:
    asked = (*DRAWN, "--policy", "equal", "--policy", "freetrain", "--priority", "fair")

    ran = run(*asked, "--against", "fair", "--json")

    assert {r["against"]["name"] for r in json.loads(ran.stdout)} == {"freetrain"}


def test_every_policy_that_goes_by_priorities_goes_by_each_of_them() -> None:
    asked = (*DRAWN, "--priority", "weight", "--against", "fair", "--policy")
    both = ("lookahead", "--policy", "freetrain", "--policy", "static", "--json")

    alone = run_json(*asked, "lookahead")
    records = json.loads(run(*asked, *both).stdout)
    shown = run(*asked, *both[:-1]).stdout

    assert [r["priority"] for r in alone] == ["weight", "fair"]
    assert {r["against"]["name"] for r in alone} == {"fair"}
    assert [(r["policy"], r["priority"]) for r in records] == [
        ("lookahead", "weight"),
        ("lookahead", "fair"),
        ("freetrain", "weight"),
        ("freetrain", "fair"),
        ("static", "weight"),
    ]
    assert {r["against"]["name"] for r in records} == {"lookahead fair"}
    rows = shown.partition("Optimality gap")[0].splitlines()[5:-1]
    names = " ".join(line.split()[0] for line in rows)
    assert names == (
        "lookahead weight lookahead fair freetrain weight freetrain fair static (bound)"
    )
    assert max(map(len, rows)) <= 80


def test_the_recorded_curves_are_there_to_draw_from() -> None:
    words = ("replay", "--pool", "8", "--trainers", "quality:6", "--policy", "equal")

    (record,) = run_json(*words)

    assert record["quality"]["time_to"]["finish"]["trainers"] == 6
    assert record["finished"] == 6


def test_curves_that_fall_are_the_same_training_as_those_that_rise(
    tmp_path: Path,
) -> None:
    Path("down").mkdir()
    for file in (tmp_path / "c").iterdir():
        lines = [line.split(",") for line in file.read_text().splitlines()]
        turned = [[a, b, f"{-float(value):.6f}"] for a, b, value in lines[1:]]
        text = "\n".join(",".join(row) for row in [lines[0], *turned]) + "\n"
        (tmp_path / "down" / file.name).write_text(text)
    words = (*POOL, "--policy", "equal", "--json")

    up = run(*words, "--curves", "c")
    down = run(*words, "--curves", "down", "--better", "lower")

    rising = [each["quality"] for each in json.loads(up.stdout)]
    assert rising == [each["quality"] for each in json.loads(down.stdout)]
    assert all(rising)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("replay --pool 4 --trainers quality:9 --curves no", 66, "no .csv file in"),
        ("replay --seeds 1 --curves c --better lower", 65, "Say --better higher."),
    ],
)
def test_what_makes_no_sense_is_refused(words: str, code: int, said: str) -> None:
    ran = run(*words.split())

    assert ran.code == code
    assert said in ran.stderr


def test_a_sweep_over_one_load_may_say_load() -> None:
    words = (*SWEEP, "--curves", "c", "--json")

    one = run(*words, "--load", "3").stdout

    assert one == run(*words, "--loads", "3").stdout
    assert one != run(*words).stdout


PACKS = ("replay", "--packs", "3", "--trainers", "quality:6", "--seeds", "2")


def test_packs_have_a_column_for_each_rule_of_moves_but_the_one_they_are_held_against(
    tmp_path: Path,
) -> None:
    words = (*PACKS, "--curves", str(tmp_path / "c"))

    ran, other = run(*words), run_json(*words, "--against", "balance")

    assert (ran.code, ran.stderr) == (0, "")
    heading = ["load", "1,", "vs", "placed", "balance", "specon", "work-left"]
    assert ran.stdout.split()[:7] == heading
    assert {r["priority"] for r in other} == {"placed", "specon", "work-left"}
    assert all(r["against"]["makespan"] > 0 for r in other)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--priority", "fair"), "--packs does not go with --priority"),
        (("--pool", "4"), "--packs does not go with --pool"),
        (("--policy", "equal"), "--packs does not go with --policy"),
        (("--against", "fair"), "fair is no rule by which members of packs move"),
        (("--trainers", "hps"), "does not go with --trainers hps"),
    ],
)
def test_options_that_say_nothing_of_packs_are_refused(
    words: tuple[str, ...], why: str
) -> None:
    ran = run(*PACKS, *words)

    assert ran.code == 64
    assert why in ran.stderr
