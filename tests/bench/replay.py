"""Benchmark of the replay against the independent one, and of large logs.

Both run in the same go on the same machine, so that their ratio means something. A year
of Theta is held against Summit's two weeks, event by event; a log of a machine of
93,312 cores against one of half as many jobs. ``python -m tests.bench replay``
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

_MIB = 1 << 20
_KIB = 1 << 10


# Nodes of Summit, trainers at a time, and times that we must be as fast at least.
LINES = ((1024, 10, 2.0), (4734, 40, 3.0))


CORES = 93_312
# By method: the share of the machine that jobs fill, and two numbers of jobs.
LARGE_LOGS = (
    ("recorded", 0.7, (20_000, 40_000)),
    ("easy", 0.7, (20_000, 40_000)),
    ("slurm", 0.7, (20_000, 40_000)),
    ("slurm", 1.05, (5_000, 10_000)),  # a queue that grows all the time
)
REPLAYED = ("--trainers", "hps", "--parallel", "10", "--policy", "freetrain")


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

    yield from _year(shared)
    yield from _sizes()


def _year(shared: Path) -> Iterator[str]:
    """Yield how long a year of Theta takes, and an event of it over one of Summit."""
    each_ms = []
    for name, log, more in (
        ("Summit, two weeks", "summit_2021-02.fragments.csv.gz", ["--nodes", "1024"]),
        ("Theta, a year", "theta_2022.csv.gz", []),
    ):
        words = ["replay", str(shared / "logs" / log), *REPLAYED, "--requeue", *more]
        cpu_s, peak_bytes, text = _cpu(["-m", "freetrain", *words, "--json"])
        events = json.loads(text)[0]["events"]
        each_ms.append(1e3 * cpu_s / events)
        yield (
            f"{name}: {cpu_s:.1f} s of processor time, {events:,} events, "
            f"{each_ms[-1]:.3f} ms each, {peak_bytes / _MIB:.0f} MiB"
        )
    yield f"an event of Theta takes {each_ms[1] / each_ms[0]:.2f} times one of Summit"


def _sizes() -> Iterator[str]:
    """Yield what twice the jobs take of a large machine, by way to place them."""
    with tempfile.TemporaryDirectory() as folder:
        for method, share, sizes in LARGE_LOGS:
            took = []
            for jobs in sizes:
                log = _large_log(Path(folder) / "log.swf", jobs, share)
                words = [str(log), *REPLAYED, "--requeue", "--schedule", method]
                cpu_s, peak_bytes, _ = _cpu(["-m", "freetrain", "replay", *words])
                took.append(cpu_s)
                yield (
                    f"{jobs:,} jobs for {share:.0%} of {CORES:,} cores, {method}: "
                    f"{cpu_s:.1f} s of processor time, {peak_bytes / _MIB:.0f} MiB"
                )
            yield f"{method}: {took[1] / took[0]:.2f} times as long for twice the jobs"


def _large_log(path: Path, jobs: int, share: float) -> Path:
    """Write a log of jobs of 1 to 4,096 cores that fill *share* of the machine."""
    chance = random.Random(jobs)  # noqa: S311 -- load, not secrets
    lines, at_s, area = [f"; MaxProcs: {CORES}"], 0.0, 0.0
    for number in range(1, jobs + 1):
        size = chance.choice((chance.randint(1, 64), 16 * chance.randint(1, 256)))
        run_s = 1 + int(chance.expovariate(1 / 4_000))
        area += size * run_s
        at_s = max(at_s, area / (share * CORES) * chance.uniform(0.98, 1.0))
        asked_s = run_s * chance.choice((1, 2, 10))
        lines.append(
            f"{number} {at_s:.0f} 0 {run_s} {size} -1 -1 {size} {asked_s} -1 1 "
            f"{number % 300} -1 -1 -1 -1 -1 -1"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def _cpu(arguments: Sequence[str]) -> tuple[float, int, bytes]:
    """Return processor seconds, the largest resident set, and what was written."""
    with subprocess.Popen(  # noqa: S603  our own interpreter and programs
        [sys.executable, *arguments], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert not process.returncode
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * _KIB, said


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
