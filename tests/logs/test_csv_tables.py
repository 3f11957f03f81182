"""Logs as CSV tables: jobs, and idle intervals."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logs.csv_tables import (
    IDLE_COLUMNS,
    JOB_COLUMNS,
    Fragments,
    JobsCsv,
    read_head,
    read_line_by_line,
    read_plain,
)
from logs.format import Content, Tolerance
from logs.read import read_trace
from logs.trace import IdleTrace, Job, JobTrace, UnreadableLogError
from tests.logs.log_content import (
    RECORDED,
    bad_lines,
    content,
    read_again,
    refusal,
    written,
)

JOBS = ",".join(JOB_COLUMNS)
IDLE = ",".join(IDLE_COLUMNS)
GOOD = "1,10,20,100,4,60,ada"


def test_a_recorded_table_of_jobs_has_its_columns_anywhere_and_unknown_values() -> None:
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


def test_columns_that_may_be_unknown_may_be_missing() -> None:
    trace = JobsCsv().read(content("job,submit_s,run_s,nodes", "1,2,3,4"))

    assert trace.jobs == (Job("1", 2.0, None, 3.0, 4, None),)
    assert trace.units == 4


@pytest.mark.parametrize(
    ("lines", "units"),
    [
        ([JOBS, GOOD, "2,0,119,2,3,-1,-1", "3,0,120,5,6,-1,-1"], 9),
        ([JOBS, GOOD, "3,0,120,5,6,-1,-1"], 6),
        ([f"# {10**6} nodes", JOBS, GOOD], 10**6),
        ([f"# {10**6 + 1} nodes", JOBS, GOOD], 4),
        (["# 0 nodes", JOBS, GOOD], 4),
    ],
)
def test_a_comment_gives_the_size_up_to_a_million_nodes_else_the_most_in_use_does(
    lines: list[str], units: int
) -> None:
    assert JobsCsv().read(content(*lines)).units == units


@bad_lines(
    GOOD,
    f"""
ada | ada, | - | found 8 fields in '{GOOD},'; expected 7: {JOBS}
100 | -100 | run_s | found -100; expected 0 or more, or -1 for unknown
,10, | ,-1, | submit_s | found -1 or nothing; expected 0 or more
20 | 9 | start_s | found 9; expected submit_s, 10, or later
,4, | ,4.5, | nodes | found 4.5; expected a whole number
,60, | ,1h, | req_s | found '1h'; expected a number
1,10 | ,10 | job | found nothing; expected the job's name
1,10 | 1,10 | job | job '1' is on line 2 already; expected each once
""",
)
def test_a_bad_line_of_jobs_is_named_with_its_field_and_what_was_expected(
    line: str, field: str | None, why: str
) -> None:
    error = refusal(JobsCsv(), JOBS, GOOD, line)

    assert (error.line_number, error.field, error.why) == (3, field, why)


def test_a_table_without_records_is_refused_saying_how_many_lines_were_skipped() -> (
    None
):
    assert str(refusal(JobsCsv(), JOBS)) == "log: there is no job in it"
    assert str(refusal(Fragments(), IDLE)) == "log: no idle interval in it"
    with pytest.raises(UnreadableLogError, match=r"job in it \(bad lines skipped: 2"):
        JobsCsv().read(content(JOBS, "a", "b"), skip_bad=3)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("node,idle_start_s", f"column 'idle_end_s' is missing; expected {IDLE},nodes"),
        (IDLE + ",x", f"found an unknown column 'x'; expected {IDLE},nodes"),
        (IDLE + ",node", "column 'node' is there twice; expected each once"),
    ],
)
def test_wrong_columns_are_named(header: str, why: str) -> None:
    assert str(refusal(Fragments(), header, "1,2,3")) == f"log, line 1: {why}"


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
def test_a_written_table_of_jobs_reads_as_the_same(trace: JobTrace) -> None:
    again = read_again(JobsCsv(), trace)

    assert replace(again, comments=()) == replace(trace, comments=())
    assert read_again(JobsCsv(), again) == again


def test_parts_of_nodes_are_written_as_whole_ones() -> None:
    job = Job("1", 0.0, 0.0, 10.0, 5, None)

    text = written(JobsCsv(), JobTrace("", "swf", (job,), 16, units_per_node=4))

    assert text == f"# 4 nodes\n{JOBS}\n1,0,0,10,2,-1,-1\n"


# Idle intervals.


def rows(trace: IdleTrace) -> list[tuple[str, float, float]]:
    return [
        (trace.node_names[node], start_s, end_s)
        for node, start_s, end_s in trace.rows()
    ]


def test_named_nodes_stand_in_natural_order_and_holes_in_that_of_time() -> None:
    trace = read_trace(RECORDED / "named.csv")

    assert isinstance(trace, IdleTrace)
    assert trace.node_names == ("gpu2", "gpu10", "login")
    assert rows(trace) == [
        ("login", 0.0, 15.0),
        ("gpu2", 10.0, 30.0),
        ("gpu10", 10.0, 20.5),
        ("gpu10", 20.5, 40.0),
    ]
    assert trace.unix_start_s == 1787198400.0
    assert trace.comments == (
        "partition gpu, t0_unix=1787198400",
        "every node that was idle",
    )


@pytest.mark.parametrize(
    ("comment", "nodes"),
    [
        ("# none", 4),
        ("# Summit, 6 nodes, t=0", 6),
        ("# Summit, 2 nodes, t=0", 4),
        ("# Summit, 9999999 nodes, t=0", 4),
    ],
)
def test_numbered_nodes_stand_for_all_below_them_and_a_comment_may_say_of_more(
    comment: str, nodes: int
) -> None:
    trace = Fragments().read(content(comment, IDLE, "3,5,9"))

    assert trace.node_names == tuple(map(str, range(nodes)))
    assert trace.node.tolist() == [3]


LONG = "9" * 5000
POSITION = "expected a node number below 1000000, or a name"


@bad_lines(
    "1,5,9",
    f"""
