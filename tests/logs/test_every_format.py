"""What every log format keeps, whichever it is; each new one is held to it."""

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from logs.format import LogFormat
from logs.read import READ_ONLY, WRITABLE, format_named, formats, recognise
from logs.trace import (
    IdleTrace,
    Job,
    JobTrace,
    Trace,
    UnreadableLogError,
    UnusableLogError,
)
from tests.logs.log_content import RECORDED, content

NAMES = [*WRITABLE, *READ_ONLY]
every_format = pytest.mark.parametrize(
    "log_format", list(map(format_named, NAMES)), ids=NAMES
)

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


def a_log(log_format: LogFormat[Any]) -> str:
    """Return a log as *log_format* writes it, or a recorded one if it only reads."""
    if log_format.name in READ_ONLY:
        return min(RECORDED.glob(f"*.{log_format.name}")).read_text(encoding="utf-8")
    stream = io.StringIO()
    log_format.write(a_trace(log_format), stream)
    return stream.getvalue()


def a_trace(log_format: LogFormat[Any]) -> Trace:
    if log_format.name == "gpu-csv":
        return replace(JOBS, units_per_node=4, counts_gpus=True)
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


def test_formats_are_found_by_their_names() -> None:
    assert [log_format.name for log_format in formats()] == NAMES
    assert [format_named(name).name for name in NAMES] == NAMES


@every_format
def test_a_log_is_recognised_and_reads_back(log_format: LogFormat[Any]) -> None:
    log = content(*a_log(log_format).splitlines())

    read = recognise(log).read(log)

    assert recognise(log).name == log_format.name
    assert isinstance(read, log_format.holds)
    if log_format.name in WRITABLE:
        assert core(read) == core(a_trace(log_format))
    assert core(read)
    if isinstance(read, JobTrace):
        assert read.log_format == log_format.name


@every_format
def test_a_bad_line_is_named_or_skipped_and_counted(log_format: LogFormat[Any]) -> None:
    good = a_log(log_format).splitlines()
    lines = [*good, "no such line"]

    with pytest.raises(UnreadableLogError, match=f"line {len(lines)}:") as caught:
        log_format.read(content(*lines))
    assert caught.value.can_skip
    skipped = log_format.read(content(*lines), skip_bad=1)
    assert skipped.skipped_lines == 1
    assert core(skipped) == core(log_format.read(content(*good)))


@every_format
def test_a_log_without_a_record_is_refused(log_format: LogFormat[Any]) -> None:
    header = [
        line
        for line in a_log(log_format).splitlines()
        if not (line[:1].isalnum() and any(map(str.isdigit, line)))
    ]

    with pytest.raises(UnreadableLogError, match="in it"):
        log_format.read(content(*header))


def test_a_format_that_is_only_read_refuses_to_write() -> None:
    stream = io.StringIO()

    for log_format in map(format_named, READ_ONLY):
        with pytest.raises(UnusableLogError, match="only read"):
            log_format.write(a_trace(log_format), stream)
    assert not stream.getvalue()
