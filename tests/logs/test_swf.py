"""The Standard Workload Format, read and written."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logs.read import read_trace
from logs.swf import CARRIED, Swf, swf_header
from logs.trace import Job, JobTrace, UnusableLogError
from tests.logs.log_content import (
    RECORDED,
    bad_lines,
    content,
    read_again,
    refusal,
    written,
)

GOOD = "1 0 10 100 4 -1 -1 4 3600 -1 1 3 1 -1 -1 -1 -1 -1"


def test_a_recorded_log_is_read_with_its_header_and_every_field() -> None:
    trace = read_trace(RECORDED / "checkpointed.swf")

    assert isinstance(trace, JobTrace)
    assert trace.log_format == "swf"
    assert (trace.units, trace.units_per_node) == (64, 4)
    assert trace.unix_start_s == 1e9
    assert trace.comments == (
        "Version: 2.2",
        "Computer: a small test machine",
        "UnixStartTime: 1000000000",
        "MaxNodes: 16 (four processors each)",
        "MaxProcs: 64",
        "Note: job 2 was swapped out twice; Universität",
    )
    # Partial executions are not counted beside the whole.
    assert [job.job_id for job in trace.jobs] == list("123456")
    whole, swapped, no_run_time, no_processors, no_wait, decimals = trace.jobs
    assert whole == Job(
        job_id="1",
        submit_s=0.0,
        start_s=10.0,
        run_s=100.0,
        units=4,
        requested_s=3600.0,
        user="3",
        partition="1",
        state="1",
        swf=(
            ("average CPU time", 95.5),
            ("used memory", 2048.0),
            ("requested processors", 8.0),
            ("group", 1.0),
            ("executable", 7.0),
            ("queue", 2.0),
        ),
    )
    assert (swapped.run_s, swapped.swf) == (300.0, (("group", 1.0), ("queue", 2.0)))
    # Jobs that never ran are kept without a start.
    assert (no_run_time.start_s, no_run_time.run_s) == (None, 0.0)
    assert no_run_time.units == 16
    assert ("wait time", 60.0) in no_run_time.swf
    assert (no_processors.start_s, no_processors.run_s) == (None, 0.0)
    assert (no_wait.start_s, no_wait.run_s, no_wait.units) == (None, 50.0, 2)
    assert no_wait.requested_s is None
    assert (decimals.submit_s, decimals.start_s, decimals.run_s) == (9.0, 19.0, 0.0)


@pytest.mark.parametrize(
    ("header", "size"),
    [
        (["; MaxProcs: 10", "; MaxNodes: 4"], (10, 1)),
        (["; MaxNodes: 4"], (4, 1)),
        (["; MaxProcs: 8", "; MaxNodes: 8"], (8, 1)),
        (["; MaxProcs: -1"], (5, 1)),
        ([";"], (5, 1)),
    ],
)
def test_the_machine_is_as_large_as_the_header_says_else_as_the_most_in_use(
    header: list[str], size: tuple[int, int]
) -> None:
    other = GOOD.replace("1 0 10", "2 9 10").replace(" 4 ", " 1 ")
    later = GOOD.replace("1 0 10", "3 500 0")

    trace = Swf().read(content(*header, GOOD, other, later))

    assert (trace.units, trace.units_per_node) == size


def test_jobs_are_ordered_by_submission_then_as_the_log_has_them() -> None:
    lines = [GOOD.replace("1 0", start, 1) for start in ("1 5", "2 0", "3 5", "4 0")]

    trace = Swf().read(content(*lines))

    assert [job.job_id for job in trace.jobs] == ["2", "4", "1", "3"]


@bad_lines(
    GOOD,
    f"""
