"""What windows' plans are held against: W0 anew, and a bound that takes its time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from milp.window import total_gain
from milp.window_bound import first, tighten
from milp.window_options import options_of
from milp.window_pool import Pool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from milp.window import Holding, Window


def bound(window: Window) -> float:
    """Return a gain that no plan of *window* exceeds, whatever plans are known."""
    if not window.stays or not window.trainers:
        return 0.0
    options = options_of(window, Pool.of(window))
    dual = first(options)
    for guess in (0.9, 0.98):
        reached = dual.value - (1.0 - guess) * abs(dual.value)
        dual = tighten(options, dual, reached=reached)
    return dual.value


def wrong_gain(window: Window, holdings: Sequence[Holding], claimed: float) -> str:
    """Return in what the gain claimed is wrong; empty if it is right."""
    summed = total_gain(window, holdings)
    if math.isclose(summed, claimed, rel_tol=1e-9, abs_tol=1e-9):
        return ""
    return f"W0: claims a gain of {claimed!r}, but gains {summed!r}"
