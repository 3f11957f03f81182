"""Benchmark of the replay against the independent one beside the real logs.

Both run in the same go on the same machine, so that their ratio means something.
``python -m tests.bench replay``
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_MIB = 1 << 20
_KIB = 1 << 10


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of reference/README.md, and how much faster it must come.

    Attributes:
        nodes: The first nodes of Summit that take part.
        parallel: Trainers at a time.
        faster: Times that we must be as fast as the reference, at least.
    """

    nodes: int
    parallel: int
    faster: float


LINES = (Line(1024, 10, 2.0), Line(4734, 40, 3.0))


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that ran to its end.

    Attributes:
        wall_s: From start to end, the interpreter's own start included.
        peak_bytes: Its largest resident set.
        samples: What its JSON said.
    """

    wall_s: float
    peak_bytes: int
    samples: float


def lines(shared: Path) -> Iterator[str]:
    """Yield the benchmark's table, row by row, as it comes."""
    yield "nodes  trainers  reference s  ours s  ratio  wanted  ours MiB  samples ratio"
    for line in LINES:
        theirs = _run(_reference(shared, line))
        ours = _run(_ours(shared, line))
        yield (
            f"{line.nodes:5d}  {line.parallel:8d}  {theirs.wall_s:11.2f}  "
            f"{ours.wall_s:6.2f}  {theirs.wall_s / ours.wall_s:5.2f}  "
            f"{line.faster:6.1f}  {ours.peak_bytes / _MIB:8.0f}  "
            f"{ours.samples / theirs.samples:.9f}"
        )


def _reference(shared: Path, line: Line) -> list[str]:
    script = str(shared / "reference" / "freetrain_exact.py")
    return [script, "--nodes", str(line.nodes), "--parallel", str(line.parallel)]


def _ours(shared: Path, line: Line) -> list[str]:
    log = str(shared / "logs" / "summit_2021-02.fragments.csv.gz")
    choices = {
        "--start": 72743,
        "--nodes": line.nodes,
        "--trainers": "hps",
        "--parallel": line.parallel,
        "--policy": "freetrain",
        "--accounting": "published",
    }
    words = [str(word) for choice in choices.items() for word in choice]
    return ["-m", "freetrain", "replay", log, *words, "--json"]


def _run(arguments: Sequence[str]) -> Ran:
    began_s = time.perf_counter()
    with subprocess.Popen(  # noqa: S603  our own interpreter and programs
        [sys.executable, *arguments], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.read())
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - began_s
    record = said[0] if isinstance(said, list) else said
    return Ran(wall_s, usage.ru_maxrss * _KIB, record["samples"])
