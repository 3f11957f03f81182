"""Reliability of 600-second survival, on Summit and on logs that are longer.

``python -m tests.lookahead.reliability_table [--forecaster NAME] [LOG …]``. ``summit``:
six days, and the six after them; ``kth`` and ``theta``: as recorded; or the file of
another log of jobs, as it would run ``--schedule recorded``, ``easy`` or ``slurm``.
The first tenth of a log is for learning alone.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from freetrain.lookahead.affinity import Affinity
from freetrain.lookahead.base import DEFAULT_FORECASTER, forecaster_named
from freetrain.lookahead.reliability import ForecastScores, ScoredForecaster
from freetrain.replay.pool import PoolTimeline
from freetrain.text import DAY_S
from logs.read import read_trace
from logs.schedule import holes, schedule
from logs.simulation import Method
from logs.trace import IdleTrace, JobTrace

START_S = 72_743.0
WARM_UP_S = 43_200.0
BLOCK_S = 10_800.0
DRAWS = 2000
SPANS = {
    "kth": ("KTH-SP2-1996.swf.gz", 0.0, None),
    "theta": ("theta_2022.csv.gz", 20.0, 30.0),
}
"""Logs of jobs: the file, the first day, and how many; None for all."""


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


class NotedScores(ForecastScores):
    """Also notes each forecast with the time at which it is due."""

    def __init__(self) -> None:
        super().__init__()
        self.due_s = 0.0
        self.noted: list[tuple[float, float, int, int]] = []

    def add(
        self, survival: float, *, nodes: int, age_s: float, stayed: int, departures: int
    ) -> None:
        self.noted.append((self.due_s, survival, nodes, stayed))
        super().add(
            survival, nodes=nodes, age_s=age_s, stayed=stayed, departures=departures
        )


def lines(pool: PoolTimeline, from_s: float, name: str) -> Iterator[str]:
    """Yield the table, a row a decile, and the largest difference.

    The forecaster *name* is scored from *from_s* on, and learns from the beginning.
    """
    scores = NotedScores()
    forecaster = forecaster_named(name)(
        400.0, pairs=Affinity(), checks=True, state=None, learns_s=0.0, order=int
    )
    watched = ScoredForecaster(forecaster, from_s=from_s, scores=scores)
    for event in pool.events():
        scores.due_s = event.time_s
        watched.see(event.time_s, joined=event.joined, left=event.left)
    record = watched.record(pool.node_names)
    for row in record.deciles:
        off = 100 * (row.came - row.said)
        yield (
            f"said {row.said:.3f}  came {row.came:.3f}  {off:+5.1f}  of {row.count:.0f}"
        )
    yield f"largest difference {100 * record.worst:.1f} points"
    worst = 100 * chance(np.array(scores.noted))
    yield (
        f"of a forecaster without fault: {np.median(worst):.1f} by chance, and within "
        f"5 points in {100 * (worst <= 5.0).mean():.0f} of 100 such spans"
    )


def chance(noted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return largest differences of deciles that chance alone brings, one a draw.

    Departures come in bursts, so blocks of three hours are drawn again instead of
    single forecasts, with each decile's mean difference subtracted.

    Args:
        noted: Due time, survival, nodes, and how many stayed, shape (forecasts, 4).
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


def spans(log: str, method: Method) -> Iterator[tuple[str, PoolTimeline, float]]:
    """Yield the title of a span of *log*, its nodes, and from when on to score."""
    if log == "summit":
        for last, from_s in ((6.0, WARM_UP_S), (12.0, 6.0 * DAY_S)):
            pool = timeline(shared_folder(), from_day=0.0, days=last)
            yield f"summit, day {from_s / DAY_S:g} to day {last:g}", pool, from_s
        return
    name, first, days = SPANS.get(log, (log, 0.0, None))
    trace = read_trace(shared_folder() / "logs" / name if log in SPANS else Path(name))
    assert isinstance(trace, JobTrace)
    idle = holes(schedule(trace, method))
    pool = PoolTimeline.from_trace(idle, start_s=first * DAY_S, days=days)
    last = first + pool.horizon_s / DAY_S
    title = f"{log}, day {0.9 * first + 0.1 * last:.0f} to day {last:.0f}"
    yield title, pool, pool.horizon_s / 10


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logs", nargs="*", default=["summit"], metavar="LOG")
    parser.add_argument("--forecaster", default=DEFAULT_FORECASTER)
    parser.add_argument("--schedule", type=Method, default=Method.RECORDED)
    chosen = parser.parse_args()
    for log in chosen.logs:
        for title, pool, from_s in spans(log, chosen.schedule):
            sys.stdout.write(f"{title}\n")
            for line in lines(pool, from_s, chosen.forecaster):
                sys.stdout.write(f"{line}\n")
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
