"""``freetrain replay``: what it prints, what it writes, and when it refuses."""

import json
import re
import tempfile
from pathlib import Path
from typing import get_args

import pytest

from freetrain.api.logs import MethodName
from freetrain.api.request import POLICY_NAMES
from logs.simulation import Method
from tests.cli.commands import JOBS, refused, run, run_json, written
from tests.replay.worlds import REFERENCE_KEYS

REPLAY = ("replay", "holes.csv", "--trainers", "trainers.toml", "--parallel", "2")
MEMORY_DISK = Path("/dev") / "shm"
REPORT = {
    "summary.json",
    "steps.csv",
    "completions.csv",
    "report.html",
    "forecast.html",
}


@pytest.fixture(autouse=True)
def files() -> None:
    written()


def test_json_is_one_object_a_policy_with_the_keys_of_the_reference() -> None:
    ran = run(*REPLAY, "--json")

    records = json.loads(ran.stdout)
    assert ran.code == 0
    assert ran.stderr == ""
    assert [record["policy"] for record in records] == list(POLICY_NAMES)
    for record in records:
        assert record.keys() >= REFERENCE_KEYS
        assert record["wall_s"] == record["load_s"] + record["replay_s"]
        assert record["peak_rss_bytes"] == 123_456_789
        assert "steps" not in record


def test_the_table_compares_the_policies_within_80_columns() -> None:
    ran = run(*REPLAY)

    lines = ran.stdout.splitlines()
    assert ran.code == 0
    assert (
        lines[0] == "holes.csv: 5 holes on 4 nodes in 2 h; 3.7 nodes idle on average."
    )
    assert lines[1].startswith("Half of the nodes or more were idle for 100.0 % of")
    assert lines[2].startswith("All trainers were done before the end, after: freet")
    assert lines[3].startswith("scavenger: jobs of 1 node, the size that trains most")
    assert lines[4] == "Trainers: trainers.toml: 3 trainers (small), 2 at a time."
    table = lines[5:]
    rows = [line.split()[0] for line in table if line]
    assert [row for row in rows if row in POLICY_NAMES] == list(POLICY_NAMES)
    assert rows[-4:] == ["efficiency:", "coverage:", "lost:", "slowdown:"]
    assert [line for line in table if len(line) > 80] == []
    assert "…" not in ran.stdout
    assert "\x1b" not in ran.stdout


def test_policies_are_replayed_once_each_in_the_order_asked_for() -> None:
    words = ("--policy", "equal", "--policy", "freetrain", "--policy", "equal")

    records = run_json(*REPLAY, *words)

    assert [record["policy"] for record in records] == ["equal", "freetrain"]


def test_out_writes_the_whole_report_and_the_same_bytes_twice(tmp_path: Path) -> None:
    first = run(*REPLAY, "--out", "first")
    again = run(*REPLAY, "--out", "new/again")

    assert (first.code, again.code) == (0, 0)
    assert {path.name for path in (tmp_path / "first").iterdir()} == REPORT
    for name in REPORT:
        one = (tmp_path / "first" / name).read_bytes()
        assert one == (tmp_path / "new" / "again" / name).read_bytes(), name
    assert first.stdout.endswith("Report: first/report.html\n")


def test_json_tells_what_was_foretold_by_those_who_do() -> None:
    words = ("--policy", "lookahead", "--policy", "equal", "--json")

    ours, other = json.loads(run(*REPLAY, *words).stdout)

    assert ours["forecasts"]["horizon_s"] == 600.0
    assert ours["forecasts"]["reliability"]
    assert "forecasts" not in other


def test_where_nobody_takes_nodes_away_there_is_nothing_to_foretell() -> None:
    words = ("replay", "--pool", "4", "--days", "0.1", "--policy", "lookahead")

    (ours,) = run_json(*words)

    assert "forecasts" not in ours


def test_a_folder_with_something_in_it_is_left_alone_without_force(
    tmp_path: Path,
) -> None:
    mine = tmp_path / "out" / "summary.json"
    mine.parent.mkdir()
    mine.write_text("mine")

    refused = run(*REPLAY, "--out", "out")

    assert refused.code == 73
    assert refused.stderr == (
        f"error: {tmp_path}/out is not empty; nothing was run. Name another place "
        f"with --out. Add --force to replace the files of an earlier run.\n"
    )
    assert refused.stdout == ""
    assert mine.read_text() == "mine"


