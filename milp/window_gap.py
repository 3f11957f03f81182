"""How far plans of windows are below the bound, for those who ask now and then.

A plan of a replay takes a third of a millisecond and its bound 20 to 40, for 10 and 40
trainers on Summit's idle nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milp.gap import gap
from milp.window_bound import first, loose_bound, tighten
from milp.window_options import options_of
from milp.window_pool import Pool

if TYPE_CHECKING:
    from milp.window import Window

_STEPS = 40
"""Six times as many lower the mean gap of six days of Summit from 0.08 to 0.07 %."""

_MOST_CELLS = 250_000
"""Sizes times classes; a look at so many takes 10 ms."""

_FEWEST = 16
"""Classes are merged to no fewer."""


def window_gap(window: Window, gain: float) -> float:
    """Return how far *gain* is below what any plan of *window* gains, as ``gap``."""
    return gap(gain, bound(window, gain))


def bound(window: Window, reached: float) -> float:
    """Return a gain that no plan of *window* exceeds (docs/model.md, W3).

    Args:
        window: The problem.
        reached: What a plan is known to gain, or a guess of it: where to look for
            prices. The bound holds for any.
    """
    most = loose_bound(window)
    if not window.stays or not window.trainers:
        return most
    pool = Pool.of(window)
    sizes = sum([len(one.curve.sizes) + 1 for one in window.trainers])
    if sizes * len(pool.nodes) > _MOST_CELLS:
        if any(float(one.curve.value_per_s.min()) < 0.0 for one in window.trainers):
            return most
        pool = pool.merged(max(_FEWEST, _MOST_CELLS // sizes))
    options = options_of(window, pool)
    dual = tighten(options, first(options), reached=reached, steps=_STEPS)
    return min(most, dual.value)