,9 |  | - | found 2 fields in '1,5'; expected 3: {IDLE}
1, | , | node | found nothing; expected a node name or number
5 | x | idle_start_s | found 'x'; expected a number
5 | -5 | idle_start_s | found -5; expected 0 or more
,9 | , | idle_end_s | found ''; expected a number
5,9 | 9,5 | idle_end_s | found 5; expected more than idle_start_s, 9
5,9 | 9,9 | idle_end_s | found 9; expected more than idle_start_s, 9
1,5,9 | 7,15,30 | - | node '7' is idle twice at once: 15-30 here, 10-20 on line 3
1, | 1000000, | node | found '1000000'; {POSITION}
1, | {LONG}, | node | found '{LONG[:40]}'... (5000 characters); {POSITION}
""",
)
def test_a_bad_line_of_intervals_is_named_with_its_field_and_what_was_expected(
    line: str, field: str | None, why: str
) -> None:
    error = refusal(Fragments(), "# x", IDLE, "7,10,20", line)

    assert (error.line_number, error.field, error.why) == (4, field, why)


def test_intervals_of_a_node_may_touch() -> None:
    trace = Fragments().read(content(IDLE, "0,10,20", "0,20,30", "0,5,10"))

    assert trace.start_s.tolist() == [5.0, 10.0, 20.0]


# Made of what trips a reader of numbers: signs, zeros in front, blanks, numbers
# too large for 64 bits, other line ends, empty fields.
FIELD = st.one_of(
    st.integers(0, 30).map(str),
    st.sampled_from(
        (
            *("", " 7", "07", "+3", "-1", "2.5", "1e3", "n1", "x", "\u0663", "1 2"),
            *("9" * 14, "9" * 15, "1" + "0" * 19, "9" * 19, "9" * 20),
            *("1000000", "999999"),
        )
    ),
)
PLAIN_LINE = st.tuples(st.integers(0, 5), st.integers(0, 40), st.integers(0, 40)).map(
    lambda line: ",".join(map(str, line))
)
ANY_LINE = st.lists(FIELD, min_size=2, max_size=4).map(",".join)
BODIES = st.one_of(
    st.lists(PLAIN_LINE, min_size=1, max_size=6),
    st.lists(st.one_of(PLAIN_LINE, ANY_LINE, st.just("")), min_size=1, max_size=4),
)
TEXTS = st.builds(
    lambda lines, end, last: end.join(lines) + last,
    BODIES,
    st.sampled_from(("\n", "\r\n", "\r")),
    st.sampled_from(("\n", "\r\n", "")),
)


@given(st.lists(PLAIN_LINE, min_size=1, max_size=8))
@example(["0,10,20", "0,0,11", "0,20,30"])
def test_the_lines_that_are_skipped_are_those_that_overlap_a_kept_one_above(
    body: list[str],
) -> None:
    kept: list[tuple[str, float, float]] = []
    for line in body:
        node, start, end = line.split(",")
        new = (node, float(start), float(end))
        clash = any(node == n and new[1] < e and s < new[2] for n, s, e in kept)
        if new[1] < new[2] and not clash:
            kept.append(new)
    if kept:
        trace = Fragments().read(content(IDLE, *body), skip_bad=len(body))
        assert sorted(rows(trace)) == sorted(kept)
        assert trace.skipped_lines == len(body) - len(kept)


@given(TEXTS)
@example("1,2,3\n4,5,6")
@example("1,,23\n4,5,6\n")
@example(",1,23\n4,5,6\n")
@example("1,2\n3,4,5,6\n")
@example("9223372036854775808,1,2\n")
@example("1,2,9223372036854775808\n")
@example("1,2,03\n")
@example("07,1,2\n")
def test_the_fast_way_gives_the_result_of_the_exact_one_or_leaves_it_to_that(
    body: str,
) -> None:
    log = Content("log", f"{IDLE}\n{body}".encode())
    head = read_head(log, needed=IDLE_COLUMNS)

    fast = read_plain(log, head)

    if fast is not None:
        exact = read_line_by_line(log, head, Tolerance("log", 0))
        assert fast.node_names == exact.node_names
        assert fast.node.dtype == exact.node.dtype
        assert fast.start_s.dtype == exact.start_s.dtype == fast.end_s.dtype
        assert fast.node.tolist() == exact.node.tolist()
        assert fast.start_s.tolist() == exact.start_s.tolist()
        assert fast.end_s.tolist() == exact.end_s.tolist()


@given(st.lists(PLAIN_LINE, min_size=1, max_size=6))
def test_the_fast_way_takes_every_plain_log_that_the_exact_one_takes(
    body: list[str],
) -> None:
    log = content(IDLE, *body)
    head = read_head(log, needed=IDLE_COLUMNS)
    tolerance = Tolerance("log", len(body))
    try:
        read_line_by_line(log, head, tolerance)
    except UnreadableLogError:
        tolerance.skipped += 1

    assert (read_plain(log, head) is not None) == (tolerance.skipped == 0)


NAMES = (
    st.one_of(
        st.integers(0, 30).map(str), st.text('an,#"01é- ', min_size=1, max_size=4)
    )
    .map(str.strip)
    .filter(bool)
)
TIMES = st.one_of(st.integers(0, 10**6), st.floats(0, 1e6)).map(float)


@st.composite
def idle_traces(draw: st.DrawFn) -> IdleTrace:
    """Logs as a file may hold them: some intervals of some nodes."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    lines = []
    for name in names:
        times = sorted(draw(st.lists(TIMES, min_size=2, max_size=6, unique=True)))
        for start_s, end_s in zip(times[::2], times[1::2], strict=False):
            quoted = '"' + name.replace('"', '""') + '"'
            lines.append(f"{quoted},{start_s!r},{end_s!r}")
    comments = draw(
        st.lists(st.sampled_from(("a", " b", "99 fast nodes", "t0_unix=5.5", "")))
    )
    return Fragments().read(content(*(f"# {c}" for c in comments), IDLE, *lines))


@given(idle_traces())
def test_written_intervals_read_as_the_same(trace: IdleTrace) -> None:
    again = read_again(Fragments(), trace)

    assert again.node_names == trace.node_names
    assert rows(again) == rows(trace)
    assert again.unix_start_s == trace.unix_start_s
    assert rows(read_again(Fragments(), again)) == rows(again)


def test_comments_that_say_otherwise_are_left_out() -> None:
    trace = Fragments().read(content("# Summit", "# 9 nodes", IDLE, "1,2,3"))
    part = replace(trace, node_names=trace.node_names[:4], unix_start_s=60.0)

    text = written(Fragments(), part)

    assert text == f"# 4 nodes, t0_unix=60\n# Summit\n{IDLE}\n1,2,3\n"
