"""The command as a whole: help, version, cost of starting, ways out."""

import importlib.metadata
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

import logs
from freetrain.cli import replay as replay_verb
from freetrain.cli.app import LazyVerb
from tests.cli.commands import lazy_verbs, run, verbs, written

SAMPLE = Path(logs.__path__[0]) / "samples" / "week-512.swf"


def as_process(
    *words: str, stdout: int | IO[str], unbuffered: bool = False
) -> subprocess.Popen[str]:
    # Unbuffered output has nothing left to flush at the end, where things go wrong;
    # buffered output is written until all of it is.
    users = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    users |= {"PYTHONUNBUFFERED": "1"} if unbuffered else {}
    return subprocess.Popen(  # noqa: S603 - this very program
        [sys.executable, "-m", "freetrain", *words],
        env=users,
        text=True,
        stdout=stdout,
        stderr=subprocess.PIPE,
    )


def test_the_version_is_that_of_the_package() -> None:
    ran = run("--version")

    version = importlib.metadata.version("freetrain")
    assert (ran.code, ran.stdout) == (0, f"freetrain {version}\n")


@pytest.mark.parametrize("asked", [(), ("-h",), ("--help",), ("trace",)])
def test_help_says_what_there_is(
    asked: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run(*asked)

    assert ran.code == 0
    assert "Examples" in ran.stdout + capsys.readouterr().out


@pytest.mark.parametrize("verb", verbs())
@pytest.mark.parametrize("asked", ["-h", "--help"])
def test_every_verb_explains_itself_with_an_example(
    verb: tuple[str, ...], asked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run(*verb, asked)

    shown = capsys.readouterr().out
    assert ran.code == 0
    assert "Examples" in shown
    assert "((" not in shown, "a default's own brackets beside Typer's"
    assert f"freetrain {' '.join(verb)}" in shown.split("Examples")[1]


def test_the_list_of_verbs_says_what_each_verb_says_of_itself() -> None:
    for words, verb in lazy_verbs():
        if isinstance(verb, LazyVerb):
            assert verb.help == verb.loaded.help, words


def modules_after(words: str) -> set[str]:
    """Return the modules that a command has loaded when it ends."""
    program = (
        "import sys; from freetrain.cli.app import main; main(sys.argv[1:]); "
        "print(*sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run(  # noqa: S603 - this very program
        [sys.executable, "-c", program, *words.split()],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(ran.stderr.split())


@pytest.mark.parametrize("words", ["--version", "-h", "trace", "cron -h"])
def test_a_list_of_verbs_imports_no_verb(words: str) -> None:
    ours = {m for m in modules_after(words) if m.startswith("freetrain.cli.")}

    assert ours == {"freetrain.cli.app", "freetrain.cli.context"}


SLOW = {"jinja2", "numpy", "pandas", "plotly", "pulp", "scipy"}
RUNNING = {"freetrain.state.tables", "milp.problem", "slurm.records"}
"""Some of our modules that take long to import and that no option needs."""


@pytest.mark.parametrize("words", ["--version", "-h", *(" ".join(v) for v in verbs())])
def test_help_loads_nothing_that_only_running_a_verb_needs(words: str) -> None:
    asked = words if words.startswith("-") else f"{words} -h"

    too_many = modules_after(asked) & (SLOW | RUNNING)

    assert not too_many


@pytest.mark.parametrize("words", [("--version",), ("-h",), ("replay", "-h")])
def test_a_reader_that_goes_away_is_no_error(words: tuple[str, ...]) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with as_process(*words, stdout=writes) as process:
        os.close(writes)
        _, said = process.communicate(timeout=60)

    assert (process.returncode, said) == (141, "")


CONVERT = ("trace", "convert", str(SAMPLE), "--to", "swf")


@pytest.mark.parametrize("unbuffered", [False, True])
def test_a_reader_that_goes_away_halfway_is_noticed(*, unbuffered: bool) -> None:
    with as_process(*CONVERT, stdout=subprocess.PIPE, unbuffered=unbuffered) as process:
        assert process.stdout is not None
        process.stdout.read(1)  # more than a pipe holds is left
        process.stdout.close()
        process.wait(timeout=60)

    assert process.returncode == 141


def test_unbuffered_output_is_the_same() -> None:
    said = []
    for unbuffered in (False, True):
        process = as_process(*CONVERT, stdout=subprocess.PIPE, unbuffered=unbuffered)
        with process:
            said.append(process.communicate(timeout=60)[0])

    assert said[0] == said[1]
    assert said[0]


@pytest.mark.parametrize("words", [("replay", "holes.csv"), ("replay", "--pool", "2")])
def test_no_figure_is_cut_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    written()
    said = []
    for columns in ("80", "40"):
        monkeypatch.setenv("COLUMNS", columns)
        said.append(run(*words, "--trainers", "trainers.toml").stdout)

    assert "…" not in said[0]
    assert said[0] == said[1]


def test_an_interrupt_ends_a_command_without_a_traceback() -> None:
    def press_ctrl_c() -> float:
        raise KeyboardInterrupt

    written()

    ran = run("replay", "holes.csv", "--out", "out", clock=press_ctrl_c)

    assert ran.code == 130
    assert ran.stderr == "error: interrupted before the end; no file written.\n"
    assert not Path("out").exists()


def test_a_current_folder_that_was_removed_is_an_error(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()

    ran = run("status", cwd=Path())

    assert ran.code == 66
    assert ran.stderr == (
        "error: the current folder was removed. Nothing was done. Change to one that "
        "is there.\n"
    )


def test_an_interrupt_while_modules_are_read_ends_without_a_traceback() -> None:
    Path("typer.py").write_text("raise KeyboardInterrupt")

    with as_process("--version", stdout=subprocess.PIPE) as process:
        _, said = process.communicate(timeout=60)

    assert process.returncode == 130
    assert said == "error: interrupted before the end; no file written.\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_told() -> None:
    with (
        Path("/dev/full").open("w") as full,
        as_process("--version", stdout=full) as process,
    ):
        _, said = process.communicate(timeout=60)

    assert process.returncode == 74
    assert said == (
        "error: No space left on device. What was asked for was not finished.\n"
    )


def test_the_demo_shows_a_table_and_says_where_the_report_is(tmp_path: Path) -> None:
    report = tmp_path / "freetrain-demo" / "report.html"
    report.parent.mkdir()
    report.write_text("of an earlier demo")

    ran = run("demo")

    lines = ran.stdout.splitlines()
    assert ran.code == 0
    assert lines[0].startswith("logs/samples/week-512.swf: ")
    assert "Report: freetrain-demo/report.html" in lines
    assert 3_000_000 < report.stat().st_size < 7_000_000
    again = "freetrain demo"  # the log's name there says nothing to other folders
    assert json.loads((report.parent / "summary.json").read_text())["command"] == again
    assert f"<code>{again}</code>" in report.read_text()


def test_the_demo_shows_gpus_and_the_command_that_repeats_it() -> None:
    # There the log has a short name; the report goes to the user's folder.
    above, report = Path(logs.__file__).parent.parent, Path.cwd() / "report"
    shown = run("demo", "--out", report, cwd=above).stdout
    again = shown.splitlines()[-1].removeprefix("The same again: freetrain ")

    repeated = run(*shlex.split(again), cwd=above).stdout

    assert again.startswith("replay logs/samples/gpu-week-32x8.csv --days 7 ")
    assert repeated
    assert repeated in shown
    rows = re.findall(r"^ (\d) +([\d.]+) G ", repeated, re.MULTILINE)
    assert [gpus for gpus, _ in rows] == ["1", "2", "4", "8"]
    trained = [float(samples) for _, samples in rows]
    assert trained == sorted(trained, reverse=True)  # as the demo says


def test_the_record_of_a_demo_is_one_document_of_the_first_week() -> None:
    records = json.loads(run("demo", "--json").stdout)

    assert [r["policy"] for r in records] == [
        "freetrain", "equal", "scavenger", "static",
    ]  # fmt: skip


def test_help_groups_the_options_of_a_replay_but_for_those_of_output() -> None:
    grouped = [name for names in replay_verb.OPTION_GROUPS.values() for name in names]
    params = set(inspect.signature(replay_verb.replay).parameters)
    assert len(grouped) == len(set(grouped))
    assert params - set(grouped) == {"ctx", "log", "as_json", "out", "force"}
    verb = dict(lazy_verbs())[("replay",)]
    assert isinstance(verb, LazyVerb)
    shown = {str(p.name): getattr(p, "rich_help_panel", "") for p in verb.loaded.params}
    assert shown["tick"] == "The broker in the loop"
    assert shown["out"] is None
