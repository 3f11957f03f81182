"""Logs of any format: told from their content; the published ones, in figures."""

import gzip
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logs.csv_tables import (
    IDLE_COLUMNS,
    Fragments,
    read_head,
    read_line_by_line,
    read_plain,
)
from logs.format import Content, Tolerance, read_content
from logs.read import formats, read_trace, recognise
from logs.summary import Distribution, IdleSummary, JobSummary, summarise
from logs.swf import Swf
from logs.trace import Job, JobTrace, UnreadableLogError
from tests.logs.log_content import RECORDED, content, read_again

SWF_LINE = b"1 0 10 100 4 -1 -1 4 3600 -1 1 3 1 -1 -1 -1 -1 -1\n"
*_FIRST, _LAST = [each.expected for each in formats()]
KNOWN = f"expected {', '.join(_FIRST)} or {_LAST}"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        (["; Version: 2.2"], "swf"),
        (["", "  1 0 10 100 4 -1"], "swf"),
        (["#", "JobID|State"], "sacct"),
        (["# x", "", "user,job,nodes,run_s"], "jobs-csv"),
        (["idle_start_s,node"], "fragments"),
    ],
)
def test_a_format_is_recognised_by_the_first_telling_line(
    lines: list[str], name: str
) -> None:
    assert recognise(content(*lines)).name == name


@pytest.mark.parametrize(
    "name", ["checkpointed.swf", "requeued.sacct", "named.csv", "jobs.csv"]
)
def test_neither_name_nor_compression_matters(name: str, tmp_path: Path) -> None:
    raw = (RECORDED / name).read_bytes()
    packed, plain = tmp_path / "log.txt", tmp_path / "log.gz"
    packed.write_bytes(gzip.compress(raw[:50]) + gzip.compress(raw[50:]))
    plain.write_bytes(b"\xef\xbb\xbf" + raw.replace(b"\n", b"\r\n"))

    assert read_content(packed).raw == raw
    one, other = read_trace(packed), read_trace(plain)
    assert type(one) is type(other)
    assert one.comments == other.comments
    if isinstance(one, JobTrace) and isinstance(other, JobTrace):
        assert one.jobs == other.jobs


NO_LOG = "not a scheduler log: found"
LONG = f"'{'x' * 40}'... (1000000 characters)"
DAMAGED = "the gzip file is damaged"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", ": the file is empty"),
        (b" \n\n", ": the file is empty"),
        (gzip.compress(b"", mtime=0), ": the file is empty"),
        (b"# x\n", f": there is nothing but comments in it; {KNOWN}"),
        (b"hello\n", f", line 1: {NO_LOG} 'hello'; {KNOWN}"),
        (b"\n\x7fELF\x00\x01\xff", f", line 2: {NO_LOG} binary data; {KNOWN}"),
        (b"x" * 1_000_000, f", line 1: {NO_LOG} {LONG}; {KNOWN}"),
        (b"1 2 3\n", ", line 1: found 3 fields; expected 18"),
        (
            gzip.compress(SWF_LINE * 100, mtime=0)[:-12],
            ": the gzip file is cut off; copy it again",
        ),
        (
            gzip.compress(SWF_LINE, mtime=0)[:-8] + b"12345678",
            f": {DAMAGED} (CRC check failed 0x34333231 != 0x18e44106); copy it again",
        ),
        (
            b"\x1f\x8bnonsense",
            f": {DAMAGED} (Unknown compression method); copy it again",
        ),
    ],
    ids=range(11),
)
def test_a_file_that_is_no_log_says_what_it_is_instead(
    raw: bytes, message: str, log: Path
) -> None:
    log.write_bytes(raw)

    with pytest.raises(UnreadableLogError) as caught:
        read_trace(log)

    assert str(caught.value) == f"{log}{message}"


def test_a_missing_file_or_a_folder_is_the_systems_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_trace(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError):
        read_trace(tmp_path)


@pytest.mark.parametrize("bad_lines", [0, 1, 2, 3])
def test_as_many_bad_lines_as_allowed_are_skipped_and_counted(
    bad_lines: int, log: Path
) -> None:
    log.write_bytes(SWF_LINE + b"junk\n" * bad_lines)

    if bad_lines <= 2:
        assert read_trace(log, skip_bad=2).skipped_lines == bad_lines
        return
    with pytest.raises(UnreadableLogError) as caught:
        read_trace(log, skip_bad=2)
    assert caught.value.can_skip
    assert str(caught.value) == (
        f"{log}, line 4: found 1 fields; expected 18 "
        "(2 bad lines, all that may be, were skipped)"
    )


