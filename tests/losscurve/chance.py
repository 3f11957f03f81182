"""The part of chance in coverage by group: ``python -m tests.losscurve.chance``.

A curve's later values are inside its interval together or outside together, so a column
of seven curves shows the coverage badly. Columns of as many curves as each group has,
drawn from all curves and columns alike, show how badly.
"""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np

from tests.lookahead.reliability_table import shared_folder
from tests.losscurve.curves import real_curves, recorded_curves
from tests.losscurve.extrapolation import CUTS, coverage_of

LEAST, MOST = 0.80, 0.97
"""Limits of the coverage of an interval of 90 %."""

DRAWS = 20_000


def main() -> int:
    curves = (*real_curves(shared_folder()), *recorded_curves())
    held = np.array([coverage_of([curve], cut)[1] for curve in curves for cut in CUTS])
    sys.stdout.write(f"all: mean {held.mean():.1%}, whole {np.mean(held == 1):.0%}\n")
    draws = np.random.default_rng(0)
    inside = np.zeros(DRAWS)
    for group, count in Counter(curve.group for curve in curves).items():
        means = draws.choice(held, (len(CUTS), DRAWS, count)).mean(axis=2)
        found = (means >= LEAST) & (means <= MOST)
        inside += found.sum(axis=0)
        sys.stdout.write(
            f"{group}: of columns of {count} curves {found.mean():.0%} are inside, "
            f"{np.mean(means > MOST):.0%} above\n"
        )
    low, middle, high = np.quantile(inside, (0.05, 0.5, 0.95))
    sys.stdout.write(
        f"columns inside: {low:.0f} .. {high:.0f} in nine of ten draws, {middle:.0f}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
