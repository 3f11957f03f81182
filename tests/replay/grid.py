"""FreeTrain beside what others would do, over machines, workloads and costs.

``python -m tests.replay.grid [--results grid.jsonl] [--processes 2] [--minutes 60]
[--only theta …]``. A cell is one piece of a log under one set of trainers, so many at a
time, at one cost, in one accounting. ``adaptive`` is replayed in it, whose shadows are
the replays of the policies that it follows, and rigid jobs of the best size, as many
at a time. Cells come in an order drawn once, those of hundreds at a time a quarter as
often at first: so any number of them is a sample. Each is written to the file of
results as it is done, and a file goes on where it ended. The table has, by machine and
by workload, how far policies are above the best of ``equal`` and ``scavenger``; and the
worst cell.
"""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from multiprocessing import Pool
from pathlib import Path

import numpy as np

from freetrain.replay.policies.adaptive import AdaptivePolicy
from freetrain.replay.policies.registry import SolverUse, policy_for
from freetrain.replay.pool import PoolTimeline, idle_of
from freetrain.replay.run import best_rigid, engine_for, play
from freetrain.replay.settings import Accounting, ReplaySettings
from freetrain.replay.trainers import (
    TrainerSpec,
    builtin_trainers,
    interpolate,
    measured_points,
)
from freetrain.text import DAY_S
from logs.generate import shipped_sample
from logs.read import read_trace
from logs.simulation import Method
from logs.trace import IdleTrace
from tests.lookahead.reliability_table import shared_folder

OURS = "adaptive"
POLICIES = ("freetrain", "lookahead", OURS, "equal")
BASELINES = ("equal", "scavenger")
PARALLEL = (10, 40, 200, 500)
COSTS = (1.0, 5.0, 10.0)
ACCOUNTINGS = (Accounting.PUBLISHED, Accounting.REAL)
SUMMIT_S = 72_743.0
THETA_DAYS = (20, 60, 100, 150, 200, 245, 280, 320)
CHOSEN_ON = ("week-512", "summit", "kth")
"""Machines on which constants of ``adaptive`` may be chosen; others are reported."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One place of the grid.

    Attributes:
        piece: Of a log, one of ``PIECES``.
        team: One of ``TEAMS``.
        parallel: Trainers at a time.
        cost: Times the published costs.
        accounting: How progress and costs count.
    """

    piece: str
    team: str
    parallel: int
    cost: float
    accounting: str

    @property
    def key(self) -> str:
        return (
            f"{self.piece}, {self.team}, {self.parallel} at a time, x{self.cost:g}, "
            f"{self.accounting}"
        )


# Machines


@cache
def _summit() -> IdleTrace:
    trace = read_trace(shared_folder() / "logs" / "summit_2021-02.fragments.csv.gz")
    assert isinstance(trace, IdleTrace)
    return trace


@cache
def _recorded(path: Path) -> IdleTrace:
    idle, _ = idle_of(read_trace(path), Method.RECORDED)
    return idle


def _summit_part(part: int, days: float) -> PoolTimeline:
    trace, first = _summit(), 1_024 * part
    own = [row for row in trace.rows() if first <= row[0] < first + 1_024]
    node, start_s, end_s = zip(*own, strict=True)
    cut = replace(
        trace,
        node_names=trace.node_names[first : first + 1_024],
        node=np.array(node, dtype=np.int32) - first,
        start_s=np.array(start_s),
        end_s=np.array(end_s),
        nodes=None,
    )
    return PoolTimeline.from_trace(cut, start_s=SUMMIT_S, days=days)


