"""``ft.read_log`` and its frames, which are read back from Parquet as they were."""

import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import freetrain as ft
from freetrain.errors import MissingInputError, UsageError
from logs.format import Content
from logs.frames import parquet_as_csv
from logs.generate import GPU_SAMPLE_NAME, SAMPLE_NAME, shipped_sample
from logs.trace import (
    IdleTrace,
    JobTrace,
    UnreadableLogError,
    UnusableLogError,
)

HOLES = """\
# 3 nodes, t0_unix=1641021254, ends_s=900
node,idle_start_s,idle_end_s
0,0,600
2,100,700
0,650,800
"""


@pytest.fixture
def week() -> ft.Log:
    return ft.read_log(shipped_sample(SAMPLE_NAME))


@pytest.fixture
def idle(tmp_path: Path) -> ft.Log:
    path = tmp_path / "holes.csv"
    path.write_text(HOLES)
    return ft.read_log(path)


def test_jobs_are_a_row_each_with_typed_columns(week: ft.Log) -> None:
    jobs = week.jobs

    assert isinstance(week.trace, JobTrace)
    assert len(jobs) == len(week.trace.jobs)
    assert jobs["run_s"].sum() == pytest.approx(sum(j.run_s for j in week.trace.jobs))
    numbers = ("submit_s", "start_s", "run_s", "req_s")
    assert {str(jobs[name].dtype) for name in numbers} == {"float64"}
    assert str(jobs["nodes"].dtype) == "int64"


def test_a_log_says_when_its_second_0_was(idle: ft.Log) -> None:
    assert idle.start == pd.Timestamp("2022-01-01 07:14:14", tz="UTC")


@pytest.mark.parametrize("name", [SAMPLE_NAME, GPU_SAMPLE_NAME])
def test_jobs_come_back_from_parquet_as_they_were(tmp_path: Path, name: str) -> None:
    log, path = ft.read_log(shipped_sample(name)), tmp_path / "jobs.parquet"

    log.jobs.to_parquet(path)
    back = ft.read_log(path)

    pd.testing.assert_frame_equal(back.jobs, log.jobs)
    assert isinstance(log.trace, JobTrace)
    assert isinstance(back.trace, JobTrace)
    assert back.trace.units == log.trace.units
    assert back.start == log.start
    pd.testing.assert_frame_equal(back.holes(), log.holes())


def test_a_part_of_a_frame_comes_back_from_parquet(
    tmp_path: Path, week: ft.Log
) -> None:
    path, jobs = tmp_path / "large.parquet", week.jobs
    large = jobs[jobs["nodes"] > 64]

    large.to_parquet(path)

    assert ft.read_log(path).jobs["job"].tolist() == large["job"].tolist()
    assert ft.read_log(path).info().machine_nodes == 512


def test_holes_come_back_from_parquet_as_they_were(
    tmp_path: Path, week: ft.Log
) -> None:
    path, found = tmp_path / "holes.parquet", week.holes()

    found.to_parquet(path)
    back = ft.read_log(path)

    pd.testing.assert_frame_equal(back.holes(), found)
    assert isinstance(back.trace, IdleTrace)
    assert back.trace.span_s == week.info().span_s


def test_parquet_of_gpu_jobs_with_dates_is_read_as_such_csv(tmp_path: Path) -> None:
    path = tmp_path / "cluster.parquet"
    frame = pd.DataFrame(
        {
            "job_id": [7, 8],
            "gpu_num": [2, 4],
            "submit_time": pd.to_datetime(["2024-03-01 10:00", "2024-03-01 10:05"]),
            "start_time": pd.to_datetime(["2024-03-01 10:01", None]),
            "end_time": pd.to_datetime(["2024-03-01 11:01", None]),
            "time_limit": [7200, 600],
            "cluster": ["a", "b"],
        }
    )
    frame.to_parquet(path)

    log = ft.read_log(path, gpus_per_node=4)

    assert log.jobs["run_s"].tolist() == [3600.0, 0.0]
    assert log.jobs["gpus"].tolist() == [2, 4]
    assert log.start == pd.Timestamp("2024-03-01 10:00", tz="UTC")


