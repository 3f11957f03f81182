"""The Standard Workload Format, read and written."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logs.format import Content
from logs.read import read_trace
from logs.swf import CARRIED, Swf, swf_header
from logs.trace import Job, JobTrace, UnreadableLogError
from tests.logs.log_content import RECORDED, content

GOOD = "1 0 10 100 4 -1 -1 4 3600 -1 1 3 1 -1 -1 -1 -1 -1"


@pytest.fixture(scope="module")
def checkpointed() -> JobTrace:
    trace = read_trace(RECORDED / "checkpointed.swf")
    assert isinstance(trace, JobTrace)
    return trace


def test_every_field_of_a_job_is_kept(checkpointed: JobTrace) -> None:
    assert checkpointed.jobs[0] == Job(
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


def test_the_header_gives_start_size_and_comments(checkpointed: JobTrace) -> None:
    assert checkpointed.log_format == "swf"
    assert (checkpointed.units, checkpointed.units_per_node) == (64, 4)
    assert checkpointed.unix_start_s == 1e9
    assert checkpointed.comments == (
        "Version: 2.2",
        "Computer: a small test machine",
        "UnixStartTime: 1000000000",
        "MaxNodes: 16 (four processors each)",
        "MaxProcs: 64",
        "Note: job 2 was swapped out twice; Universität",
    )


def test_partial_executions_are_not_counted_beside_the_whole(
    checkpointed: JobTrace,
) -> None:
    assert [job.job_id for job in checkpointed.jobs] == list("123456")
    assert checkpointed.jobs[1].run_s == 300.0
    assert checkpointed.jobs[1].swf == (("group", 1.0), ("queue", 2.0))


def test_a_job_that_never_ran_is_kept_without_a_start(checkpointed: JobTrace) -> None:
    no_run_time, no_processors = checkpointed.jobs[2:4]

    assert (no_run_time.start_s, no_run_time.run_s) == (None, 0.0)
    assert no_run_time.units == 16
    assert ("wait time", 60.0) in no_run_time.swf
    assert (no_processors.start_s, no_processors.run_s) == (None, 0.0)


def test_a_job_of_unknown_wait_has_a_run_time_but_no_start(
    checkpointed: JobTrace,
) -> None:
    job = checkpointed.jobs[4]

    assert (job.start_s, job.run_s, job.units) == (None, 50.0, 2)
    assert job.requested_s is None


def test_numbers_may_be_written_as_decimals(checkpointed: JobTrace) -> None:
    job = checkpointed.jobs[5]

    assert (job.job_id, job.submit_s, job.start_s, job.run_s) == ("6", 9.0, 19.0, 0.0)


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


@pytest.mark.parametrize(
    ("line", "field", "why"),
    [
        (GOOD.rpartition(" ")[0], None, "found 17 fields; expected 18"),
        (GOOD + " 1", None, "found 19 fields; expected 18"),
        (
            GOOD.replace("3600", "-5"),
            "requested time",
            "found -5; expected 0 or more, or -1 for unknown",
        ),
        (GOOD.replace("100", "1x0"), "run time", "found '1x0'; expected a number"),
        (GOOD.replace("100", "nan"), "run time", "found 'nan'; expected a number"),
        (GOOD.replace("100", "1_0"), "run time", "found '1_0'; expected a number"),
        (GOOD.replace("100", "1-0"), "run time", "found '1-0'; expected a number"),
        (GOOD.replace("100", "."), "run time", "found '.'; expected a number"),
        (GOOD.replace("100", "\0"), "run time", "found '\\x00'; expected a number"),
        (
            GOOD.replace("100", "1e15"),
            "run time",
            "found '1e15'; expected a number below 1e15",
        ),
        (
            GOOD.replace("100", "1" + "0" * 15),
            "run time",
            "found '1000000000000000'; expected a number below 1e15",
        ),
        (
            GOOD.replace(" 4 ", " 4.5 ", 1),
            "allocated processors",
            "found 4.5; expected a whole number",
        ),
        (
            GOOD.replace("1 0", "1 -1", 1),
            "submit time",
            "found -1; expected 0 or more",
        ),
        (
            GOOD.replace("1 0", "-1 0", 1),
            "job number",
            "found -1; expected the job's number",
        ),
        (
            GOOD,
            "job number",
            "job '1' is on line 2 already; expected each once",
        ),
        (
            GOOD.replace("1 0", "9 0", 1).replace("1 3 1", "3 3 1"),
            "status",
            "a partial execution of a job without a summary line (status 0, 1 or 5)",
        ),
    ],
)
def test_a_bad_line_is_named_with_its_field_and_what_was_expected(
    line: str, field: str | None, why: str
) -> None:
    with pytest.raises(UnreadableLogError) as caught:
        Swf().read(content("; Version: 2.2", GOOD, line))

    error = caught.value
    assert (error.line_number, error.field, error.why) == (3, field, why)


def test_a_header_without_jobs_is_refused() -> None:
    with pytest.raises(UnreadableLogError, match=r"^log: there is no job in it$"):
        Swf().read(content("; Version: 2.2"))


EIGHTHS = st.integers(0, 2**40).map(lambda eighths: eighths / 8)
"""Seconds whose sums are exact, as those of whole seconds are."""

NUMBERS = st.integers(0, 99).map(str)


def written(trace: JobTrace) -> str:
    stream = io.StringIO()
    Swf().write(trace, stream)
    return stream.getvalue()


def read_again(trace: JobTrace) -> JobTrace:
    return Swf().read(Content(trace.source, written(trace).encode()))


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
        "Version: 2.2",
        "Computer: x",
        "   indented",
        "",
        "MaxNodes: 7",
        "MaxProcs: 21",
        "MaxProcs: many",
        "UnixStartTime: 5",
        "UnixStartTime: -1",
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
def test_what_was_written_reads_as_the_same_log(trace: JobTrace) -> None:
    again = read_again(trace)

    assert again == replace(trace, comments=swf_header(trace))
    assert read_again(again) == again


def test_a_header_that_says_it_all_is_kept_as_it_is() -> None:
    comments = ("Computer: x", "MaxProcs: 8", "Version: 2.2", "MaxNodes: 2", "", " y")
    trace = JobTrace("log", "swf", (), 8, units_per_node=4, comments=comments)

    assert swf_header(trace) == comments


def test_names_become_numbers_and_states_statuses() -> None:
    states = ("COMPLETED", "CANCELLED by 1000", "TIMEOUT", "RUNNING", "7")
    jobs = tuple(
        Job(f"{i}_1", i, float(i + 1), 0.25, 2, None, user, "batch", state, 10, ("n1",))
        for i, (user, state) in enumerate(zip("abaab", states, strict=True))
    )

    text = written(JobTrace("log", "sacct", jobs, 4, unix_start_s=9.0))

    assert text == (
        "; Version: 2.2\n"
        "; UnixStartTime: 9\n"
        "; MaxNodes: 4\n"
        "; MaxProcs: 4\n"
        "1 0 1 0.25 2 -1 -1 2 -1 -1 1 1 -1 -1 -1 1 -1 -1\n"
        "2 1 1 0.25 2 -1 -1 2 -1 -1 5 2 -1 -1 -1 1 -1 -1\n"
        "3 2 1 0.25 2 -1 -1 2 -1 -1 0 1 -1 -1 -1 1 -1 -1\n"
        "4 3 1 0.25 2 -1 -1 2 -1 -1 -1 1 -1 -1 -1 1 -1 -1\n"
        "5 4 1 0.25 2 -1 -1 2 -1 -1 -1 2 -1 -1 -1 1 -1 -1\n"
    )


@pytest.mark.parametrize("comment", ["a\nb", "a\r\nb", "a\u2028b"])
def test_a_comment_stays_on_its_line(comment: str) -> None:
    trace = JobTrace("log", "swf", (), 1, comments=("Version: 2.2", comment))

    assert written(trace).splitlines()[1] == "; a b"
