"""Where a trainer is, from the end of what it wrote: quick on files of any size."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.jobfile.job import ProgressFormat
from freetrain.progress.growing_file import GrowingFile, read_tail
from freetrain.progress.lines import Lines
from freetrain.progress.numbers import AbsurdError
from freetrain.progress.parsers import parser_for
from freetrain.progress.source import log_files, told_in
from freetrain.progress.standing import Standing

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from freetrain.jobfile.job import TrainerJob
    from freetrain.progress.parsers import Parser
    from freetrain.progress.record import Progress, Record

TAIL_BYTES = 1 << 18
_HEAD_BYTES = 1 << 16
# A program that fails at each start leaves files without a word of progress.
_MOST_FILES = 16


def latest_progress(
    job: TrainerJob, run_dir: Path, logs: Path, *, tail_bytes: int = TAIL_BYTES
) -> Progress | None:
    """Return where *job* is, reading only the ends of its files.

    Args:
        job: The trainer.
        run_dir: Its run directory.
        logs: The folder of what its worlds print.
        tail_bytes: How much of a file's end is read.

    Returns:
        None where nothing is told there. ``samples_per_s`` is over what the end
        holds of the present generation, so it may differ from a ``Reader``'s.
    """
    path = told_in(job, run_dir)
    if path is not None:
        return _standing(_records(job, path, tail_bytes))
    if job.progress is None:
        return None
    for generation, log in reversed(log_files(logs)[-_MOST_FILES:]):
        found = _records(job, log, tail_bytes)
        if found:
            return _standing(replace(r, generation=generation) for r in found)
    return None


def _standing(records: Iterable[Record]) -> Progress | None:
    standing = Standing()
    for record in records:
        standing.take(record)
    return standing.progress()


def _records(job: TrainerJob, path: Path, tail_bytes: int) -> list[Record]:
    tail = read_tail(path, tail_bytes + 1)
    parser = parser_for(job.progress)
    if len(tail) > tail_bytes:
        _learn_columns(job, path, parser)
        tail = _from_a_line_on(tail)
    return [record for line in Lines().feed(tail) for record in _parsed(parser, line)]


def _from_a_line_on(tail: bytes) -> bytes:
    """Leave out what may be the rest of a line that began before *tail*."""
    ends = [end for end in (tail.find(b"\n"), tail.find(b"\r")) if end >= 0]
    return tail[min(ends) + 1 :] if ends else b""


def _learn_columns(job: TrainerJob, path: Path, parser: Parser) -> None:
    """Show the file's first lines to the parser of a table, for its header."""
    if job.progress and job.progress.form is ProgressFormat.CSV:
        for line in Lines().feed(GrowingFile(path).grow(_HEAD_BYTES).piece):
            _parsed(parser, line)


def _parsed(parser: Parser, line: str) -> tuple[Record, ...]:
    try:
        return parser.parse(line)
    except AbsurdError:
        return ()
