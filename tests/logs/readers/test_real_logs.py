import io
from pathlib import Path

import pytest

from logs.fragments import (
    COLUMNS,
    read_line_by_line,
    read_plain,
)
from logs.lines import (
    Content,
    Tolerance,
    read_content,
)
from logs.read import read_trace
from logs.summary import IdleSummary, JobSummary, summarise
from logs.swf import Swf
from logs.table import read_head
from logs.trace import JobTrace

pytestmark = pytest.mark.shared

SUMMIT = "logs/summit_2021-02.fragments.csv.gz"


def test_summit_has_the_holes_that_are_published(shared: Path) -> None:
    summary = summarise(read_trace(shared / SUMMIT))

    assert isinstance(summary, IdleSummary)
    assert summary.machine_nodes == 4734
    assert summary.holes == 423_502
    assert round(summary.idle_node_s / 3600) == 140_182
    assert summary.hole_s.median == 475
    assert round(summary.hole_s.mean) == 1192
    assert round(summary.mean_idle_nodes) == 391
    assert round(summary.idle_share, 3) == 0.083
    assert round(summary.short_hole_share, 2) == 0.56
    assert round(summary.long_hole_time_share, 2) == 0.89
    assert summary.peak_idle_nodes == 4654
    assert round(summary.span_s / 86400, 1) == 14.9


def test_summit_reads_the_same_on_both_ways(shared: Path) -> None:
    content = read_content(shared / SUMMIT)
    head = read_head(content, needed=COLUMNS)

    fast = read_plain(content, head)
    exact = read_line_by_line(content, head, Tolerance("log", 0))

    assert fast is not None
    assert fast.node_names == exact.node_names
    assert (fast.node == exact.node).all()
    assert (fast.start_s == exact.start_s).all()
    assert (fast.end_s == exact.end_s).all()


def test_theta_has_the_jobs_and_the_machine_that_its_comment_names(
    shared: Path,
) -> None:
    summary = summarise(read_trace(shared / "logs/theta_2022.csv.gz"))

    assert isinstance(summary, JobSummary)
    assert (summary.log_format, summary.jobs) == ("jobs-csv", 23_911)
    assert summary.machine_nodes == 4360
    assert summary.unix_start_s == 1641021254
    assert summary.without_start_jobs == summary.never_ran_jobs == 0
    assert summary.oversized_jobs == 0
    assert round(summary.low_use_share, 2) == 0.2
    assert round(summary.busy_mean_idle_nodes) == 318


def test_kth_reads_the_same_after_it_was_written(shared: Path) -> None:
    trace = read_trace(shared / "logs/KTH-SP2-1996.swf.gz")
    assert isinstance(trace, JobTrace)
    assert (len(trace.jobs), trace.units, trace.units_per_node) == (28_489, 100, 1)
    assert trace.unix_start_s == 843_480_031
    stream = io.StringIO()

    Swf().write(trace, stream)

    assert Swf().read(Content(trace.source, stream.getvalue().encode())) == trace
