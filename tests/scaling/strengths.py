"""The gain of caution: ``python -m tests.scaling.strengths SET DAYS FIRST COUNT``.

The window of ``tests.scaling.summit``, 40 trainers of SET at a time, in COUNT orders
from the FIRST on, with profiling: samples as a share of those with the true curves,
with speeds of waiting trainers lowered by no, half and a whole deviation, and the mean
difference. A fifth word, ``speedup``, plans by speed-up.
"""

from __future__ import annotations

import sys
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from freetrain.replay.policies.ratings import GivenSpeeds, LearnedSpeeds
from freetrain.scaling import Profiling
from tests.scaling.oracles import in_order
from tests.scaling.summit import Case, play, summit, trainers_of, write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STRENGTHS = (0.0, 0.5, 1.0)


def lines(arguments: Sequence[str]) -> Iterator[str]:
    """Yield a line an order as it comes, then a line a strength."""
    jobs, days, first, count, *objective = arguments
    pool, found = summit(float(days)), []
    for order in range(int(first), int(first) + int(count)):
        trainers = in_order(trainers_of(jobs), order)
        case = Case(trainers, 40, is_speed_up=objective == ["speedup"])
        true = play(pool, case, GivenSpeeds()).samples
        learned = (LearnedSpeeds(Profiling(), deviations=own) for own in STRENGTHS)
        shares = [100 * play(pool, case, own).samples / true for own in learned]
        found.append(shares)
        yield f"order {order}: " + ", ".join(f"{share:.2f} %" for share in shares)
    for place, strength in enumerate(STRENGTHS):
        gains = [shares[place] - shares[0] for shares in found]
        error = stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
        mean = fmean(shares[place] for shares in found)
        yield f"{strength:g}: {mean:.2f} %, {fmean(gains):+.2f} +- {error:.2f}"


if __name__ == "__main__":
    sys.exit(write(lines(sys.argv[1:])))
