"""Reliability of 600-second survival on Summit, on six days and the six after them.

``python -m tests.forecast.reliability_table``
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.forecast.learned import LearnedForecaster
from freetrain.forecast.reliability import Watched, watch
from freetrain.replay.timeline import DAY_S, PoolTimeline
from logs.read import read_trace
from logs.trace import IdleTrace

if TYPE_CHECKING:
    from collections.abc import Iterator

START_S = 72_743.0
WARM_UP_S = 43_200.0


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


def lines(pool: PoolTimeline, from_s: float) -> Iterator[str]:
    """Yield the table, a row a decile, and the largest difference.

    Asked from *from_s* on, learned from the beginning.
    """
    told = watch(pool.events(), Watched(LearnedForecaster(400.0), from_s=from_s))
    for row in told.deciles:
        off = 100 * (row.came - row.said)
        yield (
            f"said {row.said:.3f}  came {row.came:.3f}  {off:+5.1f}  of {row.count:.0f}"
        )
    yield f"largest difference {100 * told.worst:.1f} points"


def main() -> int:
    """Print the tables of the first six days and of the six after them."""
    for days, from_s in ((6.0, WARM_UP_S), (12.0, 6.0 * DAY_S)):
        sys.stdout.write(f"day {from_s / DAY_S:g} to day {days:g}\n")
        pool = timeline(shared_folder(), from_day=0.0, days=days)
        for line in lines(pool, from_s):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