def test_force_replaces_the_files_of_a_report_and_no_others(tmp_path: Path) -> None:
    notes = tmp_path / "out" / "notes.txt"
    notes.parent.mkdir()
    notes.write_text("mine")

    ran = run(*REPLAY, "--out", "out", "--force")

    assert ran.code == 0
    assert {path.name for path in notes.parent.iterdir()} == REPORT | {"notes.txt"}
    assert notes.read_text() == "mine"


@pytest.mark.skipif(not MEMORY_DISK.is_dir(), reason="there is no /dev/shm")
def test_a_folder_may_lead_to_another_file_system(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY_DISK) as elsewhere:
        if Path(elsewhere).stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("there is one file system only")
        (tmp_path / "out").symlink_to(elsewhere)

        ran = run(*REPLAY, "--out", "out")

        assert ran.code == 0, ran.stderr
        assert {path.name for path in Path(elsewhere).iterdir()} == REPORT


def test_a_file_in_the_way_of_the_folder_is_refused() -> None:
    assert "is not a folder; nothing was run" in refused(
        *REPLAY, "--out", "trainers.toml", "--force", code=73
    )


def test_bad_input_leaves_nothing_where_out_would_have_been(tmp_path: Path) -> None:
    Path("holes.csv").write_text("node,idle_start_s,idle_end_s\n0,5,1\n")
    before = set(tmp_path.iterdir())

    ran = run(*REPLAY, "--out", "out")

    assert ran.code == 65
    assert set(tmp_path.iterdir()) == before


def test_jobs_are_scheduled_before_their_holes_are_replayed() -> None:
    Path("jobs.csv").write_text(JOBS)
    words = ("replay", "jobs.csv", "--trainers", "trainers.toml", "--policy", "equal")

    recorded = run_json(*words)
    easy = run_json(*words, "--schedule", "easy")

    assert recorded[0]["pool_node_s"] == 4 * 1200 - 2 * 600 - 300 - 4 * 300
    assert easy[0]["pool_node_s"] == 4 * 900 - 2 * 600 - 300 - 4 * 300


def test_tolerated_lines_are_told(tmp_path: Path) -> None:
    with (tmp_path / "holes.csv").open("a") as file:
        file.write("4,9,3\n")

    ran = run(*REPLAY, "--skip-bad", "1")

    assert ran.code == 0
    assert "1 bad line passed over." in ran.stdout.splitlines()


def test_the_size_of_rigid_jobs_is_told() -> None:
    words = ("replay", "holes.csv", "--policy", "scavenger")

    ran = run(*words)
    without = run(*words[:3], "equal")

    told = (
        "scavenger: jobs of 1 node, the size that trains most here, as many at a time "
        "as fit."
    )
    assert ran.code == 0
    assert told in ran.stdout.splitlines()
    assert told not in without.stdout.splitlines()


def test_somebody_who_watches_sees_progress_and_a_pipe_does_not() -> None:
    watched = run(*REPLAY, "--policy", "equal", is_terminal=True)
    piped = run(*REPLAY, "--policy", "equal")

    assert "replaying under equal" in watched.stderr
    assert piped.stderr == ""
    assert watched.stdout == piped.stdout


def test_names_that_options_offer_are_those_that_exist() -> None:
    assert set(get_args(MethodName)) == set(Method)


def test_help_and_document_name_every_policy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("replay", "-h")
    shown = capsys.readouterr().out
    document = Path(__file__).parents[2] / "docs" / "guide" / "commands.md"
    (row,) = re.findall(r"\* `--policy NAME` .*", document.read_text())

    for name in POLICY_NAMES:
        assert re.search(rf"\b{name}\b", shown.partition("--priority")[0]), name
        assert f"`{name}`" in row


def test_speeds_can_be_learned_instead_of_believed() -> None:
    drawn = ("--trainers", "imagenet", "--parallel", "3", "--days", "0.2")
    words = ("replay", "--pool", "24", *drawn, "--policy", "freetrain", "--json")

    (believed,) = json.loads(run(*words).stdout)
    (learned,) = json.loads(run(*words, "--learned").stdout)

    assert 0.5 < learned["samples"] / believed["samples"] < 1


@pytest.mark.parametrize("priority", ["throughput", "speedup", "weight", "fair"])
@pytest.mark.parametrize("accounting", ["real", "published", "published+c"])
def test_every_priority_and_accounting_can_be_replayed(
    priority: str, accounting: str
) -> None:
    words = ("--priority", priority, "--accounting", accounting, "--json")

    records = json.loads(run(*REPLAY, *words).stdout)

    assert {record["accounting"] for record in records} == {accounting}
    assert all(record["samples"] > 0 for record in records)
