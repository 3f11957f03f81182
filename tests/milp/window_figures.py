"""What windows' plans are held against: W0 anew."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from milp.window import total_gain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from milp.window import Holding, Window


def wrong_gain(window: Window, holdings: Sequence[Holding], claimed: float) -> str:
    """Return in what the gain claimed is wrong; empty if it is right."""
    summed = total_gain(window, holdings)
    if math.isclose(summed, claimed, rel_tol=1e-9, abs_tol=1e-9):
        return ""
    return f"W0: claims a gain of {claimed!r}, but gains {summed!r}"