def _near_full(seed: int, days: float) -> PoolTimeline:
    """Return 256 nodes that are idle for two minutes and busy for twenty, in jobs.

    Both are drawn, exponential; the nodes of a job of 1 to 16 leave and come together.
    """
    draw = np.random.default_rng(seed)
    node: list[int] = []
    start_s: list[float] = []
    end_s: list[float] = []
    first = 0
    while first < 256:
        width = min(256 - first, 2 ** int(draw.integers(0, 5)))
        now_s = float(draw.uniform(0.0, 1_320.0))
        while now_s < days * DAY_S:
            until_s = now_s + float(draw.exponential(120.0))
            node += range(first, first + width)
            start_s += [now_s] * width
            end_s += [until_s] * width
            now_s = until_s + float(draw.exponential(1_200.0))
        first += width
    order = np.argsort(start_s, kind="stable")
    trace = IdleTrace(
        source="near-full",
        node_names=tuple(f"n{k:03d}" for k in range(256)),
        node=np.array(node, dtype=np.int32)[order],
        start_s=np.array(start_s)[order],
        end_s=np.array(end_s)[order],
    )
    return PoolTimeline.from_trace(trace, days=days)


def _days_of(path: Path, day: float) -> Callable[[float], PoolTimeline]:
    return lambda days: PoolTimeline.from_trace(
        _recorded(path), start_s=day * DAY_S, days=days
    )


def _pieces() -> dict[str, Callable[[float], PoolTimeline]]:
    logs = shared_folder() / "logs"
    theta, kth = logs / "theta_2022.csv.gz", logs / "KTH-SP2-1996.swf.gz"
    return {
        "week-512": _days_of(shipped_sample(), 1.0),
        **{f"summit {k}": lambda days, k=k: _summit_part(k, days) for k in range(3)},  # type: ignore[misc]
        **{f"theta {day}": _days_of(theta, day) for day in THETA_DAYS},
        "kth": _days_of(kth, 133.0),
        **{f"near-full {s}": lambda days, s=s: _near_full(s, days) for s in (1, 2)},  # type: ignore[misc]
    }


PIECES = _pieces()


# Workloads


def _shaped(team: Sequence[TrainerSpec], *sizes: int) -> list[TrainerSpec]:
    points = measured_points()
    scalings = {
        each.scaling.model: interpolate(
            each.scaling.model, points[each.scaling.model], sizes=sizes
        )
        for each in team
    }
    return [replace(each, scaling=scalings[each.scaling.model]) for each in team]


def _mixed() -> list[TrainerSpec]:
    """Return the seven networks, with work from a quarter to twice, in turn."""
    return [
        replace(each, samples=each.samples * (1, 2, 0.25, 0.5)[k % 4])
        for k, each in enumerate(builtin_trainers("imagenet"))
    ]


TEAMS: dict[str, tuple[Callable[[], Sequence[TrainerSpec]], str]] = {
    "hps": (lambda: builtin_trainers("hps"), "throughput"),
    "imagenet": (lambda: builtin_trainers("imagenet"), "speedup"),
    "mixed": (_mixed, "throughput"),
    "single-node": (lambda: _shaped(builtin_trainers("hps"), 1), "throughput"),
    "16 and more": (
        lambda: _shaped(builtin_trainers("hps"), *range(16, 65)),
        "throughput",
    ),
}
"""Trainers, and the priority that policies rate them by."""


def days_of(cell: Cell) -> float:
    """Return the days to replay: three, or fewer where many trainers take long."""
    return 3.0 if cell.parallel <= 40 else 1.0 if cell.parallel <= 200 else 0.5


def samples_of(cell: Cell) -> dict[str, float]:
    """Return the samples of each policy, x 10^9."""
    timeline, (made, priority) = PIECES[cell.piece](days_of(cell)), TEAMS[cell.team]
    trainers = made()
    settings = ReplaySettings(
        priority=priority,
        parallel=cell.parallel,
        cost_factor=cell.cost,
        accounting=Accounting(cell.accounting),
        requeue=True,
        record_steps=False,
    )
    engine, _ = play(
        timeline, trainers, replace(settings, policy=OURS), clock=time.perf_counter
    )
    assert isinstance(engine.policy, AdaptivePolicy)
    played = {OURS: engine}
    for name in ("freetrain", "lookahead", "equal"):
        played[name] = engine.policy.shadows[name].engine
        played[name].settle(timeline.horizon_s)
    own = replace(settings, policy="scavenger")
    jobs = best_rigid(
        timeline, trainers, own, clock=time.perf_counter, parallel=cell.parallel
    )
    policy = policy_for(own, time.perf_counter, SolverUse())
    played["scavenger"] = engine_for(timeline, jobs, own, policy)
    played["scavenger"].run()
    return {name: engine.tally.samples / 1e9 for name, engine in played.items()}


