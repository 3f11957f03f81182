"""``import freetrain``, and ``ft.replay`` beside the command."""

import doctest
import inspect
import json
import math
import pydoc
import subprocess
import sys
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import pytest

import freetrain as ft
from freetrain.api import replay as of_replay
from freetrain.errors import CannotWriteError, UsageError
from freetrain.report.drawings import DRAWINGS
from logs.generate import GPU_SAMPLE_NAME, SAMPLE_NAME, shipped_sample
from tests.cli.commands import run

HEAVY = {"jinja2", "numpy", "pandas", "plotly", "pulp", "pyarrow", "scipy"}


def in_python(program: str) -> str:
    """Return what a fresh interpreter prints under *program*."""
    return subprocess.run(  # noqa: S603 - this very program
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout


def test_importing_freetrain_takes_no_time_and_no_library() -> None:
    program = (
        "import sys, time; began = time.process_time(); import freetrain; "
        "print(time.process_time() - began, *sys.modules)"
    )
    found = [in_python(program).split() for _ in range(5)]

    assert min(float(words[0]) for words in found) < 0.1
    assert not HEAVY & set(found[0])


def test_a_tick_and_an_agent_import_no_pandas() -> None:
    program = (
        "import sys, freetrain.cli.tick, freetrain.tick.tick, freetrain.agent.agent; "
        "print(*sys.modules)"
    )
    assert not {"pandas", "pyarrow", "plotly"} & set(in_python(program).split())


def test_a_replay_without_a_broker_loads_no_broker_and_no_checks_of_files() -> None:
    program = "import sys, freetrain.cli.replay_run; print(*sys.modules)"
    broker = {"freetrain.replay.loop", "freetrain.config.document", "slurm.records"}
    assert not broker & set(in_python(program).split())


def test_every_name_of_the_interface_is_there_and_has_a_docstring() -> None:
    for name in ft.__all__:
        assert name in dir(ft)
        assert getattr(ft, name).__doc__
    for name in ("read_log", "replay", "holes", "status", "submit"):
        assert f"ft.{name}(" in str(ft.__doc__)
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        ft.no_such_name  # noqa: B018


def test_replay_can_be_called_whatever_was_imported_before() -> None:
    program = (
        "import freetrain as ft; first = ft.replay; import freetrain.replay.run; "
        "import freetrain.replay.pool as pool; "
        "print(first is ft.replay, callable(ft.replay), pool.DAY_S)"
    )
    assert in_python(program).split() == ["True", "True", "86400.0"]
    assert inspect.signature(ft.replay) == inspect.signature(of_replay.replay)


def test_help_shows_how_replay_is_called() -> None:
    shown = pydoc.plain(pydoc.render_doc(ft.replay))

    assert "ft.replay(log: 'Log | str | Path | None' = None, *, pool" in shown
    assert "policies: Which to compare; empty for all." in shown


def test_the_examples_of_docstrings_run() -> None:
    assert doctest.testmod(of_replay) == (0, 3)


@pytest.fixture(scope="module")
def result() -> ft.Replay:
    log = ft.read_log(shipped_sample(SAMPLE_NAME))
    return ft.replay(log, policies=["freetrain", "equal"], days=1, parallel=5)


def test_the_command_of_a_result_gives_its_figures(result: ft.Replay) -> None:
    _, *words = result.command.split()
    shown = json.loads(run(*words, "--json").stdout)

    assert [each["policy"] for each in shown] == list(result.summary.index)
    for record, (_, row) in zip(shown, result.summary.iterrows(), strict=True):
        for name in ("samples", "coverage", "finished", "preemptions", "pool_node_s"):
            assert row[name] == record[name], name
        assert row["slowdown_p50"] == record["slowdown"]["p50"]


def test_every_parameter_is_in_the_command_of_a_result(tmp_path: Path) -> None:
    jobs, curve = tmp_path / "jobs.csv", tmp_path / "curves/net/a.csv"
    rows = "".join(f"{n},{60 * n},-1,{300 + n},1,600,1\n" for n in range(40))
    jobs.write_text(f"# 4 nodes\njob,submit_s,start_s,run_s,nodes,req_s,user\n{rows}")
    curve.parent.mkdir(parents=True)
    curve.write_text(
        "samples,metric\n" + "".join(f"{n},{1 / n}\n" for n in range(1, 9))
    )
    (tmp_path / "leaves.txt").write_text("SwitchName=s1 Level=0 Nodes=[0-3]\n")

    result = ft.replay(
        jobs,
        trainers="quality:3",
        policies=["lookahead"],
        priorities=["slaq"],
        settings={"horizon_s": 600},
        forecasters=["life-table"],
        against="fair",
        accounting="published",
        schedule="easy",
        passes="event",
        nodes=3,
        start=60,
        days=0.02,
        load=2,
        curves=curve.parents[1],
        better="lower",
        parallel=2,
        every=120,
        requeue=True,
        learned=True,
        topology=tmp_path / "leaves.txt",
        t_fwd=60,
        cost_factor=0.5,
        solver="cbc",
        seed=3,
    )

    assert result.command == (
        f"freetrain replay {jobs} --trainers quality:3 --load 2 "
        f"--curves {curve.parents[1]} --better lower --policy lookahead "
        f"--priority slaq --priority fair --set horizon_s=600 --against fair "
        f"--topology {tmp_path}/leaves.txt --forecaster life-table --every 120 "
        f"--accounting published --schedule easy --passes event --nodes 3 --start 60 "
        f"--days 0.02 --parallel 2 --t-fwd 60 --cost-factor 0.5 --solver cbc --seed 3 "
        f"--requeue --learned"
    )


def test_frames_are_typed_and_agree_with_the_figures(result: ft.Replay) -> None:
    timeline, trainers, events = result.timeline, result.trainers, result.events

    for name, row in result.summary.iterrows():
        own = timeline[timeline["policy"] == name]
        until_s = [*own["time_s"].iloc[1:], row["end_s"]]
        held = (
            own["used_nodes"] * (pd.Series(until_s, own.index) - own["time_s"])
        ).sum()
        assert held == pytest.approx(row["used_node_s"])
        done = trainers[trainers["policy"] == name]
        assert done["finished_s"].notna().sum() == row["finished"]
        assert done["samples"].sum() == pytest.approx(row["samples"])
        ended = events[(events["policy"] == name) & (events["event"] == "finished")]
        assert len(ended) == row["finished"]
    assert str(timeline["time_s"].dtype) == "float64"
    assert str(trainers["slowdown"].dtype) == "float64"
    assert str(events["nodes"].dtype) == "int64"
    assert not {str(kind) for kind in result.summary.dtypes[3:]} & {"object", "str"}, (
        "untyped"
    )


@pytest.mark.parametrize("policy", ["equal", "lookahead"])
def test_the_report_is_the_folder_of_the_command(policy: str, tmp_path: Path) -> None:
    log = ft.read_log(shipped_sample(SAMPLE_NAME))
    result = ft.replay(
        log,
        policies=[policy, "freetrain"],
        days=0.2,
        parallel=5,
        forecasts=policy == "lookahead",
    )
    page = result.report(tmp_path / "ours")
    _, *words = result.command.split()
    assert run(*words, "--out", tmp_path / "theirs").code == 0

    theirs = {path.name: path.read_bytes() for path in (tmp_path / "theirs").iterdir()}
    assert ("affinity.csv" in theirs) == (policy == "lookahead")
    assert {path.name: path.read_bytes() for path in page.parent.iterdir()} == theirs
    with pytest.raises(CannotWriteError, match="is not empty"):
        result.report(tmp_path / "ours")


def test_every_drawing_can_be_plotted() -> None:
    drawn = ft.replay(
        pool=3, trainers="quality:4", policies=["freetrain"], days=3, seed=1
    )
    for name in DRAWINGS:
        assert isinstance(drawn.plot(name), go.Figure)
        assert name in str(of_replay.Replay.plot.__doc__)
    with pytest.raises(UsageError, match="choose of samples, losses"):
        drawn.plot("pie")


def test_leases_of_gpus_are_replayed_as_the_command_does() -> None:
    log = ft.read_log(shipped_sample(GPU_SAMPLE_NAME))
    words = ["--policy", "equal", "--days", "2", "--gpus-per-lease", "2", "--json"]
    shown = json.loads(run("replay", shipped_sample(GPU_SAMPLE_NAME), *words).stdout)

    small = ft.replay(log, policies=["equal"], days=2, gpus_per_lease=2)

    assert small.summary["samples"].item() == shown[0]["samples"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "expected either a log or --pool N"),
        ({"pool": 3, "days": -1}, "--days -1: expected a number above 0"),
        ({"pool": 3, "days": math.nan}, "--days nan: expected a number above 0"),
        ({"pool": 0}, "--pool 0: expected a number of 1 or more"),
        ({"pool": 3, "policies": ["best"]}, "there is no policy 'best'; choose of"),
        ({"pool": 3, "priorities": ["best"]}, "no priority 'best'"),
        ({"pool": 3, "forecasters": ["best"]}, "there is no forecaster 'best'"),
        ({"pool": 3, "accounting": "free"}, "--accounting free: expected one of real"),
        ({"pool": 3, "start": 5.0}, "--start is for replays of a log"),
        ({"pool": 3, "parallel": 0}, "0 trainers at a time: expected 1 or more"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused(
    options: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        ft.replay(**options)  # type: ignore[arg-type]


def test_one_policy_may_be_said_without_a_list() -> None:
    result = ft.replay(pool=2, days=0.01, policies="equal")

    assert list(result.summary.index) == ["equal"]
    assert repr(result).startswith("<Replay: freetrain replay --pool 2 ")
