"""One file's records, read on as it grows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.progress.bookmark import Mark
from freetrain.progress.growing_file import GrowingFile
from freetrain.progress.lines import Lines
from freetrain.progress.numbers import AbsurdError
from freetrain.progress.parsers import parser_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from freetrain.jobfile.job import TrainerJob
    from freetrain.progress.record import Record

_PIECE_BYTES = 1 << 18


class Feed:
    """One file's new records.

    Attributes:
        bad_lines: Lines so far that could not be understood.
    """

    def __init__(
        self,
        job: TrainerJob,
        path: Path,
        generation: int | None,
        mark: Mark | None = None,
    ) -> None:
        """Begin where *mark* says; at the beginning without it."""
        self.bad_lines = 0
        self._job = job
        self._generation = generation
        self._file = GrowingFile(path)
        self._begin()
        if mark is not None:
            self._file = GrowingFile(path, mark.inode, mark.offset)
            self._lines.is_skipping = mark.is_skipping
            if mark.header:
                self._parser.parse(mark.header)

    def _begin(self) -> None:
        self._lines = Lines()
        self._parser = parser_for(self._job.progress)

    @property
    def name(self) -> str:
        """The file's name."""
        return self._file.path.name

    @property
    def mark(self) -> Mark | None:
        """Where it stopped; None where there was no file."""
        if self._file.inode is None:
            return None
        return Mark(
            name=self._file.path.name,
            inode=self._file.inode,
            offset=self._file.offset - self._lines.pending_bytes,
            is_skipping=self._lines.is_skipping,
            header=self._parser.header,
        )

    def read_on(self, left: int, records: list[Record]) -> int:
        """Read to the end or the bound *left*; return what is left of the bound."""
        while left:
            asked = min(left, _PIECE_BYTES)
            got = self._read(asked, records)
            left -= got
            if got < asked:
                break
        return left

    def _read(self, most_bytes: int, records: list[Record]) -> int:
        grown = self._file.grow(most_bytes)
        if grown.is_new_file:
            self._begin()
        too_long = self._lines.too_long
        records.extend(self._parse(self._lines.feed(grown.piece)))
        self.bad_lines += self._lines.too_long - too_long
        return len(grown.piece)

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
