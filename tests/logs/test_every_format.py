"""What every log format keeps, whichever it is; each new one is held to it."""

import io
from typing import Any, get_args

import numpy as np
import pytest

from freetrain.cli.trace import FormatName
from logs.lines import LogFormat
from logs.read import FORMATS, format_named, recognise
from logs.trace import (
    IdleTrace,
    Job,
    JobTrace,
    Trace,
    UnreadableLogError,
    UnusableLogError,
)
from tests.logs.log_content import content

WRITABLE = [each for each in FORMATS if each.can_write]

JOBS = JobTrace(
    source="made up",
    log_format="made up",
    jobs=(
        Job("1", 0.0, 10.0, 100.0, 4, 3600.0, user="3"),
        Job("2", 5.0, None, 0.0, 2, None),
        Job("3", 5.0, 5.0, 7.0, 1, 60.0),
    ),
    units=8,
)
HOLES = IdleTrace(
    source="made up",
    node_names=("n1", "n2"),
    node=np.array([1, 0], np.int32),
    start_s=np.array([0.0, 5.0]),
    end_s=np.array([10.0, 6.5]),
)


def written(log_format: LogFormat[Any]) -> str:
    stream = io.StringIO()
    log_format.write(a_trace(log_format), stream)
    return stream.getvalue()


def a_trace(log_format: LogFormat[Any]) -> Trace:
    return JOBS if log_format.holds is JobTrace else HOLES


def core(trace: Trace) -> list[tuple[object, ...]]:
    """What every format of a kind can hold."""
    if isinstance(trace, JobTrace):
        return [
            (job.job_id, job.submit_s, job.start_s, job.run_s, job.units, job.user)
            for job in trace.jobs
        ]
    names = [trace.node_names[k] for k in trace.node]
    return list(zip(names, trace.start_s, trace.end_s, strict=True))


def test_formats_are_found_by_their_names_and_no_two_share_one() -> None:
    assert len({each.name for each in FORMATS}) == len(FORMATS)
    assert all(format_named(each.name) is each for each in FORMATS)


def test_the_command_line_offers_the_formats_that_can_be_written() -> None:
    assert set(get_args(FormatName)) == {each.name for each in WRITABLE}


@pytest.mark.parametrize("log_format", WRITABLE, ids=lambda each: each.name)
def test_a_written_log_is_recognised_and_reads_back(log_format: LogFormat[Any]) -> None:
    log = content(*written(log_format).splitlines())

    read = recognise(log).read(log)

    assert recognise(log) is log_format
    assert isinstance(read, log_format.holds)
    assert core(read) == core(a_trace(log_format))
    if isinstance(read, JobTrace):
        assert read.log_format == log_format.name


@pytest.mark.parametrize("log_format", WRITABLE, ids=lambda each: each.name)
def test_a_bad_line_is_named_or_skipped_and_counted(log_format: LogFormat[Any]) -> None:
    lines = [*written(log_format).splitlines(), "no such line"]

    with pytest.raises(UnreadableLogError, match=f"line {len(lines)}:") as caught:
        log_format.read(content(*lines))
    assert caught.value.can_skip
    skipped = log_format.read(content(*lines), skip_bad=1)
    assert skipped.skipped_lines == 1
    assert core(skipped) == core(a_trace(log_format))


@pytest.mark.parametrize("log_format", WRITABLE, ids=lambda each: each.name)
def test_a_log_without_a_record_is_refused(log_format: LogFormat[Any]) -> None:
    header = [
        line
        for line in written(log_format).splitlines()
        if not (line[:1].isalnum() and any(map(str.isdigit, line)))
    ]

    with pytest.raises(UnreadableLogError, match="in it"):
        log_format.read(content(*header))


def test_a_format_that_is_only_read_refuses_to_write() -> None:
    stream = io.StringIO()

    for each in FORMATS:
        if not each.can_write:
            with pytest.raises(UnusableLogError, match="only read"):
                each.write(a_trace(each), stream)
    assert not stream.getvalue()
