"""Reliability of 600-second survival on Summit, six days and the six after them.

``python -m tests.forecast.reliability_table``
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.forecast.learned import LearnedForecaster
from freetrain.forecast.reliability import Event, deciles, foretell
from freetrain.replay.timeline import DAY_S, PoolTimeline
from logs.read import read_trace
from logs.trace import IdleTrace

if TYPE_CHECKING:
    from collections.abc import Iterator

START_S = 72_743.0
HORIZON_S = 600.0
EVERY_S = 300.0
WARM_UP_S = 43_200.0


def timeline(shared: Path, *, from_day: float, nodes: int = 1024) -> PoolTimeline:
    """Return six days of the first *nodes* nodes of Summit."""
    trace = read_trace(shared / "logs" / "summit_2021-02.fragments.csv.gz")
    assert isinstance(trace, IdleTrace)
    start_s = START_S + from_day * DAY_S
    return PoolTimeline.from_trace(trace, start_s=start_s, nodes=nodes, days=6)


def shared_folder() -> Path:
    """Return the folder with the real logs."""
    beside = Path(__file__).resolve().parents[3] / "shared"
    return Path(os.environ.get("FREETRAIN_SHARED", beside))


def lines(pool: PoolTimeline) -> Iterator[str]:
    """Yield the table, a row a decile, and the largest difference."""
    events = [Event(e.time_s, e.joined, e.left) for e in pool.events()]
    told = foretell(
        events,
        LearnedForecaster(400.0),
        horizon_s=HORIZON_S,
        every_s=EVERY_S,
        from_s=WARM_UP_S,
    )
    rows = deciles(told)
    for row in rows:
        off = 100 * (row.came - row.said)
        yield f"said {row.said:.3f}  came {row.came:.3f}  {off:+5.1f}  of {row.count}"
    worst = max(abs(row.came - row.said) for row in rows)
    yield f"largest difference {100 * worst:.1f} points"


def main() -> int:
    """Print the tables of days 0 to 6 and of days 6 to 12, each learned anew."""
    for day in (0.0, 6.0):
        sys.stdout.write(f"days {day:g} to {day + 6:g}\n")
        for line in lines(timeline(shared_folder(), from_day=day)):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