-1 -1 -1 -1 -1 | -1 -1 -1 -1 | - | found 17 fields; expected 18
-1 -1 -1 -1 -1 | -1 -1 -1 -1 -1 1 | - | found 19 fields; expected 18
3600 | -5 | requested time | found -5; expected 0 or more, or -1 for unknown
100 | 1x0 | run time | found '1x0'; expected a number
100 | nan | run time | found 'nan'; expected a number
100 | 1_0 | run time | found '1_0'; expected a number
100 | 1-0 | run time | found '1-0'; expected a number
100 | . | run time | found '.'; expected a number
100 | \0 | run time | found '\\x00'; expected a number
100 | 1e15 | run time | found '1e15'; expected a number below 1e15
100 | 1{"0" * 15} | run time | found '1{"0" * 15}'; expected a number below 1e15
4 | 4.5 | allocated processors | found 4.5; expected a whole number
1 0 | 1 -1 | submit time | found -1; expected 0 or more
1 0 | -1 0 | job number | found -1; expected the job's number
1 0 | 1 0 | job number | job '1' is on line 2 already; expected each once
""",
)
def test_a_bad_line_is_named_with_its_field_and_what_was_expected(
    line: str, field: str | None, why: str
) -> None:
    error = refusal(Swf(), "; Version: 2.2", GOOD, line)

    assert (error.line_number, error.field, error.why) == (3, field, why)


def test_parts_of_jobs_that_never_ran_are_left_out_and_counted() -> None:
    part = "{} 0 -1 -1 4 -1 -1 4 3600 -1 2 3 1 -1 -1 -1 -1 -1"

    trace = Swf().read(content(GOOD, *(part.format(job) for job in range(2, 129))))

    assert [job.job_id for job in trace.jobs] == ["1"]
    assert trace.skipped_lines == 0
    [caution] = trace.cautions
    assert caution == (
        "127 lines left out: parts of jobs (status 2, 3 or 4) that never ran and have "
        "no line for the whole job."
    )


def test_cancelled_jobs_are_read_and_left_out_only_where_nothing_is_known_of_them() -> (
    None
):
    cancelled = "{} {} -1 -1 4 -1 -1 4 3600 -1 5 3 1 -1 -1 -1 -1 -1"
    submitted, unknown = cancelled.format(2, 7), cancelled.format(3, -1)

    trace = Swf().read(content(GOOD, submitted, unknown))

    assert [(job.job_id, job.start_s, job.run_s) for job in trace.jobs] == [
        ("1", 10, 100),
        ("2", None, 0),
    ]
    assert trace.skipped_lines == 0
    assert trace.cautions == (
        "1 line left out: jobs that never ran, at an unknown submit time.",
    )


@pytest.mark.parametrize("status", ["2", "3", "4", "5"])
def test_a_part_or_a_cancelled_job_that_cannot_be_read_is_refused(status: str) -> None:
    broken = f"2 -1 -1 -1 4.5 -1 -1 4 3600 -1 {status} 3 1 -1 -1 -1 -1 -1"

    error = refusal(Swf(), GOOD, broken)

    assert (error.line_number, error.field) == (2, "allocated processors")


def test_parts_of_a_job_that_ran_count_where_no_line_is_for_the_whole() -> None:
    # The parts of job 1 are in its own line; of job 2 there is nothing else.
    part = "{} {} {} 100 4 -1 -1 4 3600 -1 {} 3 1 -1 -1 -1 -1 -1"
    rows = ((1, 0, 10, 2), (2, 0, 20, 2), (2, -1, 380, 3))
    parts = [part.format(*words) for words in rows]

    trace = Swf().read(content(GOOD, *parts))

    assert [(job.job_id, job.start_s, job.run_s) for job in trace.jobs] == [
        ("1", 10, 100),
        ("2", 20, 100),
        ("2#2", 500, 100),
    ]
    [caution] = trace.cautions
    assert caution == (
        "2 lines counted as jobs: parts of jobs (status 2, 3 or 4) that have no line "
        "for the whole job."
    )


def test_parts_that_ran_at_an_unknown_time_are_left_out_and_counted_apart() -> None:
    part = "{} -1 {} {} 4 -1 -1 4 3600 -1 2 3 1 -1 -1 -1 -1 -1"
    rows = ((2, -1, -1), (3, 5, 100), (3, 5, 100), (4, -1, 100))

    trace = Swf().read(content(GOOD, *(part.format(*words) for words in rows)))

    assert [job.job_id for job in trace.jobs] == ["1"]
    never_ran, undated = trace.cautions
    assert never_ran == (
        "1 line left out: parts of jobs (status 2, 3 or 4) that never ran and have no "
        "line for the whole job."
    )
    assert undated == (
        "3 lines left out: parts of jobs (status 2, 3 or 4) that ran at an unknown "
        "submit time and have no line for the whole job."
    )


CURIE = ("; MaxNodes: 5544", "; MaxProcs: 93312", GOOD)


def test_processors_that_make_no_whole_nodes_are_not_taken_for_nodes_silently() -> None:
    trace = Swf().read(content(*CURIE))

    assert (trace.units, trace.units_per_node) == (93_312, 1)
    [caution] = trace.cautions
    assert caution == (
        "MaxProcs 93,312 is no whole multiple of MaxNodes 5,544, so each processor "
        "counts as a node: say how many a node has, with --cores-per-node 17 or so."
    )


@pytest.mark.parametrize(
    ("header", "cores", "size"),
    [
        (CURIE[:2], 16, (93_312, 16)),
        (["; MaxProcs: 8", "; MaxNodes: 4"], 4, (8, 4)),
        (["; MaxProcs: 8"], 4, (8, 4)),
        ([";"], 2, (4, 2)),
    ],
)
def test_how_many_processors_a_node_has_can_be_told(
    header: list[str], cores: int, size: tuple[int, int], tmp_path: Path
) -> None:
    log = tmp_path / "log.swf"
    log.write_bytes(content(*header, GOOD).raw)

    trace = read_trace(log, cores_per_node=cores)

    assert isinstance(trace, JobTrace)
    assert (trace.units, trace.units_per_node) == size
    assert trace.cautions == ()


def test_a_log_that_counts_nodes_has_no_use_for_cores(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("job,submit_s,start_s,run_s,nodes\na,0,0,10,3\n")

    with pytest.raises(UnusableLogError, match="counts nodes, and not processors"):
        read_trace(log, cores_per_node=4)


def test_a_header_without_jobs_is_refused() -> None:
    assert str(refusal(Swf(), "; Version: 2.2")) == "log: there is no job in it"


EIGHTHS = st.integers(0, 2**40).map(lambda eighths: eighths / 8)
"""Seconds whose sums are exact, as those of whole seconds are."""

NUMBERS = st.integers(0, 99).map(str)


@st.composite
def swf_jobs(draw: st.DrawFn, job_id: str) -> Job:
    units = draw(st.integers(0, 9))
    run_s = draw(EIGHTHS) if units else 0.0
    submit_s = draw(EIGHTHS)
    start_s = submit_s + draw(EIGHTHS) if units and draw(st.booleans()) else None
    carried = {name: draw(EIGHTHS) for name in CARRIED if draw(st.booleans())}
    if start_s is not None or run_s:
        carried.pop("wait time", None)
    if units:
        carried["requested processors"] = float(units + 1)
    else:
        carried.pop("requested processors", None)
    return Job(
        job_id=job_id,
        submit_s=submit_s,
        start_s=start_s,
        run_s=run_s,
        units=units,
        requested_s=draw(st.none() | EIGHTHS),
        user=draw(NUMBERS | st.just("")),
        partition=draw(NUMBERS | st.just("")),
        state=draw(st.sampled_from(("", "0", "1", "5"))),
        swf=tuple((name, carried[name]) for name in CARRIED if name in carried),
    )


COMMENTS = st.sampled_from(
    (
        *("Version: 2.2", "Computer: x", "   indented", "", "MaxNodes: 7"),
        *("MaxProcs: 21", "MaxProcs: many", "UnixStartTime: 5", "UnixStartTime: -1"),
    )
)


@st.composite
def swf_traces(draw: st.DrawFn) -> JobTrace:
    """Traces that hold nothing the format has no place for."""
    ids = draw(st.lists(NUMBERS, min_size=1, max_size=5, unique=True))
    jobs = [draw(swf_jobs(job_id)) for job_id in ids]
    units_per_node = draw(st.sampled_from((1, 1, 3)))
    return JobTrace(
        source="log",
        log_format="swf",
        jobs=tuple(sorted(jobs, key=lambda job: job.submit_s)),
        units=draw(st.integers(1, 99)) * units_per_node,
        units_per_node=units_per_node,
        unix_start_s=draw(st.none() | st.integers(1, 10**10).map(float)),
        comments=tuple(draw(st.lists(COMMENTS, max_size=5))),
    )


@given(swf_traces())
def test_a_written_log_reads_as_the_same(trace: JobTrace) -> None:
    again = read_again(Swf(), trace)

    assert again == replace(trace, comments=swf_header(trace))
    assert read_again(Swf(), again) == again


def test_a_complete_header_is_kept_as_it_is() -> None:
    comments = ("Computer: x", "MaxProcs: 8", "Version: 2.2", "MaxNodes: 2", "", " y")
    trace = JobTrace("log", "swf", (), 8, units_per_node=4, comments=comments)

    assert swf_header(trace) == comments


def test_names_become_numbers_and_states_statuses() -> None:
    states = ("COMPLETED", "CANCELLED by 1000", "TIMEOUT", "RUNNING", "7")
    jobs = tuple(
        Job(
            f"{i}_1",
            i,
            float(i + 1),
            0.25,
            2,
            None,
            user,
            "batch",
            state,
            10,
            ("n1", "n2"),
        )
        for i, (user, state) in enumerate(zip("abaab", states, strict=True))
    )

    text = written(Swf(), JobTrace("log", "sacct", jobs, 2, unix_start_s=9.0))

    assert text == (
        "; Version: 2.2\n"
        "; UnixStartTime: 9\n"
        "; MaxNodes: 2\n"
        "; MaxProcs: 2\n"
        "1 0 1 0.25 2 -1 -1 2 -1 -1 1 1 -1 -1 -1 1 -1 -1\n"
        "2 1 1 0.25 2 -1 -1 2 -1 -1 5 2 -1 -1 -1 1 -1 -1\n"
        "3 2 1 0.25 2 -1 -1 2 -1 -1 0 1 -1 -1 -1 1 -1 -1\n"
        "4 3 1 0.25 2 -1 -1 2 -1 -1 -1 1 -1 -1 -1 1 -1 -1\n"
        "5 4 1 0.25 2 -1 -1 2 -1 -1 -1 2 -1 -1 -1 1 -1 -1\n"
    )


@pytest.mark.parametrize("comment", ["a\nb", "a\r\nb", "a\u2028b"])
def test_a_comment_stays_on_its_line(comment: str) -> None:
    trace = JobTrace("log", "swf", (), 1, comments=("Version: 2.2", comment))

    assert written(Swf(), trace).splitlines()[1] == "; a b"
