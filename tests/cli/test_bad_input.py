"""Whatever is wrong with a call or a file: one clear line, the right exit code."""

import gzip
import os
import tempfile
from pathlib import Path

import pytest

from freetrain.cli.context import error_line, exit_code
from freetrain.priority.base import priority_names
from slurm.errors import (
    RequestsSpentError,
    SlurmError,
    SlurmMissingError,
    SlurmRefusedError,
    SlurmUnavailableError,
    UnreadableOutputError,
)
from tests.cli.commands import HOLES, JOBS, refused, run, written

SWF = "; MaxNodes: 4\n1 0 0 10 1 -1 -1 1 20 -1 1 1 -1 -1 1 -1 -1 -1\n"


@pytest.fixture(autouse=True)
def files() -> None:
    written()


def one_line(stderr: str) -> str:
    assert stderr.startswith("error: "), stderr
    assert stderr.endswith("\n")
    assert stderr.count("\n") == 1, stderr
    return stderr.removeprefix("error: ").rstrip("\n")


USAGE = """
xyzzy | No such command 'xyzzy'. Nothing was done. `freetrain -h` shows
statsu | 'statsu'. Did you mean 'status'? Nothing was done. `freetrain
trace bogus | No such command 'bogus'.
replay | expected either a log or --pool N, and not both; nothing was
replay holes.csv --pool 4 | expected either a log or --pool N, and not
replay --pool 0 | Invalid value for '--pool':
replay --pool 4 --every 0 | '--every': 0 is not a number above 0.
replay --pool 4 --trainers quality:x | 'x' trainers: expected a number
replay --pool 4 --schedule easy | --schedule is for replays of a log; noth
replay --pool 4 --nodes 2 | --nodes is for replays of a log; nothing was
replay --pool 4 --start 9 | --start is for replays of a log; nothing was
replay --pool 4 --topology t | --topology is for replays of a log; noth
replay holes.csv --policy freetrain --topology t
    | --topology is for the policies lookahead and adaptive; noth
replay holes.csv --forecaster life
    | '--forecaster': there is no forecaster 'life'. Choose one of learned,
replay holes.csv --forecaster life-tabel | Did you mean 'life-table'?
replay holes.csv --policy freetrain --forecaster life-table
    | --forecaster is for the policies lookahead and adaptive; noth
replay holes.csv --policy freetrain --forecaster learned
    | --forecaster is for the policies lookahead and adaptive; noth
replay --pool 4 --skip-bad 1 | --skip-bad is for replays of a log; nothing
replay holes.csv --load 2 | --load is for --trainers quality:N; nothing was
replay holes.csv --curves c | --curves is for --trainers quality:N; nothing
replay --pool 4 --trainers quality:2 --better lower | --better is for --cu
replay holes.csv --policy equal --against slaq | Add --policy freetrain.
replay holes.csv --policy equal --priority fair
    | --priority is for the policies freetrain, lookahead, adaptive, static; no
replay holes.csv --policy static --priority throughput --priority fair
    | a second --priority is for the policies freetrain, lookahead, adaptive; no
replay holes.csv --policy equal --learned
    | --learned is for the policies freetrain, lookahead, adaptive; no
replay holes.csv --policy equal --against static | and of hps none has one
replay holes.csv --bogus | No such option: --bogus
replay holes.csv --nodes many | Invalid value for '--nodes':
replay holes.csv --nodes 0 | Invalid value for '--nodes':
replay holes.csv --nodes 5 | holes.csv has 4 nodes; 5 of them cannot
replay holes.csv --parallel 0 | Invalid value for '--parallel':
replay holes.csv --days nan | '--days': nan is not a number above 0.
replay holes.csv --days inf | '--days': inf is not a number above 0.
replay holes.csv --days -1 | '--days': -1 is not a number above 0.
replay holes.csv --start nan | '--start': nan is not a number of 0 or more
replay holes.csv --start -1 | '--start': -1 is not a number of 0 or more
replay holes.csv --start 7200 | holes.csv: no node is idle after 7200 s, so
replay holes.csv --t-fwd 0 | '--t-fwd': 0 is not a number above 0.
replay holes.csv --cost-factor nan | '--cost-factor': nan is not a number
replay holes.csv --cost-factor -2 | '--cost-factor': -2 is not a number
replay holes.csv --skip-bad -1 | Invalid value for '--skip-bad':
replay holes.csv --seed -1 | Invalid value for '--seed':
replay holes.csv --policy best | there is no policy 'best'; choose of free
replay holes.csv --priority fun | no priority 'fun'. Choose one of through
replay holes.csv --solver gurobi | for '--solver': 'gurobi' is not one of
replay holes.csv --schedule easy | holds idle intervals and no jobs
trace convert holes.csv --to swf | holds idle intervals and no jobs, so it
trace convert holes.csv --to bogus | 'bogus' is not one of 'swf'
trace convert holes.csv | Missing option '--to'
trace generate --nodes 0 | Invalid value for '--nodes':
trace generate --load inf | Invalid value for '--load':
trace generate --days nan | '--days': nan is not a number above 0 and up
replay --pool 4 --trainers quality:0 | '0' trainers: expected a number
replay --loads 0 | Invalid value for '--loads'
replay --seeds 0 | Invalid value for '--seeds'
replay --seeds 1 --priority wait | no priority 'wait'. Choose one of
replay --seeds 1 --priority fair | fair would be held against itself; nothing was
replay holes.csv --pool 4 --seeds 1 | either a log or --pool N, and
replay --seeds 1 --nodes 4 | --nodes is for replays of a log; nothing
replay --loads 1 --start 9 | --start is for replays of a log; nothing
replay --seeds 1 --better lower | --better is for --curves; nothing
replay --seeds 1 --trainers hps
    | over --seeds and --loads does not go with --trainers hps
replay --seeds 1 --policy lookahead | go with --policy lookahead: it
replay --seeds 1 --policy equal | --against fair is no policy, and
replay --loads 1 --load 2 | does not go with both --load and --loads
replay --pool 4 --processes 2 | --processes is for replays with --seeds
""".replace("\n    |", " |")
"""The words of a call, and a part of the error; a row a line, or two."""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        *(row.split(" | ") for row in USAGE.strip().splitlines()),
        ("replay holes.csv --priority fun", f"{priority_names()[-1]}. Nothing was"),
    ],
)
def test_a_call_that_makes_no_sense_exits_with_64(words: str, said: str) -> None:
    assert said in refused(*words.split(), code=64)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "torn.gz",
            gzip.compress(HOLES.encode() * 99, mtime=0)[:40],
            "the gzip file is cut",
        ),
        ("junk.gz", b"\x1f\x8b" + bytes(range(64)), "the gzip file is damaged"),
        ("junk", bytes(range(256)) * 9, "line 1: not a scheduler log: found binary"),
        ("empty", b"", "the file is empty"),
        ("short.swf", SWF.encode() + b"2 0 0 10\n", "line 3"),
        ("negative.swf", SWF.replace("1 0 0 10", "1 -5 0 10").encode(), "line 2"),
        ("twice.csv", HOLES.encode() + b"0,100,200\n", "line 7"),
        ("backwards.csv", HOLES.encode() + b"4,100,50\n", "line 7"),
        ("nan.csv", HOLES.encode() + b"4,nan,50\n", "line 7"),
        ("jobs.csv", JOBS.encode() + b"d,0,-7,300,1,600,u\n", "line 5"),
        ("huge.swf", SWF.replace("s: 4", "s: 9999999").encode(), "larger than any"),
    ],
)
def test_a_log_that_is_not_what_it_claims_exits_with_65(
    name: str, content: bytes, said: str
) -> None:
    Path(name).write_bytes(content)

    ran = run("replay", name, "--out", "out")

    assert ran.code == 65
    line = one_line(ran.stderr)
    assert name in line
    assert said in line
    assert "Nothing was done." in line
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("job,submit_s,start_s,run_s,nodes\na,0,0,9,3\n", "say so in its header"),
        (
            "job,submit_s,start_s,run_s,nodes\na,0,-1,9,3\n",
            "1 job left out: the log does not tell when they started. If the log",
        ),
        ("job,submit_s,run_s,nodes\na,0,-1,3\n", "1 job left out: they never ran."),
    ],
)
def test_a_log_without_a_hole_exits_with_65(content: str, said: str) -> None:
    Path("full.csv").write_text(content)

    ran = run("replay", "full.csv")

    assert ran.code == 65
    assert "full.csv: no node is idle while its jobs run" in one_line(ran.stderr)
    assert said in ran.stderr


