"""Gives readers changed samples, in children with limits, and counts.

An example fails a reader where it raises anything but its documented errors, takes two
seconds of CPU time or more, or needs 300 MB.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.limits import MOST_S, Spent, memory_limited, spent
from tests.fuzz.mutations import changed

if TYPE_CHECKING:
    from tests.fuzz.readers import Reader

_LAST = "last input"
_ROUND = 100
_MOST_ROUNDS = 1_000_000


class SlowReadError(AssertionError):
    """A reader took too long."""


def fuzz(reader: Reader, *, examples: int, number: int, for_s: float = 600.0) -> int:
    """Give *reader* so many changed samples, in a child; return how many were read.

    Args:
        reader: The reader.
        examples: Samples to read, at the most.
        number: The seed: the same gives the same samples.
        for_s: No more are made after this time.

    Raises:
        AssertionError: It failed; names the input.
    """
    folder = Path(tempfile.mkdtemp(prefix="freetrain-fuzz-", dir=_memory()))
    try:
        found = spent(
            lambda: _read_many(reader, folder, examples, number, for_s),
            cpu_s=for_s + 60.0,
            is_one=False,
        )
        _judge(reader, found, folder)
        return int((folder / "count").read_text())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _judge(reader: Reader, found: Spent, folder: Path) -> None:
    last = folder / _LAST
    content = last.read_bytes() if last.exists() else b""
    if found.ended or found.error is not None:
        raise AssertionError(
            f"{reader.name}: {found.ended or found.error}, with {content[:500]!r} "
            f"({len(content)} bytes): {found.message}"
        )


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108


def _read_many(
    reader: Reader, folder: Path, examples: int, number: int, for_s: float
) -> None:
    """Read in rounds: Hypothesis knows no end by time."""
    count, until_s = 0, time.monotonic() + for_s

    def read(content: bytes) -> None:
        nonlocal count
        if time.monotonic() > until_s:
            return
        (folder / _LAST).write_bytes(content)
        count += 1
        read_one(reader, content, folder / "files")

    every = settings(
        max_examples=min(examples, _ROUND),
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    place = 0
    while count < examples and time.monotonic() < until_s:
        every(
            seed(number * _MOST_ROUNDS + place)(given(changed(reader.samples))(read))
        )()
        place += 1
    (folder / "count").write_text(str(count))


def read_one(reader: Reader, content: bytes, folder: Path) -> None:
    """Give *reader* one input.

    Raises:
        SlowReadError: It took too long.
        Exception: One that it does not document.
    """
    folder.mkdir(exist_ok=True)
    began_s = time.process_time()
    with contextlib.suppress(*reader.errors), memory_limited():
        reader.read(content, folder)
    took_s = time.process_time() - began_s
    if took_s >= MOST_S:
        raise SlowReadError(
            f"{reader.name} took {took_s:.1f} s for {len(content)} bytes"
        )
