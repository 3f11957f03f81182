"""Dumps of Slurm's accounting: values, node lists, whole logs."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logs.format import BadLineError
from logs.read import read_trace, recognise
from logs.sacct import Sacct, expand_hostlist, read_count, read_duration, read_time
from logs.trace import Job, JobTrace
from tests.logs.log_content import RECORDED, bad_lines, content, refusal


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2-03:04:05", 183845.0),
        ("1-12", 129600.0),
        ("1-12:30", 131400.0),
        ("03:04:05", 11045.0),
        ("30:00", 1800.0),
        ("00:01.250", 1.25),
        ("10", 600.0),
        *dict.fromkeys(("UNLIMITED", "Partition_Limit", "NONE", "")).items(),
    ],
)
def test_a_duration_is_read_in_every_form(text: str, seconds: float | None) -> None:
    assert read_duration(text, "Timelimit", bare_unit_s=60.0) == seconds


@given(st.integers(0, 10**8))
def test_a_duration_reads_back_as_it_was_printed(seconds: int) -> None:
    days, rest = divmod(seconds, 86400)
    text = f"{days}-{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"

    assert read_duration(text, "Elapsed", bare_unit_s=1.0) == seconds


@pytest.mark.parametrize(
    ("text", "unix_s"),
    [
        ("2026-08-20T04:00:00", 1787198400.0),
        ("2026-08-20T06:00:00+02:00", 1787198400.0),
        ("2026-08-20T06:00:00+0200", 1787198400.0),
        ("2026-08-20T04:00:00Z", 1787198400.0),
        ("1787198400", 1787198400.0),
        *dict.fromkeys(("Unknown", "None", "N/A")).items(),
    ],
)
def test_a_time_is_read_in_every_form(text: str, unix_s: float | None) -> None:
    assert read_time(text, "Start") == unix_s


@pytest.mark.parametrize(
    ("text", "count"),
    [("12", 12), ("1.5K", 1536), ("2K", 2048), ("1M", 1048576), ("", None)],
)
def test_a_count_is_read_with_its_suffix(text: str, count: int | None) -> None:
    assert read_count(text, "NNodes") == count


@given(st.text(max_size=12))
def test_any_text_is_a_value_or_a_bad_line(text: str) -> None:
    for read in (
        lambda: read_time(text, "Start"),
        lambda: read_count(text, "NNodes"),
        lambda: read_duration(text, "Elapsed", bare_unit_s=1.0),
    ):
        try:
            value = read()
        except BadLineError:
            continue
        assert value is None or value >= 0


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", "n1"),
        ("n[1-3,7],m05", "n1 n2 n3 n7 m05"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("r[0-1]n[1-2]x", "r0n1x r0n2x r1n1x r1n2x"),
        ("[3-4]", "3 4"),
        ("a-b.c,d", "a-b.c d"),
        ("", ""),
    ],
)
def test_a_node_list_is_expanded_in_its_order(text: str, names: str) -> None:
    assert list(expand_hostlist(text)) == names.split()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("n[1", "no node name at character 2"),
        ("n1,,n2", "no node name at character 4"),
        ("n1,", "nothing after the last comma"),
        ("n1]", "no node name at character 3"),
        ("n[3-1]", "the range '3-1' runs backwards"),
        ("n[1-2-3]", "'1-2-3' is no range of numbers"),
        ("n[0-999999999]", "more than 1000000 nodes"),
        ("n[0-9999]m[0-9999]", "more than 1000000 nodes"),
    ],
)
def test_text_that_is_no_node_list_says_why(text: str, why: str) -> None:
    with pytest.raises(ValueError, match="^" + why + "$"):
        expand_hostlist(text)


@given(st.text("n01[]-,x ", max_size=20))
def test_any_text_expands_or_is_refused(text: str) -> None:
    try:
        names = expand_hostlist(text)
    except ValueError:
        return
    assert all(name and not set("[], ") & set(name) for name in names)


HEADER = "JobIDRaw|Submit|Start|End|NNodes|NodeList"
GOOD = "1|2026-08-20T04:00:00|2026-08-20T04:00:00|2026-08-20T05:00:00|1|n1"


def recorded(name: str) -> JobTrace:
    trace = read_trace(RECORDED / name)
    assert isinstance(trace, JobTrace)
    return trace


def only_job(header: str, line: str) -> Job:
    [job] = Sacct().read(content(header, line)).jobs
    return job


def test_a_recorded_dump_is_read_without_steps_and_with_requeued_jobs_apart() -> None:
    trace = recorded("requeued.sacct")
    jobs = {job.job_id: job for job in trace.jobs}

    # Time 0 is the first submission, and the size the most nodes in use.
    assert (trace.log_format, trace.unix_start_s) == ("sacct", 1787198400.0)
    assert (trace.units, trace.units_per_node) == (6, 1)
    assert list(jobs) == ["101", "102", "102#2", "103", "104", "105", "106"]
    assert jobs["101"] == Job(
        job_id="101",
        submit_s=0.0,
        start_s=60.0,
        run_s=3600.0,
        units=3,
        requested_s=2 * 86400 + 3 * 3600 + 4 * 60 + 5,
        user="ada",
        partition="batch",
        state="COMPLETED",
        priority=4294901760,
        nodes=("n1", "n2", "m05"),
    )
    assert jobs["102"].requested_s is None
    assert (jobs["102#2"].submit_s, jobs["102#2"].start_s) == (180.0, 600.0)
    for never_started, units in (("103", 1536), ("104", 2), ("105", 2)):
        job = jobs[never_started]
        assert (job.start_s, job.run_s, job.units, job.nodes) == (None, 0.0, units, ())
    # A running job has run until the latest time in the dump.
    assert (jobs["106"].start_s, jobs["106"].run_s) == (420.0, 3660.0 - 420.0)


def test_arrays_het_jobs_unix_times_offsets_and_a_last_delimiter_are_read() -> None:
    jobs = {job.job_id: job for job in recorded("array.sacct").jobs}

    assert list(jobs) == ["18_0", "18_[1-9%2]", "18+1"]
    assert (jobs["18_0"].start_s, jobs["18_0"].run_s) == (100.0, 30.5)
    assert jobs["18_[1-9%2]"].start_s is None
    assert (jobs["18+1"].start_s, jobs["18+1"].run_s) == (0.0, 86401.0)


@pytest.mark.parametrize(
    ("line", "start_s"),
    [
        ("1|100|200|200|CANCELLED by 1000", None),
        ("1|100|200|260|PENDING", None),
        ("1|100|None|None|FAILED", None),
        ("1|0|None|None|FAILED", None),
        ("1|100|200|200|FAILED", 100.0),
    ],
)
def test_a_start_that_never_came_is_recognised_without_node_names_too(
    line: str, start_s: float | None
) -> None:
    job = only_job("JobID|Submit|Start|End|State|NNodes", line + "|4")

    assert (job.start_s, job.run_s, job.units) == (start_s, 0.0, 4)


def test_a_running_job_has_run_for_elapsed_where_the_dump_has_it() -> None:
    line = "1|2026-08-20T04:00:00|2026-08-20T04:00:00|Unknown|1-00:00:30|1|n1"

    assert only_job("JobIDRaw|Submit|Start|End|Elapsed|NNodes|X", line).run_s == 86430.0


def test_nodes_are_counted_by_name_where_no_column_counts_them() -> None:
    line = "1|2026-08-20T04:00:00|2026-08-20T04:00:00|2026-08-20T05:00:00|n[1-3]"

    assert only_job("JobID|Submit|Start|End|NodeList", line).units == 3


TIMES = "expected a time such as 2026-08-20T04:00:00, a Unix time, Unknown or None"


@bad_lines(
    GOOD,
    f"""
