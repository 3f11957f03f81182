"""Reliability of 600-second survival on Summit: six days, and the six after them.

``python -m tests.forecast.reliability_table [FORECASTER]``
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from freetrain.forecast.affinity import Affinity
from freetrain.forecast.answers import Answers
from freetrain.forecast.interface import DEFAULT_FORECASTER
from freetrain.forecast.registry import forecaster_named
from freetrain.forecast.reliability import Watched
from freetrain.replay.timeline import DAY_S, PoolTimeline
from logs.read import read_trace
from logs.trace import IdleTrace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

START_S = 72_743.0
WARM_UP_S = 43_200.0
BLOCK_S = 10_800.0
DRAWS = 2000


def timeline(
    shared: Path, *, from_day: float, days: float = 6.0, nodes: int = 1024
) -> PoolTimeline:
    """Return some days of the first *nodes* nodes of Summit."""
    trace = read_trace(shared / "logs" / "summit_2021-02.fragments.csv.gz")
    assert isinstance(trace, IdleTrace)
    start_s = START_S + from_day * DAY_S
    return PoolTimeline.from_trace(trace, start_s=start_s, nodes=nodes, days=days)


def shared_folder() -> Path:
    """Return the folder with the real logs."""
    beside = Path(__file__).resolve().parents[3] / "shared"
    return Path(os.environ.get("FREETRAIN_SHARED", beside))


class Noted(Answers):
    """Counts as ever, and notes down each answer with the time at which it is due."""

    def __init__(self) -> None:
        super().__init__()
        self.due_s = 0.0
        self.noted: list[tuple[float, float, int, int]] = []

    def add(
        self, said: float, *, nodes: int, age_s: float, stayed: int, departures: int
    ) -> None:
        self.noted.append((self.due_s, said, nodes, stayed))
        super().add(
            said, nodes=nodes, age_s=age_s, stayed=stayed, departures=departures
        )


def lines(pool: PoolTimeline, from_s: float, name: str) -> Iterator[str]:
    """Yield the table, a row a decile, and the largest difference.

    The forecaster *name* is asked from *from_s* on, and learns from the beginning.
    """
    answers = Noted()
    forecaster = forecaster_named(name)(
        400.0, pairs=Affinity(), checks=True, state=None, learns_s=0.0, order=int
    )
    watched = Watched(forecaster, from_s=from_s, answers=answers)
    for event in pool.events():
        answers.due_s = event.time_s
        watched.see(event.time_s, joined=event.joined, left=event.left)
    told = watched.reliability()
    for row in told.deciles:
        off = 100 * (row.came - row.said)
        yield (
            f"said {row.said:.3f}  came {row.came:.3f}  {off:+5.1f}  of {row.count:.0f}"
        )
    yield f"largest difference {100 * told.worst:.1f} points"
    worst = 100 * chance(np.array(answers.noted))
    yield (
        f"of a forecaster without fault: {np.median(worst):.1f} by chance, and within "
        f"5 points in {100 * (worst <= 5.0).mean():.0f} of 100 such spans"
    )


def chance(noted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return largest differences of deciles that chance alone brings, one a draw.

    Departures come in bursts, so that not answers but blocks of three hours are drawn
    anew, with each decile's mean difference taken off.

    Args:
        noted: Due time, what was said, nodes, and how many stayed, (answers, 4).
    """
    due_s, said, nodes, stayed = noted[np.argsort(noted[:, 1], kind="stable")].T
    ends = np.cumsum(nodes)
    decile = np.minimum(10 * (ends - nodes / 2) / ends[-1], 9.0).astype(int)
    block = ((due_s - due_s.min()) / BLOCK_S).astype(int)
    off, count = np.zeros((2, block.max() + 1, 10))
    np.add.at(off, (block, decile), stayed - said * nodes)
    np.add.at(count, (block, decile), nodes)
    off -= count * (off.sum(axis=0) / count.sum(axis=0))
    drawn = np.random.default_rng(0).integers(0, len(off), (DRAWS, len(off)))
    differences = off[drawn].sum(axis=1) / count[drawn].sum(axis=1)
    return np.asarray(np.abs(differences).max(axis=1))


def main(name: str = DEFAULT_FORECASTER) -> int:
    """Print the tables of the first six days and of the six after them."""
    for days, from_s in ((6.0, WARM_UP_S), (12.0, 6.0 * DAY_S)):
        sys.stdout.write(f"day {from_s / DAY_S:g} to day {days:g}\n")
        pool = timeline(shared_folder(), from_day=0.0, days=days)
        for line in lines(pool, from_s, name):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
