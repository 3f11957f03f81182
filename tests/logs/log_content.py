"""Logs made on the spot, and where the recorded ones lie."""

import io
from pathlib import Path
from typing import Any, TypeVar

import pytest

from logs.format import Content, LogFormat
from logs.trace import IdleTrace, JobTrace, Trace, UnreadableLogError

RECORDED = Path(__file__).parents[1] / "data" / "logs"

T = TypeVar("T", JobTrace, IdleTrace)


def content(*lines: str) -> Content:
    """Return a log of *lines*, as if read from the file ``log``."""
    return Content("log", "".join(f"{line}\n" for line in lines).encode())


def written(log_format: LogFormat[Any], trace: Trace) -> str:
    stream = io.StringIO()
    log_format.write(trace, stream)
    return stream.getvalue()


def read_again(log_format: LogFormat[T], trace: T) -> T:
    return log_format.read(Content(trace.source, written(log_format, trace).encode()))


def refusal(log_format: LogFormat[Any], *lines: str) -> UnreadableLogError:
    with pytest.raises(UnreadableLogError) as caught:
        log_format.read(content(*lines))
    return caught.value


def bad_lines(good: str, table: str) -> pytest.MarkDecorator:
    """Parametrise by *table*: words of *good*, replaced, the field (or -), and why."""
    rows = [[cell.strip() for cell in row.split(" | ")] for row in table.split("\n")]
    cases = [
        (good.replace(old, new, 1), None if field == "-" else field, why)
        for old, new, field, why in filter(any, rows)
    ]
    return pytest.mark.parametrize(("line", "field", "why"), cases)