|n1 | |n1|x | - | found 7 fields, expected 6 (a name with '|' or a line break in it?)
1| | x| | JobID | found 'x'; expected a job id such as 123 or 123_4
{GOOD[2:21]} | Unknown | Submit | found 'Unknown'; expected the time of submission
2026-08-20T05 | 2026-13-20T05 | End | found '2026-13-20T05:00:00'; {TIMES}
T05 | T03 | End | found '2026-08-20T03:00:00', 3600 s before Start; expected Start first
0| | 1| | Start | found '2026-08-20T04:00:00', 1 s before Submit; expected Submit first
|1| | |1.3| | NNodes | found '1.3'; expected a whole number, or one such as 1.5K
n1 | n[1 | NodeList | found 'n[1'; expected a node list: no node name at character 2
""",
)
def test_a_bad_line_is_named_with_its_column_and_what_was_expected(
    line: str, field: str | None, why: str
) -> None:
    error = refusal(Sacct(), HEADER, line)

    assert (error.line_number, error.field, error.why) == (2, field, why)


def test_a_missing_column_is_named_with_the_way_to_get_it() -> None:
    assert str(refusal(Sacct(), "JobID|Submit|Start|NNodes", "1|1|1|1")) == (
        "log, line 1: the sacct dump has no column End or Elapsed or ElapsedRaw; "
        "make it with -o "
        "JobIDRaw,Submit,Start,End,Timelimit,NNodes,NodeList,Partition,State"
    )


def test_the_names_of_a_list_are_as_many_as_its_line_says() -> None:
    error = refusal(Sacct(), HEADER, GOOD, GOOD.replace("|1|n1", "|2|n[1-500]"))

    assert (error.line_number, error.field) == (3, "NodeList")
    assert error.why == "found 500 nodes; expected 2, as NNodes says"


def test_a_dump_with_all_of_these_is_read() -> None:
    trace = recorded("noheader.sacct")

    assert [
        (job.job_id, job.start_s, job.run_s, job.requested_s, job.nodes)
        for job in trace.jobs
    ] == [
        ("201", 60, 3600, 7200, ("n01", "n02")),
        ("202", None, 0, None, ()),
        ("203", 1200, 1800, 1800, ("n01",)),
    ]
    assert (trace.units, trace.skipped_lines) == (2, 0)
    columns, *breaks = trace.cautions
    assert columns == (
        "The dump has no header line: its columns were taken to be 1 JobID, 4 State, "
        "5 Submit, 7 Start, 8 End, 9 Elapsed, 10 Timelimit, 11 NNodes, 12 NodeList."
    )
    assert breaks == [
        "1 step left out that had line breaks in a field.",
        "1 job put together that had line breaks in a field.",
    ]


FOUR = ("n1", "n2", "n3", "n4")
NIGHT = "2026-08-20T04:00:00|2026-08-20T04:00:00|2026-08-20T05:00:00"


@pytest.mark.parametrize("mark", ["|#", ";", "\t", "^"])
def test_another_delimiter_is_seen_by_the_first_line(mark: str) -> None:
    lines = [line.replace("|", mark) for line in (HEADER, GOOD)]

    assert recognise(content(*lines)).name == "sacct"
    assert Sacct().read(content(*lines)) == Sacct().read(content(HEADER, GOOD))


@pytest.mark.parametrize("name", ["requeued.sacct", "array.sacct"])
def test_a_dump_without_a_header_is_read_by_what_stands_in_its_columns(
    name: str, tmp_path: Path
) -> None:
    header, *lines = (RECORDED / name).read_text().splitlines()
    log = tmp_path / "dump"
    log.write_bytes(content(*lines).raw)

    trace = read_trace(log)

    assert isinstance(trace, JobTrace)
    [caution] = trace.cautions
    place = header.split("|").index("Submit") + 1
    assert caution.startswith("The dump has no header line: ")
    assert f" {place} Submit" in caution
    there = recorded(name)
    assert trace.jobs == tuple(
        replace(job, user="", partition="", priority=None) for job in there.jobs
    )
    assert trace.units == there.units


@pytest.mark.parametrize(
    ("line", "found"),
    [
        # Job, User, State, Submit, Start, End, NNodes: its only count.
        (f"7|ada|COMPLETED|{NIGHT}|3", (3, 3600.0, None, ())),
        # Eligible stands between Submit and Start; the list is as long as a count.
        (f"2|7|4|{NIGHT[:19]}|{NIGHT}|n[1-4]", (4, 3600.0, None, FOUR)),
        # 01:00:00 is what it took, 02:00:00 the limit, on either side.
        (f"7|2|02:00:00|{NIGHT}|01:00:00", (2, 3600.0, 7200.0, ())),
        (f"7|2|01:00:00|{NIGHT}|02:00:00", (2, 3600.0, 7200.0, ())),
        # No End, and so the only duration is what it took.
        (f"7|2|{NIGHT[:39]}|01:00:00", (2, 3600.0, None, ())),
    ],
)
def test_columns_without_names_are_told_apart_by_their_values(
    line: str, found: tuple[int, float, float | None, tuple[str, ...]]
) -> None:
    other = line.replace("7|", "8|", 1)

    first, _ = Sacct().read(content(line, other)).jobs

    assert (first.units, first.run_s, first.requested_s, first.nodes) == found
    assert (first.submit_s, first.start_s) == (0, 0)


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        (f"7|ada|{NIGHT}", "NNodes or AllocNodes or NodeList"),
        (f"7|ada|{NIGHT}|2|64", "NNodes or AllocNodes or NodeList"),
        (f"7|2|{NIGHT[:39]}", "End or Elapsed or ElapsedRaw"),
        (f"ada|n[1-2]|{NIGHT}", "JobIDRaw or JobID"),
    ],
)
def test_columns_that_cannot_be_told_apart_ask_for_the_header(
    line: str, missing: str
) -> None:
    error = refusal(Sacct(), line)

    assert error.line_number == 1
    assert f"no header line, and of its columns none is surely {missing}" in error.why


def test_steps_with_line_breaks_are_left_out_and_counted() -> None:
    # The step's name has two lines, the batch step's three with a bar, the job's two.
    head = "JobIDRaw|JobName|Submit|Start|End|NNodes|NodeList"
    lines = (
        f"1|train|{NIGHT}|1|n1",
        "1.0|two",
        f"lines|{NIGHT}|1|n1",
        "1.batch|a",
        "",
        "b|c",
        f"d|{NIGHT}|1|n1",
        "2|my",
        f"job|{NIGHT}|1|n2",
        f"3|x|{NIGHT}|1|n3",
    )

    trace = Sacct().read(content(head, *lines))

    assert [(job.job_id, job.nodes) for job in trace.jobs] == [
        ("1", ("n1",)),
        ("2", ("n2",)),
        ("3", ("n3",)),
    ]
    assert trace.skipped_lines == 0
    assert trace.cautions == (
        "2 steps left out that had line breaks in a field.",
        "1 job put together that had line breaks in a field.",
    )


def test_a_line_break_in_the_last_column_belongs_to_the_line_before() -> None:
    head = "JobIDRaw|Submit|Start|End|NNodes|NodeList|JobName"
    lines = (f"1|{NIGHT}|1|n1|a", "b", f"2|{NIGHT}|1|n2|c")

    trace = Sacct().read(content(head, *lines))

    assert [job.job_id for job in trace.jobs] == ["1", "2"]


def test_a_torn_job_is_no_line_break() -> None:
    # Line 3 is cut off; put together with line 4 it has too many fields.
    error = refusal(Sacct(), HEADER, GOOD, f"2|{NIGHT[:30]}", GOOD.replace("1", "3", 1))

    assert error.line_number == 3
    assert "found 3 fields, expected 6" in error.why


def test_a_dump_of_steps_alone_is_refused() -> None:
    steps = GOOD.replace("1|", "1.0|", 1)

    assert "there is no job in it" in str(refusal(Sacct(), HEADER, steps))


GPU_HEAD = "JobIDRaw|Submit|Start|End|NNodes|NodeList|AllocTRES"
GPU_LINES = (
    "1|0|0|10|2|n[1-2]|billing=8,cpu=8,gres/gpu:a100=8,gres/gpu=8,mem=64G,node=2",
    "2|0|5|20|1|n1|cpu=4,gres/gpu:a100=2,gres/gpu:v100=1,node=1",
    "3|0|0|30|1|c7|cpu=64,mem=64G,node=1",
    "4|0|None|Unknown|1|None assigned|",
)


def test_gpus_are_counted_where_it_is_said_how_many_a_node_has() -> None:
    dump = content(GPU_HEAD, *GPU_LINES)

    trace = Sacct(gpus_per_node=8).read(dump)

    found = [(job.units, job.node_count, job.nodes) for job in trace.jobs]
    # Of any type, or of each; what has none ran on no node with GPUs.
    assert found == [(8, 2, ("n1", "n2")), (3, 1, ("n1",)), (0, 1, ()), (0, 1, ())]
    assert [job.start_s for job in trace.jobs] == [0, 5, None, None]
    assert (trace.units, trace.units_per_node, trace.counts_gpus) == (16, 8, True)
    plain = Sacct().read(dump)
    assert [job.units for job in plain.jobs] == [2, 1, 1, 1]
    assert not plain.counts_gpus


def test_gpus_that_a_dump_does_not_count_or_its_nodes_do_not_have_are_refused() -> None:
    four = Sacct(gpus_per_node=4)

    without = refusal(
        four, *(line.rpartition("|")[0] for line in (GPU_HEAD, *GPU_LINES))
    )
    assert "no column AllocTRES" in without.why
    many = refusal(four, GPU_HEAD, GPU_LINES[0].replace("=8,mem", "=9,mem"))
    assert (many.field, many.line_number) == ("AllocTRES", 2)
    assert "9 GPUs on 2 nodes; expected 4 a node at most" in many.why
