"""Follow what a trainer tells, as it grows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.progress.growing_file import GrowingFile
from freetrain.progress.lines import Lines
from freetrain.progress.numbers import AbsurdError
from freetrain.progress.parsers import parser_for
from freetrain.progress.source import log_files, told_in
from freetrain.progress.standing import Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from freetrain.jobfile.job import TrainerJob
    from freetrain.progress.record import Progress, Record

# About 0.13 s of work, so that whoever asks once a second stays quick.
MOST_BYTES = 1 << 20
_PIECE_BYTES = 1 << 18


class Feed:
    """One file's new records."""

    def __init__(self, job: TrainerJob, path: Path, generation: int | None) -> None:
        self.bad_lines = 0
        self._job = job
        self._generation = generation
        self._file = GrowingFile(path)
        self._begin()

    def _begin(self) -> None:
        self._lines = Lines()
        self._parser = parser_for(self._job.progress)

    def read(self, most_bytes: int) -> tuple[int, list[Record]]:
        """Return how many bytes were read, and the records in them."""
        grown = self._file.grow(most_bytes)
        if grown.is_new_file:
            self._begin()
        too_long = self._lines.too_long
        records = list(self._parse(self._lines.feed(grown.piece)))
        self.bad_lines += self._lines.too_long - too_long
        return len(grown.piece), records

    def _parse(self, lines: Iterable[str]) -> Iterator[Record]:
        for line in lines:
            try:
                found = self._parser.parse(line)
            except AbsurdError:
                self.bad_lines += 1
                continue
            for record in found:
                known = record.generation is not None or self._generation is None
                yield record if known else replace(record, generation=self._generation)


class Reader:
    """Reads a trainer's progress, from its beginning on, without reading twice.

    A last line without its end waits for the rest. A file that shrank or was
    replaced is read from its start. Lines that cannot be understood are counted,
    and never fatal; files that are missing or cannot be read have nothing new.

    Attributes:
        is_behind: Whether the last call left off at its bound, with more to read.
    """

    def __init__(
        self,
        job: TrainerJob,
        run_dir: Path,
        logs: Path,
        *,
        unix_s: Callable[[], float] | None = None,
    ) -> None:
        """Begin at the beginning.

        Args:
            job: The trainer.
            run_dir: Its run directory.
            logs: The folder of what its worlds print.
            unix_s: For programs that tell no time: what a record read from now on
                gets as its time, once the first reading has caught up.
        """
        self.is_behind = True
        self._job = job
        self._logs = logs
        self._unix_s = unix_s
        self._has_caught_up = False
        self._told_in = told_in(job, run_dir)
        self._feeds: dict[Path, Feed] = {}
        self._generation = 0
        self._bad_lines = 0
        self._standing = Standing()

    @property
    def bad_lines(self) -> int:
        """Lines so far that claimed to be progress and could not be understood."""
        return self._bad_lines + sum(feed.bad_lines for feed in self._feeds.values())

    def read(self, *, most_bytes: int = MOST_BYTES) -> tuple[Record, ...]:
        """Return the records since the last call, in the order they were written.

        Args:
            most_bytes: Bytes that one call reads at the most; the rest comes with
                the next calls (``is_behind``).
        """
        records: list[Record] = []
        left = most_bytes
        for feed in self._present_feeds():
            left = _read_on(feed, left, records)
            if not left:
                break
        self.is_behind = not left
        timed = [self._timed(record) for record in records]
        self._has_caught_up |= not self.is_behind
        for record in timed:
            self._standing.take(record)
        return tuple(timed)

    def latest(self) -> Progress | None:
        """Return where the trainer is, by all that was read; None before anything."""
        return self._standing.progress()

    def _timed(self, record: Record) -> Record:
        if record.t is not None or self._unix_s is None or not self._has_caught_up:
            return record
        return replace(record, t=self._unix_s())

    def _present_feeds(self) -> Iterator[Feed]:
        if self._told_in is not None:
            yield self._feed(self._told_in, None)
        elif self._job.progress is not None:
            for generation, path in log_files(self._logs, self._generation):
                self._move_on(generation)
                yield self._feed(path, generation)

    def _feed(self, path: Path, generation: int | None) -> Feed:
        if path not in self._feeds:
            self._feeds[path] = Feed(self._job, path, generation)
        return self._feeds[path]

    def _move_on(self, generation: int) -> None:
        """Forget the files of earlier generations, which are read to their ends."""
        if generation > self._generation:
            self._generation = generation
            self._bad_lines = self.bad_lines
            self._feeds = {}


def _read_on(feed: Feed, left: int, records: list[Record]) -> int:
    """Read *feed* to its end or the bound; return what is left of the bound."""
    while left:
        asked = min(left, _PIECE_BYTES)
        got, found = feed.read(asked)
        records.extend(found)
        left -= got
        if got < asked:
            break
    return left
