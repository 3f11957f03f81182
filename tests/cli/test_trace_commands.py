"""``freetrain trace``: info, convert, generate, holes."""

import dataclasses
import gzip
import io
import json
from pathlib import Path

import pytest

from freetrain.cli.app import main
from freetrain.cli.trace import LABELS
from logs.generate import GPU_SAMPLE_NAME, SAMPLE_NAME, shipped_sample
from logs.summary import GpuSummary, IdleSummary
from tests.cli.commands import HOLES, JOBS, a_context, run, run_json


@pytest.fixture(autouse=True)
def files() -> None:
    Path("holes.csv").write_text(HOLES)
    Path("jobs.csv").write_text(JOBS)


def test_info_says_what_a_log_holds() -> None:
    lines = run("trace", "info", "jobs.csv").stdout.splitlines()

    figures = dict(line.split("  ", maxsplit=1) for line in lines)
    shown = {name: value.strip() for name, value in figures.items()}
    assert shown["log"] == "jobs.csv"
    assert shown["jobs"] == "3"
    assert shown["nodes"] == "4"
    assert shown["first start at second"] == "0 (0 s)"
    assert shown["time with half the nodes idle or more"] == "50.0 %"
    assert shown["mean idle nodes, that time left out"] == "0.5"
    assert shown["wait"].endswith("most 13.3 min")


def test_info_knows_nothing_of_use_where_no_job_has_a_start() -> None:
    Path("new.swf").write_text("; MaxNodes: 4\n" + "1 0 -1 60 2" + " -1" * 13 + "\n")

    lines = run("trace", "info", "new.swf").stdout.splitlines()

    unknown = {line[:-7].strip() for line in lines if line.endswith("unknown")}
    assert {"utilisation", "node-time idle", "wait", "most units held at once"} <= (
        unknown
    )
    assert not {"jobs", "nodes", "run time"} & unknown
    assert "--schedule easy" in lines[-1]


def test_every_figure_of_a_log_has_a_name_on_the_screen() -> None:
    figures = {
        field.name
        for kind in (GpuSummary, IdleSummary)
        for field in dataclasses.fields(kind)
    } - {"pieces"}  # a line each

    assert set(LABELS) == figures
    assert len(set(LABELS.values())) == len(LABELS)


def test_info_keeps_a_figure_on_one_line_however_long() -> None:
    name = "a" * 120 + ".csv"
    Path(name).write_text(HOLES)

    lines = run("trace", "info", name).stdout.splitlines()

    assert lines[0].endswith(name)
    assert len(lines) == len(dataclasses.fields(IdleSummary))


def test_info_shows_a_time_that_no_calendar_has() -> None:
    Path("far.csv").write_text(f"# t0_unix=999999999999\n{HOLES}")

    ran = run("trace", "info", "far.csv")

    assert (ran.code, "999999999999 s of Unix time" in ran.stdout) == (0, True)


def test_info_as_json_has_plain_figures() -> None:
    found = run_json("trace", "info", "holes.csv")

    assert found["holes"] == 5
    assert found["hole_s"]["most"] == 7200.0


def test_converting_says_how_many_bad_lines_are_missing() -> None:
    with Path("jobs.csv").open("a") as file:
        file.write("torn,4\n")

    ran = run("trace", "convert", "jobs.csv", "--to", "swf", "--skip-bad", "1")

    assert ran.code == 0
    assert ran.stderr.splitlines() == ["1 bad line passed over."]


def test_converting_to_swf_and_back_keeps_the_jobs() -> None:
    to_swf = ("trace", "convert", "jobs.csv", "--to", "swf", "--out", "jobs.swf.gz")

    assert run(*to_swf).code == 0
    back = run("trace", "convert", "jobs.swf.gz", "--to", "jobs-csv")

    rows = [line.split(",") for line in back.stdout.splitlines() if "," in line]
    assert [row[1:6] for row in rows[1:]] == [
        line.split(",")[1:6] for line in JOBS.splitlines()[1:]
    ]


def test_writing_the_same_file_twice_is_fine_and_another_needs_force(
    tmp_path: Path,
) -> None:
    words = ("trace", "convert", "jobs.csv", "--to", "swf", "--out", "jobs.swf")

    assert run(*words).code == 0
    assert run(*words).code == 0
    Path("jobs.swf").write_text("mine")
    refused = run(*words)
    assert (refused.code, Path("jobs.swf").read_text()) == (73, "mine")
    assert "exists and differs; nothing was written" in refused.stderr
    assert run(*words, "--force").code == 0
    assert Path("jobs.swf").read_text().startswith(";")
    assert len(list(tmp_path.iterdir())) == 3


def test_a_gzipped_file_has_the_same_bytes_every_time() -> None:
    for name in ("a.gz", "b.gz"):
        run("trace", "holes", "jobs.csv", "--out", name)

    one, two = (Path(name).read_bytes() for name in ("a.gz", "b.gz"))
    assert one == two
    assert one[4:8] == bytes(4), "the time of compression is in the file"
    assert b"idle_start_s" in gzip.decompress(one)


def test_holes_are_what_the_jobs_leave_idle() -> None:
    ran = run("trace", "holes", "jobs.csv", "--json")

    found = [(hole["start_s"], hole["end_s"]) for hole in json.loads(ran.stdout)]
    assert sorted(found) == [(0, 900), (300, 900), (600, 900), (600, 900)]


def test_a_name_that_standard_output_cannot_hold_is_refused(tmp_path: Path) -> None:
    Path("named.csv").write_text(HOLES + "n\u00e9,0,50\n", encoding="utf-8")
    said, errors = io.BytesIO(), io.StringIO()
    stdout = io.TextIOWrapper(said, encoding="ascii")
    context = a_context(tmp_path, stdout=stdout, stderr=errors)

    code = main(["trace", "holes", "named.csv"], context=context)

    assert (code, said.getvalue()) == (73, b"")
    assert errors.getvalue().startswith("error: standard output is ascii and cannot")


def test_holes_of_idle_intervals_are_the_intervals() -> None:
    shown = run("trace", "holes", "holes.csv").stdout

    assert [line for line in shown.splitlines() if line[0].isdigit()] == sorted(
        HOLES.splitlines()[1:], key=lambda line: int(line.split(",")[1])
    )


def test_the_same_seed_generates_the_same_bytes() -> None:
    words = ("trace", "generate", "--nodes", "32", "--days", "1")

    one = run(*words, "--seed", "7").stdout
    assert one == run(*words, "--seed", "7").stdout
    assert one != run(*words, "--seed", "8").stdout
    assert one.startswith("; Version: 2.2\n")


def test_jobs_can_be_generated_without_start_times() -> None:
    words = ("trace", "generate", "--nodes", "32", "--days", "1", "--no-starts")

    Path("raw.swf").write_text(run(*words).stdout)
    info = run("trace", "info", "raw.swf", "--json")

    found = json.loads(info.stdout)
    assert found["without_start_jobs"] == found["jobs"] > 0


@pytest.mark.parametrize(
    ("words", "name"), [((), SAMPLE_NAME), (("--gpus-per-node", "8"), GPU_SAMPLE_NAME)]
)
def test_the_samples_that_ship_are_made_by_the_documented_commands(
    tmp_path: Path, words: tuple[str, ...], name: str
) -> None:
    ran = run("trace", "generate", "--sample", *words, "--out", "samples")

    assert ran.code == 0
    made = (tmp_path / "samples" / name).read_bytes()
    assert made == shipped_sample(name).read_bytes()