def test_a_file_that_is_no_log_cannot_be_skipped(log: Path) -> None:
    log.write_bytes(b"hello\n")

    with pytest.raises(UnreadableLogError) as caught:
        read_trace(log)

    assert not caught.value.can_skip


@pytest.mark.parametrize("name", sorted(path.name for path in RECORDED.iterdir()))
@given(cut=st.data())
def test_a_damaged_log_reads_or_is_refused_and_never_breaks(
    name: str, cut: st.DataObject
) -> None:
    raw = (RECORDED / name).read_bytes()
    place = cut.draw(st.integers(0, len(raw)))
    junk = cut.draw(st.binary(max_size=6) | st.sampled_from((b"\0", b"\r", b"\xff")))
    damaged = Content("log", raw[:place] + junk + raw[place + len(junk) :])

    try:
        recognise(damaged).read(damaged, skip_bad=cut.draw(st.integers(0, 1)))
        message = ""
    except UnreadableLogError as error:
        message = str(error)
    assert "\n" not in message
    assert len(message) < 1000


plain_and_gzipped = pytest.mark.parametrize(
    "pack", [bytes, gzip.compress], ids=["plain", "gzipped"]
)


@plain_and_gzipped
def test_no_more_is_read_than_may_be(pack: Callable[[bytes], bytes], log: Path) -> None:
    log.write_bytes(pack(SWF_LINE * 9_000))

    assert read_content(log, most_bytes=len(SWF_LINE) * 9_000).raw
    with pytest.raises(UnreadableLogError, match="more than 400,000 bytes in it"):
        read_content(log, most_bytes=400_000)


def test_a_file_without_an_end_is_refused() -> None:
    with pytest.raises(UnreadableLogError, match="more than 5,000,000 bytes in it"):
        read_content(Path("/dev/zero"), most_bytes=5_000_000)


@plain_and_gzipped
def test_a_log_may_come_through_a_pipe(
    pack: Callable[[bytes], bytes], log: Path
) -> None:
    os.mkfifo(log)
    packed = pack(SWF_LINE)
    writer = threading.Thread(target=log.write_bytes, args=(packed,), daemon=True)
    writer.start()

    trace = read_trace(log)

    writer.join()
    assert isinstance(trace, JobTrace)
    assert len(trace.jobs) == 1


@pytest.mark.parametrize(
    "head",
    [
        b"; MaxProcs: 99999999999999\n" + SWF_LINE,
        b"; MaxNodes: 1000001\n; MaxProcs: 4000004\n" + SWF_LINE,
        b"job,submit_s,start_s,run_s,nodes\na,0,0,10,3000000\n",
    ],
)
def test_a_machine_larger_than_any_is_refused(head: bytes, log: Path) -> None:
    log.write_bytes(head)

    with pytest.raises(UnreadableLogError, match="larger than any machine"):
        read_trace(log)


def test_the_largest_machines_there_are_can_be_read(log: Path) -> None:
    log.write_bytes(b"; MaxNodes: 40960\n; MaxProcs: 10649600\n" + SWF_LINE)

    trace = read_trace(log)

    assert isinstance(trace, JobTrace)
    assert (trace.units, trace.units_per_node) == (10_649_600, 260)