def test_what_parquet_says_of_jobs_is_read_to_the_letter(tmp_path: Path) -> None:
    path = tmp_path / "jobs.parquet"
    frame = pd.DataFrame(
        {
            "job": ["#c", "a,b", "c"],
            "submit_s": [0.0, 0.0, 0.0],
            "start_s": [0.0, 1.0, 2.0],
            "run_s": [10.0, 10.0, 10.0],
            "nodes": [1, 1, 1],
            "req_s": [60.0, 60.0, 60.0],
            "user": pd.array([9_007_199_254_740_993, None, 1001], dtype="Int64"),
        }
    )
    frame.to_parquet(path)

    jobs = ft.read_log(path).jobs

    assert jobs["job"].tolist() == ["#c", "a,b", "c"]
    assert jobs["user"].astype(str).tolist()[::2] == ["9007199254740993", "1001"]


def test_nodes_have_their_holes_and_idle_time(idle: ft.Log) -> None:
    nodes = idle.nodes

    assert nodes["node"].tolist() == ["0", "1", "2"]
    assert nodes["holes"].tolist() == [2, 0, 1]
    assert nodes["idle_s"].tolist() == [750.0, 0.0, 600.0]


def test_nodes_that_are_idle_together_are_a_row_each(tmp_path: Path) -> None:
    path = tmp_path / "together.csv"
    path.write_text("node,idle_start_s,idle_end_s,nodes\n1,0,60,2\n0,10,70,1\n")

    found = ft.read_log(path).holes()

    assert found["node"].astype(str).tolist() == ["1", "2", "0"]
    assert found["idle_end_s"].tolist() == [60.0, 60.0, 70.0]


def test_idle_time_of_nodes_and_holes_agree(week: ft.Log) -> None:
    found = week.holes()
    lasts_s = found["idle_end_s"] - found["idle_start_s"]

    assert lasts_s.sum() == pytest.approx(week.nodes["idle_s"].sum())
    assert week.nodes["idle_s"].sum() == pytest.approx(week.info().idle_node_s)


def test_jobs_of_a_log_of_holes_are_refused(idle: ft.Log) -> None:
    with pytest.raises(UsageError, match="holds idle intervals and no jobs"):
        _ = idle.jobs


def test_a_log_that_is_not_there_is_an_error_as_of_the_command(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"cannot read .*no\.csv: No such file"):
        ft.read_log(tmp_path / "no.csv")


def test_an_unknown_schedule_is_refused_with_those_that_are_known(
    week: ft.Log,
) -> None:
    with pytest.raises(UsageError, match="expected one of recorded, easy, slurm"):
        week.holes(schedule="fifo")  # type: ignore[arg-type]


def test_a_damaged_parquet_file_is_an_unreadable_log(
    tmp_path: Path, week: ft.Log
) -> None:
    path = tmp_path / "jobs.parquet"
    week.jobs.head(100).to_parquet(path)
    path.write_bytes(path.read_bytes()[:-200])

    with pytest.raises(UnreadableLogError, match="the Parquet file is damaged"):
        ft.read_log(path)


def test_a_parquet_file_that_unpacks_to_more_than_is_read_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "zeros.parquet"
    pd.DataFrame({"job": np.zeros(100_000)}).to_parquet(path)
    content = Content(str(path), path.read_bytes())
    assert len(content.raw) < 10_000

    with pytest.raises(UnreadableLogError, match="more than 10,000 bytes"):
        parquet_as_csv(content, most_bytes=10_000)


def test_without_pyarrow_a_parquet_file_says_what_to_install(
    tmp_path: Path, week: ft.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jobs.parquet"
    week.jobs.head(1).to_parquet(path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(UnusableLogError, match=r"pip install 'freetrain\[data\]'"):
        ft.read_log(path)


def test_a_log_is_shown_in_one_line(week: ft.Log) -> None:
    assert re.fullmatch(r"<Log .*week-512.swf: [\d,]+ jobs>", repr(week))
