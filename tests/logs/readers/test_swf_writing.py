import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logs.lines import Content
from logs.swf import CARRIED, Swf, swf_header
from logs.trace import Job, JobTrace

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
