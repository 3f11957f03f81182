"""Jobs as CSV."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logs.csv_tables import JOB_COLUMNS, JobsCsv
from logs.format import Content
from logs.read import read_trace
from logs.trace import Job, JobTrace, UnreadableLogError
from tests.logs.log_content import RECORDED, content

HEADER = ",".join(JOB_COLUMNS)
GOOD = "1,10,20,100,4,60,ada"


def test_columns_are_found_wherever_they_stand_and_minus_one_is_unknown() -> None:
    trace = read_trace(RECORDED / "jobs.csv")

    assert isinstance(trace, JobTrace)
    assert trace.jobs == (
        Job("a", 0.0, 5.0, 100.0, 2, 60.0, "ada"),
        Job("d", 2.0, None, 10.0, 3, 30.0),
        Job("b", 3.0, None, 50.5, 4, None, "Lovelace, A."),
        Job("c", 4.0, None, 0.0, 8, 600.0),
    )
    assert (trace.units, trace.units_per_node) == (8, 1)
    assert (trace.log_format, trace.unix_start_s) == ("jobs-csv", 1641021254.0)


def test_without_a_size_in_a_comment_the_machine_is_as_large_as_the_most_in_use() -> (
    None
):
    other = "2,0,119,2,3,-1,-1"
    after = "3,0,120,5,6,-1,-1"

    assert JobsCsv().read(content(HEADER, GOOD, other, after)).units == 9
    assert JobsCsv().read(content(HEADER, GOOD, after)).units == 6


@pytest.mark.parametrize(("said", "units"), [(10**6, 10**6), (10**6 + 1, 4), (0, 4)])
def test_a_machine_of_up_to_a_million_nodes_is_believed(said: int, units: int) -> None:
    assert JobsCsv().read(content(f"# {said} nodes", HEADER, GOOD)).units == units


def test_columns_that_may_be_unknown_may_be_missing() -> None:
    trace = JobsCsv().read(content("job,submit_s,run_s,nodes", "1,2,3,4"))

    assert trace.jobs == (Job("1", 2.0, None, 3.0, 4, None),)
    assert trace.units == 4


@pytest.mark.parametrize(
    ("line", "field", "why"),
    [
        (GOOD + ",", None, f"found 8 fields in '{GOOD},'; expected 7: {HEADER}"),
        (
            GOOD.replace("100", "-100"),
            "run_s",
            "found -100; expected 0 or more, or -1 for unknown",
        ),
        (
            GOOD.replace(",10,", ",-1,"),
            "submit_s",
            "found -1 or nothing; expected 0 or more",
        ),
        (
            GOOD.replace("20", "9"),
            "start_s",
            "found 9; expected submit_s, 10, or later",
        ),
        (GOOD.replace(",4,", ",4.5,"), "nodes", "found 4.5; expected a whole number"),
        (GOOD.replace(",60,", ",1h,"), "req_s", "found '1h'; expected a number"),
        (GOOD[1:], "job", "found nothing; expected the job's name"),
        (GOOD, "job", "job '1' is on line 2 already; expected each once"),
    ],
)
def test_a_bad_line_is_named_with_its_field_and_what_was_expected(
    line: str, field: str | None, why: str
) -> None:
    with pytest.raises(UnreadableLogError) as caught:
        JobsCsv().read(content(HEADER, GOOD, line))

    error = caught.value
    assert (error.line_number, error.field, error.why) == (3, field, why)


def test_a_table_without_jobs_is_refused() -> None:
    with pytest.raises(UnreadableLogError, match=r"^log: there is no job in it$"):
        JobsCsv().read(content(HEADER))


def test_a_table_of_bad_lines_alone_is_refused_saying_how_many_were_skipped() -> None:
    with pytest.raises(UnreadableLogError, match=r"job in it \(bad lines skipped: 2"):
        JobsCsv().read(content(HEADER, "a", "b"), skip_bad=3)


SECONDS = st.one_of(st.integers(0, 10**9), st.floats(0, 1e9)).map(float)


@st.composite
def csv_jobs(draw: st.DrawFn, job_id: str) -> Job:
    submit_s = draw(SECONDS)
    units = draw(st.integers(0, 9))
    run_s = draw(SECONDS) if units else 0.0
    start_s = submit_s + draw(SECONDS) if units and draw(st.booleans()) else None
    return Job(
        job_id=job_id,
        submit_s=submit_s,
        start_s=start_s,
        run_s=run_s,
        units=units,
        requested_s=draw(st.none() | SECONDS),
        user=draw(st.text('ab ,#"é', max_size=4)).strip(),
    )


@st.composite
def csv_traces(draw: st.DrawFn) -> JobTrace:
    """Traces as a job CSV can hold them, in nodes."""
    names = draw(st.lists(st.sampled_from("ab#,9"), min_size=1, unique=True))
    jobs = [draw(csv_jobs(name)) for name in names]
    return JobTrace(
        source="log",
        log_format="jobs-csv",
        jobs=tuple(sorted(jobs, key=lambda job: job.submit_s)),
        units=draw(st.integers(1, 10**6)),
        unix_start_s=draw(st.none() | st.integers(0, 10**10).map(float)),
        comments=draw(st.sampled_from(((), ("x",), ("7 nodes", "t0_unix=3")))),
    )


@given(csv_traces())
def test_what_was_written_reads_as_the_same_log(trace: JobTrace) -> None:
    stream = io.StringIO()
    JobsCsv().write(trace, stream)

    again = JobsCsv().read(Content("log", stream.getvalue().encode()))

    assert replace(again, comments=()) == replace(trace, comments=())
    stream = io.StringIO()
    JobsCsv().write(again, stream)
    assert JobsCsv().read(Content("log", stream.getvalue().encode())) == again


def test_parts_of_nodes_are_written_as_whole_ones() -> None:
    stream = io.StringIO()
    job = Job("1", 0.0, 0.0, 10.0, 5, None)

    JobsCsv().write(JobTrace("", "swf", (job,), 16, units_per_node=4), stream)

    assert stream.getvalue() == f"# 4 nodes\n{HEADER}\n1,0,0,10,2,-1,-1\n"