def test_a_log_of_jobs_is_summed_up() -> None:
    jobs = (
        Job("1", 0.0, 10.0, 100.0, 4, 50.0, "ada"),
        Job("2", 5.0, 60.0, 50.0, 8, None, "bob"),
        Job("3", 6.0, None, 30.0, 2, 60.0, "ada"),
        Job("4", 7.0, None, 0.0, 16, 60.0),
    )

    assert summarise(JobTrace("log", "swf", jobs, 8, units_per_node=2)) == JobSummary(
        source="log",
        log_format="swf",
        unix_start_s=None,
        skipped_lines=0,
        jobs=4,
        never_ran_jobs=1,
        without_start_jobs=1,
        without_limit_jobs=1,
        over_limit_jobs=1,
        oversized_jobs=1,
        users=2,
        machine_units=8,
        units_per_node=2,
        machine_nodes=4,
        first_submit_s=0.0,
        first_start_s=10.0,
        # Nodes of two units. 10-60: job 1 on nodes 0 and 1; 60-110: job 2 on the
        # other two as well, which is all it gets. Idle: 4 x 10 + 2 x 50.
        span_s=110.0,
        used_node_s=2 * 50.0 + 4 * 50.0,
        partly_used_node_s=0.0,
        idle_node_s=140.0,
        utilisation=300 / 440,
        low_use_share=60 / 110,
        mean_idle_nodes=140 / 110,
        busy_mean_idle_nodes=0.0,
        peak_units=12,
        overcommitted_s=50.0,
        size_units=Distribution(median=6.0, mean=7.5, most=16.0),
        run_s=Distribution(median=50.0, mean=60.0, most=100.0),
        wait_s=Distribution(median=32.5, mean=32.5, most=55.0),
        cautions=(
            (
                "1 of 3 jobs that ran have no start in the log, and are not in use, "
                "idle time and waits: holes and replay simulate starts with "
                "--schedule easy"
            ),
        ),
    )


def job_summary(*jobs: Job, units: int) -> JobSummary:
    summary = summarise(JobTrace("log", "swf", jobs, units))
    assert isinstance(summary, JobSummary)
    return summary


def test_a_job_that_ends_when_another_starts_makes_room_for_it() -> None:
    jobs = (Job("1", 0.0, 0.0, 10.0, 4, None), Job("2", 0.0, 10.0, 10.0, 4, None))

    summary = job_summary(*jobs, units=4)

    assert (summary.peak_units, summary.overcommitted_s) == (4, 0.0)


def test_a_log_in_which_nothing_started_has_no_use() -> None:
    summary = job_summary(Job("1", 0.0, None, 9.0, 4, None), units=4)

    assert (summary.span_s, summary.utilisation, summary.peak_units) == (0.0, 0.0, 0)
    assert summary.wait_s == Distribution(0.0, 0.0, 0.0)
    (caution,) = summary.cautions
    assert caution.startswith("no job has a start in the log")


def test_jobs_without_a_start_are_told_beside_those_that_have_one() -> None:
    jobs = (Job("1", 0.0, 0.0, 10.0, 4, None), Job("2", 0.0, None, 9.0, 4, None))

    assert job_summary(*jobs, units=4).cautions
    assert job_summary(jobs[0], units=4).cautions == ()


def test_a_log_of_idle_intervals_is_summed_up() -> None:
    log = content("node,idle_start_s,idle_end_s", "0,0,600", "1,100,300", "0,600,1000")

    assert summarise(Fragments().read(log)) == IdleSummary(
        source="log",
        log_format="fragments",
        unix_start_s=None,
        skipped_lines=0,
        machine_nodes=2,
        ever_idle_nodes=2,
        span_s=1000.0,
        holes=3,
        idle_node_s=1200.0,
        idle_share=0.6,
        low_use_share=1.0,
        mean_idle_nodes=1.2,
        busy_mean_idle_nodes=0.0,
        peak_idle_nodes=2,
        hole_s=Distribution(median=400.0, mean=400.0, most=600.0),
        short_hole_share=2 / 3,
        long_hole_time_share=0.5,
    )


def test_outages_are_kept_apart_from_ordinary_idle_time() -> None:
    jobs = (
        Job("1", 0.0, 0.0, 100.0, 9, None),
        Job("2", 0.0, 100.0, 50.0, 5, None),
        Job("3", 0.0, 150.0, 50.0, 7, None),
    )

    summary = job_summary(*jobs, units=10)

    assert summary.low_use_share == 0.25
    assert summary.mean_idle_nodes == (100 * 1 + 50 * 5 + 50 * 3) / 200
    assert summary.busy_mean_idle_nodes == (100 * 1 + 50 * 3) / 150


def test_outages_show_in_idle_intervals_too() -> None:
    log = content(
        "# 4 nodes",
        "node,idle_start_s,idle_end_s",
        *("0,0,100", "1,60,80", "2,200,400"),
    )

    summary = summarise(Fragments().read(log))

    assert isinstance(summary, IdleSummary)
    assert summary.low_use_share == 20 / 400
    assert summary.busy_mean_idle_nodes == (80 * 1 + 200 * 1) / 380
    assert summary.peak_idle_nodes == 2


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
    head = read_head(content, needed=IDLE_COLUMNS)

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
    assert read_again(Swf(), trace) == trace
