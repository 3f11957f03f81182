"""FlowCon against fair sharing, on this machine, with real training processes.

::

    python -m tests.pack.measure --seeds 5

Takes about 15 minutes on a quiet machine of two CPUs. It may be interrupted and
started again: runs that came to their end are not repeated. Nothing is asserted; the
ratios are within one seed on one machine, fair and flowcon in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import TYPE_CHECKING, Any

from tests.pack.packs import PROGRESS, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SHARINGS = ("fair", "flowcon")
_LOOK_S = 0.1
TRAINS = """
import os
os.environ |= {{k: "1" for k in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}}
from tests.pack.measure.train import main
main(*{!r})
"""

INTERVAL_S = 2.0
"""The paper's trainers took minutes and its interval was 30 s; ours take seconds."""

PAPER = 0.4206
"""Part by which the paper shortened the completion of one trainer at the best."""

NO_WORSE = 1.02
"""A makespan this much longer is within what a machine repeats."""

Pair = tuple[dict[str, Any], dict[str, Any]]

# The schedules: name, what is trained, steps, and the second of arrival.
Arrival = tuple[str, str, int, float]

_CPUS = {"fixed": 1, "random": 2}
# Steps are worth about 20, 14 and 8 seconds of one CPU of the machine at which they
# were chosen; each comes when the one before has mostly converged.
_FIXED: tuple[Arrival, ...] = (
    ("1st", "network-digits", 135_000, 0.0),
    ("2nd", "softmax-cancer", 370_000, 8.0),
    ("3rd", "sklearn-digits", 3_000, 16.0),
)
# About 12 CPU-seconds each; they come in any order in the first 15 s.
_FIVE = {
    "network-digits": 80_000,
    "softmax-cancer": 300_000,
    "softmax-digits": 240_000,
    "network-wine": 80_000,
    "sklearn-digits": 4_500,
}
_LAST_S = 15.0


def arrivals(schedule: str, seed: int) -> tuple[Arrival, ...]:
    if schedule == "fixed":
        return _FIXED
    chance = random.Random(seed)  # noqa: S311 -- no secret
    kinds = list(_FIVE)
    chance.shuffle(kinds)
    times_s = (0.0, *sorted(chance.uniform(0, _LAST_S) for _ in kinds[1:]))
    return tuple(
        (kind, kind, _FIVE[kind], round(at_s, 1))
        for kind, at_s in zip(kinds, times_s, strict=True)
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.pack.measure",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, default=5, help="how many (5)")
    parser.add_argument("--out", type=Path, default=Path("/tmp/freetrain-pack"))  # noqa: S108
    parser.add_argument("--only", choices=list(_CPUS), help="one schedule")
    parser.add_argument("--means", default="auto", help="by what shares are set (auto)")
    parser.add_argument("--scale", type=float, default=1.0, help="of work, times (1)")
    parser.add_argument("--table", action="store_true", help="only show what there is")
    given = parser.parse_args(argv)
    given.out.mkdir(parents=True, exist_ok=True)
    kept = given.out / "results.jsonl"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if not given.table:
            _measure(given, kept)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; the same command goes on from here\n")
    for line in report(_results(kept)):
        sys.stdout.write(f"{line}\n")
    return 0


def _results(kept: Path) -> list[dict[str, Any]]:
    if not kept.exists():
        return []
    lines = kept.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _measure(given: argparse.Namespace, kept: Path) -> None:
    done = {(r["schedule"], r["seed"], r["sharing"]) for r in _results(kept)}
    # Python's and NumPy's files are in memory from the first run on.
    subprocess.run([sys.executable, "-c", "import sklearn.datasets"], check=True)
    for run in _runs(given):
        if run.key in done:
            continue
        begun_s = time.monotonic()
        name = "-".join(map(str, run.key))
        try:
            result = run.measure(given.out / name)
        except RunFailedError as error:
            sys.stderr.write(f"{error}; not counted\n")
            continue
        with kept.open("a") as file:
            file.write(json.dumps(result) + "\n")
            os.fsync(file.fileno())
        took_s = time.monotonic() - begun_s
        sys.stderr.write(f"{name}: {took_s:.0f} s, load before {result['load']:.2f}\n")


def _runs(given: argparse.Namespace) -> Iterator[Run]:
    for seed in range(1, given.seeds + 1):
        # Whatever drifts on the machine meets both alike.
        turns = _SHARINGS if seed % 2 else _SHARINGS[::-1]
        for schedule in [given.only] if given.only else list(_CPUS):
            for sharing in turns:
                yield Run((schedule, seed, sharing), given.means, given.scale)


class RunFailedError(Exception):
    """A run did not come to its end, so that it cannot be counted."""


@dataclass(frozen=True)
class Run:
    """One schedule with one seed under one sharing: a real pack, to its end."""

    key: tuple[str, int, str]
    means: str
    scale: float

    def measure(self, folder: Path) -> dict[str, Any]:
        """Run in *folder*; return the times."""
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "inbox").mkdir(parents=True)
        stage, (schedule, _, sharing) = Stage(folder), self.key
        load = os.getloadavg()[0]
        pack = stage.start(
            f'inbox = "inbox"\nstay = "600s"\nsharing = "{sharing}"\n'
            f'interval = "{max(0.1, INTERVAL_S * self.scale)}s"\n'
            f'means = "{self.means}"\ncpus = {_CPUS[schedule]}\n'
        )
        try:
            record = self._watch(pack, stage)
        finally:
            pack.terminate()
            (folder / "pack.log").write_text(stage.end(pack))
        return {**self._result(record), "load": load, "means": record["means"]}

    def _watch(self, pack: subprocess.Popen[str], stage: Stage) -> dict[str, Any]:
        """Let trainers arrive in time; return the pack's record when all are over."""
        begun_s = time.monotonic()
        schedule, seed, _ = self.key
        coming = sorted(arrivals(schedule, seed), key=lambda arrival: arrival[3])
        members = len(coming)
        while True:
            while coming and time.monotonic() - begun_s >= coming[0][3] * self.scale:
                name, kind, steps, _ = coming.pop(0)
                words = (kind, max(1, round(steps * self.scale)), seed)
                stage.job(name, TRAINS.format(words), more=PROGRESS, to="inbox")
            record = stage.record()
            lines = record.get("members", {}).values()
            if len(lines) == members and all(line["end"] for line in lines):
                return record
            if pack.poll() is not None:
                raise RunFailedError(f"{self.key}: the pack ended; see {stage.folder}")
            time.sleep(_LOOK_S)

    def _result(self, record: dict[str, Any]) -> dict[str, Any]:
        lines = record["members"]
        bad = [name for name, line in lines.items() if line["end"] != "finished"]
        if bad:
            raise RunFailedError(f"{self.key}: {', '.join(bad)} failed; see its log")
        first_s = min(line["arrived_s"] for line in lines.values())
        makespan_s = max(line["ended_s"] for line in lines.values()) - first_s
        return {
            **dict(zip(("schedule", "seed", "sharing"), self.key, strict=True)),
            "completion_s": {
                name: round(line["ended_s"] - line["arrived_s"], 3)
                for name, line in lines.items()
            },
            "makespan_s": round(makespan_s, 3),
            "cpus_got": round(record["used_s"] / makespan_s, 3),
        }


