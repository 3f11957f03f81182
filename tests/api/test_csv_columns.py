"""docs/reference/csv.md has every column of every CSV file that is written."""

import re
from pathlib import Path

import pandas as pd
import pytest

import freetrain as ft
from logs.generate import GPU_SAMPLE_NAME, SAMPLE_NAME, shipped_sample
from logs.read import WRITABLE
from tests.cli.commands import run

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/csv.md"
TABLES = [name for name in WRITABLE if name != "swf"]
WEEK, GPU_WEEK = shipped_sample(SAMPLE_NAME), shipped_sample(GPU_SAMPLE_NAME)


def documented(name: str) -> list[str]:
    """Return the columns that the page has of the file or format *name*."""
    _, found, rest = PAGE.read_text("utf-8").partition(f"\n### `{name}`\n")
    assert found, name
    return re.findall(r"^\| `(\w+)` \|", rest.split("\n#")[0], re.MULTILINE)


def test_the_page_has_every_table_that_logs_are_written_as_and_no_other() -> None:
    headings = re.findall(r"^### `(.+)`$", PAGE.read_text("utf-8"), re.MULTILINE)

    replayed = ["steps.csv", "completions.csv", "affinity.csv"]
    assert sorted(headings) == sorted([*TABLES, *replayed])


@pytest.mark.parametrize(
    ("verb", "name", "log"),
    [
        (("convert", "--to", "jobs-csv"), "jobs-csv", WEEK),
        (("convert", "--to", "gpu-csv"), "gpu-csv", GPU_WEEK),
        (("holes",), "fragments", WEEK),
    ],
)
def test_a_log_that_is_written_has_the_documented_columns_and_is_read_back(
    tmp_path: Path, verb: tuple[str, ...], name: str, log: Path
) -> None:
    out = tmp_path / "written.csv"
    word, *options = verb
    assert run("trace", word, log, *options, "--out", out).code == 0

    table = pd.read_csv(out, comment="#")
    columns = documented(name)
    assert list(table) == [c for c in columns if c in table]
    left_out = set(columns) - set(table)
    assert left_out <= {"node_list", "nodes"}

    before, after = ft.read_log(log), ft.read_log(out)
    holes = before.holes()
    assert len(table) == len(holes if word == "holes" else before.jobs)
    pd.testing.assert_frame_equal(after.holes(), holes)


def test_a_replays_tables_have_the_documented_columns_and_are_read_back(
    tmp_path: Path,
) -> None:
    log, out = ft.read_log(WEEK), tmp_path / "report"
    result = ft.replay(
        log,
        policies=["lookahead", "equal"],
        days=1,
        nodes=64,
        parallel=2,
        forecasts=True,
    )
    result.report(out)

    tables = {path.name: pd.read_csv(path) for path in out.glob("*.csv")}
    assert sorted(tables) == ["affinity.csv", "completions.csv", "steps.csv"]
    steps, done = tables["steps.csv"], tables["completions.csv"]
    affinity = tables["affinity.csv"]
    assert list(steps) == documented("steps.csv")
    assert list(done) == documented("completions.csv")
    assert documented("affinity.csv") == ["nodes"]

    kinds = result.timeline.dtypes
    same = steps[list(result.timeline)].astype(kinds)
    pd.testing.assert_frame_equal(same, result.timeline)
    again = done.astype(result.trainers.dtypes)
    pd.testing.assert_frame_equal(again, result.trainers)
    words = steps["resized"].dropna().str.split().sum()
    resized = result.events[result.events["event"] == "resized"]
    assert words == [
        f"{row.trainer}={row.nodes}" for row in resized.itertuples(index=False)
    ]
    ended = steps["finished"].dropna().str.split().sum()
    finished = result.events[result.events["event"] == "finished"]
    assert ended == finished["trainer"].tolist()
    assert len(finished)
    assert affinity["nodes"].astype(str).tolist() == list(affinity)[1:]
    shares = affinity.drop(columns="nodes").to_numpy(float)
    assert ((shares >= 0) & (shares <= 1) | (shares != shares)).all()  # noqa: PLR0124 - nan
