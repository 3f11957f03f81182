"""What caution is worth: ``python -m tests.scaling.strengths SET DAYS FIRST COUNT``.

The window of ``tests.scaling.summit``, 40 trainers of SET at a time, in COUNT orders
from the FIRST on, with profiling: samples as a share of those that the true curves
give, with speeds of those that wait lowered by no, half and a whole deviation, and
the mean difference that this makes. A fifth word, ``speedup``, plans by speed-up.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from freetrain.replay.policies.ratings import GivenSpeeds, LearnedSpeeds
from freetrain.replay.pool import PoolTimeline
from freetrain.replay.trainers import builtin_trainers
from freetrain.scaling import Profiling
from logs.read import read_trace
from logs.trace import IdleTrace
from tests.scaling.mixed import MIXED
from tests.scaling.oracles import in_order
from tests.scaling.summit import START_S, Case, play

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STRENGTHS = (0.0, 0.5, 1.0)


def lines(
    jobs: str, timeline: PoolTimeline, orders: range, *, is_speed_up: bool
) -> Iterator[str]:
    """Yield a line an order as it comes, then one a strength."""
    trainers = MIXED if jobs == "mixed" else builtin_trainers(jobs)
    found = []
    for order in orders:
        case = Case(in_order(trainers, order), 40, is_speed_up=is_speed_up)
        true = play(timeline, case, GivenSpeeds()).samples
        plays = (LearnedSpeeds(Profiling(), deviations=one) for one in STRENGTHS)
        shares = [100 * play(timeline, case, one).samples / true for one in plays]
        found.append(shares)
        yield f"order {order}: " + ", ".join(f"{share:.2f} %" for share in shares)
    for place, strength in enumerate(STRENGTHS):
        gains = [shares[place] - shares[0] for shares in found]
        error = stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
        mean = fmean(shares[place] for shares in found)
        yield f"{strength:g}: {mean:.2f} %, {fmean(gains):+.2f} +- {error:.2f}"


def main(arguments: Sequence[str]) -> int:
    jobs, days, first, count, *objective = arguments
    beside = Path(__file__).resolve().parents[3] / "shared"
    shared = Path(os.environ.get("FREETRAIN_SHARED", beside))
    trace = read_trace(shared / "logs" / "summit_2021-02.fragments.csv.gz")
    assert isinstance(trace, IdleTrace)
    timeline = PoolTimeline.from_trace(
        trace, start_s=START_S, nodes=1024, days=float(days)
    )
    orders = range(int(first), int(first) + int(count))
    for line in lines(jobs, timeline, orders, is_speed_up=objective == ["speedup"]):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