def report(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a page in Markdown."""
    for schedule in dict.fromkeys(result["schedule"] for result in results):
        pairs = _pairs([r for r in results if r["schedule"] == schedule])
        if pairs:
            yield f"### {schedule}, {len(pairs)} seeds, {pairs[0][1]['means']}"
            yield ""
            yield from _rows(pairs)
            yield ""
            yield from _summary(pairs)
            yield ""


def _pairs(results: Sequence[dict[str, Any]]) -> list[Pair]:
    """Pair fair and flowcon runs of a seed; one without the other is left out."""
    by = {(r["seed"], r["sharing"]): r for r in results}
    return [
        (by[seed, "fair"], by[seed, "flowcon"])
        for seed in sorted({seed for seed, _ in by})
        if (seed, "fair") in by and (seed, "flowcon") in by
    ]


def _rows(pairs: Sequence[Pair]) -> Iterator[str]:
    yield "| trainer | fair, s | flowcon, s | flowcon / fair | best | worst |"
    yield "|---|---|---|---|---|---|"
    for name in sorted(pairs[0][0]["completion_s"]):
        yield _row(name, [[run["completion_s"][name] for run in p] for p in pairs])
    yield _row("*makespan*", [[run["makespan_s"] for run in pair] for pair in pairs])


def _row(name: str, seconds: Sequence[Sequence[float]]) -> str:
    ratios = [flowcon / fair for fair, flowcon in seconds]
    return (
        f"| {name} | {fmean(s[0] for s in seconds):.1f} "
        f"| {fmean(s[1] for s in seconds):.1f} | {geometric_mean(ratios):.3f} "
        f"| {min(ratios):.3f} | {max(ratios):.3f} |"
    )


def _summary(pairs: Sequence[Pair]) -> Iterator[str]:
    ratios = {
        (flowcon["seed"], name): seconds / fair["completion_s"][name]
        for fair, flowcon in pairs
        for name, seconds in flowcon["completion_s"].items()
    }
    best = min(ratios, key=ratios.__getitem__)
    worst = max(ratios, key=ratios.__getitem__)
    slower = [ratio for ratio in ratios.values() if ratio > 1]
    makespan = geometric_mean([b["makespan_s"] / a["makespan_s"] for a, b in pairs])
    mean = geometric_mean(list(ratios.values()))
    reached = ratios[best] <= 1 - PAPER and makespan <= NO_WORSE
    yield (
        f"Best: {best[1]} of seed {best[0]}, {1 - ratios[best]:.1%} shorter "
        f"(the paper: {PAPER:.2%}). All trainers: {mean - 1:+.1%}. "
        f"Makespan: {makespan - 1:+.1%}."
    )
    got = [fmean([pair[k]["cpus_got"] for pair in pairs]) for k in (0, 1)]
    yield (
        f"CPUs got, on average: {got[0]:.2f} under fair, {got[1]:.2f} under flowcon; "
        f"where they differ by much the machine was not quiet."
    )
    yield (
        f"Losers: {len(slower)} of {len(ratios)} were slower, the worst {worst[1]} of "
        f"seed {worst[0]} by {ratios[worst] - 1:+.1%}. "
        f"Published figure {'reached' if reached else 'not reached'}."
    )


if __name__ == "__main__":
    sys.exit(main())
