"""Benchmark of the replay against the independent one beside the real logs.

Both run in the same go on the same machine, so that their ratio means something.
``python -m tests.bench replay``
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

_MIB = 1 << 20
_KIB = 1 << 10


# Nodes of Summit, trainers at a time, and times that we must be as fast at least.
LINES = ((1024, 10, 2.0), (4734, 40, 3.0))


def lines(shared: Path) -> Iterator[str]:
    """Yield the benchmark's table, row by row, as it comes."""
    yield "nodes  trainers  reference s  ours s  ratio  wanted  ours MiB  samples ratio"
    for nodes, parallel, wanted in LINES:
        theirs_s, _, theirs = _run(_reference(shared, nodes, parallel))
        ours_s, peak_bytes, ours = _run(_ours(shared, nodes, parallel))
        yield (
            f"{nodes:5d}  {parallel:8d}  {theirs_s:11.2f}  {ours_s:6.2f}  "
            f"{theirs_s / ours_s:5.2f}  {wanted:6.1f}  {peak_bytes / _MIB:8.0f}  "
            f"{ours / theirs:.9f}"
        )


def _reference(shared: Path, nodes: int, parallel: int) -> list[str]:
    script = str(shared / "reference" / "freetrain_exact.py")
    return [script, "--nodes", str(nodes), "--parallel", str(parallel)]


def _ours(shared: Path, nodes: int, parallel: int) -> list[str]:
    log = str(shared / "logs" / "summit_2021-02.fragments.csv.gz")
    choices = {
        "--start": 72743,
        "--nodes": nodes,
        "--trainers": "hps",
        "--parallel": parallel,
        "--policy": "freetrain",
        "--accounting": "published",
    }
    words = [str(word) for choice in choices.items() for word in choice]
    return ["-m", "freetrain", "replay", log, *words, "--json"]


def _run(arguments: Sequence[str]) -> tuple[float, int, float]:
    """Return seconds from start to end, the largest resident set, and samples."""
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
    return wall_s, usage.ru_maxrss * _KIB, record["samples"]