# The table


def cells() -> list[Cell]:
    """Return all cells, in an order drawn once and for all."""
    every = [
        Cell(piece, team, parallel, cost, accounting.value)
        for piece, team, parallel, cost, accounting in product(
            PIECES, TEAMS, PARALLEL, COSTS, ACCOUNTINGS
        )
    ]
    return sorted(every, key=_rank)


def _rank(cell: Cell) -> int:
    drawn = int.from_bytes(hashlib.sha256(cell.key.encode()).digest())
    return drawn if cell.parallel <= 40 else 4 * drawn


def _done(cell: Cell) -> tuple[Cell, dict[str, float], float]:
    began_s = time.process_time()
    return cell, samples_of(cell), time.process_time() - began_s


def above(samples: dict[str, float], name: str) -> float:
    """Return by how much a policy is above the best baseline, as a share of that.

    Baselines may train less than nothing under the published accounting: then as a
    share of what the policy trains.
    """
    best = max(samples[baseline] for baseline in BASELINES)
    scale = max(abs(best), abs(samples[name])) if best <= 0.0 else best
    return (samples[name] - best) / scale if scale else 0.0


def table(rows: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield mean and worst of each policy above the best baseline, by group."""
    by_key = {cell.key: cell for cell in cells()}
    known = {by_key[key]: own for key, own in rows.items() if key in by_key}
    shown = [name for name in POLICIES if name not in BASELINES]
    yield f"{'':16} cells  " + "  ".join(
        f"{name:>9}: mean   worst  >=-0.3 %" for name in shown
    )
    groups: dict[str, Callable[[Cell], str]] = {
        "all": lambda _cell: "all",
        "machine": lambda cell: cell.piece.split()[0],
        "trainers": lambda cell: cell.team,
        "at a time": lambda cell: f"{cell.parallel} at a time",
        "cost": lambda cell: f"x{cell.cost:g}",
        "accounting": lambda cell: cell.accounting,
    }
    for group in groups.values():
        for name in dict.fromkeys(group(cell) for cell in known):
            own = [samples for cell, samples in known.items() if group(cell) == name]
            yield f"{name:16} {len(own):5}  " + "  ".join(
                _figures([above(samples, policy) for samples in own])
                for policy in shown
            )
    for policy in shown:
        worst = min(known, key=lambda cell: above(known[cell], policy))
        figures = ", ".join(f"{k} {v:.2f}" for k, v in known[worst].items())
        yield f"worst of {policy}: {worst.key}: {figures}"


def _figures(shares: Sequence[float]) -> str:
    near = sum(share >= -0.003 for share in shares)
    mean = sum(shares) / len(shares)
    return f"{'':9}{100 * mean:+7.1f} {100 * min(shares):+7.1f}  {near:8}"


def main(arguments: list[str]) -> int:
    """Go on with the grid, and print the table of all that is done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("grid.jsonl"))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--only", nargs="*", default=[], help="words of cells' names")
    asked = parser.parse_args(arguments)
    asked.results.touch()
    lines = asked.results.read_text("utf-8").splitlines()
    rows = {row["cell"]: row["samples"] for row in map(json.loads, lines)}
    left = [
        cell
        for cell in cells()
        if cell.key not in rows and all(word in cell.key for word in asked.only)
    ]
    until_s = time.monotonic() + 60.0 * asked.minutes
    if asked.minutes > 0:
        with Pool(asked.processes) as pool, asked.results.open("a") as file:
            for cell, samples, took_s in pool.imap_unordered(_done, left):
                rows[cell.key] = samples
                row = {"cell": cell.key, "samples": samples, "cpu_s": took_s}
                file.write(json.dumps(row) + "\n")
                file.flush()
                if time.monotonic() > until_s:
                    pool.terminate()
                    break
    for line in table(rows):
        sys.stdout.write(f"{line}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
