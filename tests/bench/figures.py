"""All 60 six-day figures of reference/README.md, ours beside the reference's.

``python -m tests.bench figures``
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from freetrain.replay.pool import PoolTimeline
from freetrain.replay.run import run_replay
from freetrain.replay.settings import Accounting, ReplaySettings
from freetrain.replay.trainers import builtin_trainers
from logs.read import read_trace
from logs.trace import IdleTrace

START_S = 72_743.0
COST_FACTORS = (0.0, 1.0, 5.0, 10.0)
_POLICIES = {"FreeTrain": "freetrain", "equal share": "equal"}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: four cost factors.

    Attributes:
        jobs: Built-in set of trainers.
        priority: Of the planner; an equal share has none.
        policy: In the registry's words.
        parallel: Trainers at a time.
        samples: In thousand millions, by cost factor.
        done: Trainers finished at published costs.
    """

    jobs: str
    priority: str
    policy: str
    parallel: int
    samples: tuple[float, ...]
    done: int


def lines(shared: Path) -> Iterator[str]:
    """Yield one line a figure, as it comes, and a last one with the worst."""
    trace = read_trace(shared / "logs" / "summit_2021-02.fragments.csv.gz")
    assert isinstance(trace, IdleTrace)
    timeline = PoolTimeline.from_trace(trace, start_s=START_S, nodes=1024, days=6)
    differences = []
    for row in published_rows(shared):
        for factor, theirs in zip(COST_FACTORS, row.samples, strict=True):
            ours, finished = _replay(timeline, row, factor)
            differences.append(abs(ours - theirs) / abs(theirs))
            yield (
                f"{row.jobs:8} {row.policy:9} {row.priority:10} {row.parallel:2} "
                f"x{factor:<2g}  ours {ours:7.2f}  reference {theirs:7.2f}  "
                f"{100 * (ours - theirs) / abs(theirs):+.2f} %"
                + (f"  done {finished} / {row.done}" if factor == 1.0 else "")
            )
    close = sum(difference <= 0.01 for difference in differences)
    yield (
        f"{close} of {len(differences)} within 1 %; "
        f"the worst is off by {100 * max(differences):.2f} %"
    )


def published_rows(shared: Path) -> list[Row]:
    """Read the table of six-day figures out of the reference's own page."""
    page = (shared / "reference" / "README.md").read_text("utf-8")
    cells = [
        [cell.strip() for cell in line.strip("| ").split("|")]
        for line in page.splitlines()
        if line.startswith(("| hps", "| imagenet"))
    ]
    return [_row(row) for row in cells]


def _row(cells: list[str]) -> Row:
    jobs, objective, policy, parallel, *samples, done = cells
    return Row(
        jobs=jobs,
        priority=objective.replace("-", "") if policy == "FreeTrain" else "throughput",
        policy=_POLICIES[policy],
        parallel=int(parallel),
        # The page writes negative numbers with a true minus sign, U+2212.
        samples=tuple(float(cell.replace("\u2212", "-")) for cell in samples),
        done=int(done),
    )


def _replay(timeline: PoolTimeline, row: Row, factor: float) -> tuple[float, int]:
    settings = ReplaySettings(
        policy=row.policy,
        priority=row.priority,
        accounting=Accounting.PUBLISHED,
        parallel=row.parallel,
        cost_factor=factor,
        record_steps=False,
    )
    result = run_replay(
        timeline, builtin_trainers(row.jobs), settings, clock=time.perf_counter
    )
    return result.samples / 1e9, result.finished
