import pytest

from logs.read import read_trace
from logs.swf import Swf
from logs.trace import Job, JobTrace, UnreadableLogError
from tests.logs.readers.log_content import RECORDED, content

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