def test_a_lack_of_memory_exits_with_71() -> None:
    assert exit_code(MemoryError()) == 71
    assert error_line(MemoryError()).startswith("there is not enough memory for this;")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SlurmMissingError("no squeue"), 69),
        (SlurmRefusedError("no such partition"), 69),
        (SlurmUnavailableError("no answer"), 75),
        (RequestsSpentError("enough"), 75),
        (UnreadableOutputError("squeue", 1, "junk", "no table"), 76),
    ],
)
def test_errors_of_slurm_are_told_apart(error: SlurmError, code: int) -> None:
    assert exit_code(error) == code


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become somebody else")
def test_a_log_that_may_not_be_read_exits_with_66() -> None:
    nobody = 65_534
    # pytest's own folders let nobody pass at all.
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "holes.csv"
        log.write_text(HOLES)
        # Also imports all that a user who may not read our Python cannot.
        assert run("replay", log, cwd=log.parent).code == 0
        log.chmod(0)
        log.parent.chmod(0o755)
        os.setresuid(nobody, nobody, 0)
        try:
            ran = run("replay", log, cwd=log.parent)
        finally:
            os.setresuid(0, 0, 0)

    assert ran.code == 66
    assert "holes.csv: Permission denied. Nothing was done." in one_line(ran.stderr)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("replay gone.csv", "cannot read gone.csv: No such file or directory. Nothing"),
        ("trace info .", "cannot read .: Is a directory. Nothing was done."),
        (
            "replay holes.csv --trainers gone.toml",
            "cannot read trainers file gone",
        ),
        ("replay holes.csv --trainers hsp", "no file 'hsp'; nothing was replayed. Did"),
    ],
)
def test_a_file_that_is_not_there_exits_with_66(words: str, said: str) -> None:
    assert said in refused(*words.split(), code=66)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("grwo = '18s'", 'trainer "a" (number 1): unknown key "grwo". Did you mean'),
        ("grow = '18m'", 'grow = "18m", expected a duration with its unit'),
        ("grow = 18", "grow = 18, expected a duration with its unit"),
        ("count = = 1", "this is not TOML"),
    ],
)
def test_a_trainers_file_that_cannot_be_exits_with_78(text: str, said: str) -> None:
    head = '[[trainer]]\nname = "a"\nsamples = 10\nmodel = "vgg16"\n'
    Path("bad.toml").write_text(f"{head}{text}\n")

    ran = run("replay", "holes.csv", "--trainers", "bad.toml")

    assert ran.code == 78
    line = one_line(ran.stderr)
    assert line.startswith("bad.toml: ")
    assert said in line


def test_names_that_move_the_cursor_are_shown_harmless() -> None:
    assert "gone\\x1b[2J .csv" in refused("replay", "gone\x1b[2J\n.csv", code=66)
