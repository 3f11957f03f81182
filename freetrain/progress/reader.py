"""Follow what a trainer tells, as it grows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.progress.bookmark import BEGINNING, Bookmark
from freetrain.progress.feed import Feed
from freetrain.progress.source import log_files, told_in
from freetrain.progress.standing import Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from freetrain.jobfile.job import TrainerJob
    from freetrain.progress.bookmark import Mark
    from freetrain.progress.record import Progress, Record

# About 0.13 s of work, so that whoever asks once a second stays quick.
MOST_BYTES = 1 << 20


class Reader:
    """Reads a trainer's progress, from its beginning on, without reading twice.

    A last line without its end waits for the rest. A file that shrank or was
    replaced is read from its start. Lines that cannot be understood are counted,
    and never fatal; files that are missing or cannot be read have nothing new.

    Attributes:
        is_behind: Whether the last call left off at its bound, with more to read.
        read_bytes: How many bytes the last call read.
    """

    def __init__(
        self,
        job: TrainerJob,
        run_dir: Path,
        logs: Path,
        *,
        unix_s: Callable[[], float] | None = None,
        since: Bookmark = BEGINNING,
    ) -> None:
        """Begin at the beginning, or where another reader stopped.

        Args:
            job: The trainer.
            run_dir: Its run directory.
            logs: The folder of what its worlds print.
            unix_s: For programs that tell no time: what a record read from now on
                gets as its time, once the first reading has caught up.
            since: Where the other reader stopped.
        """
        self.is_behind = True
        self.read_bytes = 0
        self._job = job
        self._logs = logs
        self._unix_s = unix_s
        self._has_caught_up = since.has_caught_up
        self._told_in = told_in(job, run_dir)
        self._feeds: dict[Path, Feed] = {}
        self._marks: dict[str, Mark | None] = {one.name: one for one in since.marks}
        self._generation = since.generation
        self._bad_lines = since.bad_lines
        self._standing = Standing()

    @property
    def bad_lines(self) -> int:
        """Lines so far that claimed to be progress and could not be understood."""
        return self._bad_lines + sum(feed.bad_lines for feed in self._feeds.values())

    @property
    def bookmark(self) -> Bookmark:
        """Where it stopped, for another reader."""
        found = {feed.name: feed.mark for feed in self._feeds.values()}
        marks = (mark for mark in (self._marks | found).values() if mark is not None)
        return Bookmark(
            self._generation, self.bad_lines, self._has_caught_up, tuple(marks)
        )

    def read(self, *, most_bytes: int = MOST_BYTES) -> tuple[Record, ...]:
        """Return the records since the last call, in the order they were written.

        Args:
            most_bytes: Bytes that one call reads at the most; the rest comes with
                the next calls (``is_behind``).
        """
        records: list[Record] = []
        left = most_bytes
        for feed in self._present_feeds():
            left = feed.read_on(left, records)
            if not left:
                break
        self.is_behind = not left
        self.read_bytes = most_bytes - left
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
            mark = self._marks.get(path.name)
            self._feeds[path] = Feed(self._job, path, generation, mark)
        return self._feeds[path]

    def _move_on(self, generation: int) -> None:
        """Forget the files of earlier generations, which are read to their ends."""
        if generation > self._generation:
            self._generation = generation
            self._bad_lines = self.bad_lines
            self._feeds, self._marks = {}, {}
