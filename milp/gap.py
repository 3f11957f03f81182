"""How far a plan is from the best that there can be: the same figure everywhere."""

from __future__ import annotations

_ROUNDING = 1e-9
"""Share up to which a gain and its bound differ by rounding alone."""


def gap(gain: float, bound: float) -> float:
    """Return what a plan lacks of the bound at most, over the larger of the two.

    ::

        (bound - gain) / max(|bound|, |gain|)

    Where the plan gains anything that is the share of the bound that it misses. It is
    defined for all others too: over 1 where the plan loses and another may gain, and
    a share of the loss where all lose.

    Args:
        gain: Of the plan, in any unit.
        bound: What no plan exceeds, in the same unit.

    Returns:
        0 for a plan that is proven the best, up to 2.
    """
    scale = max(abs(bound), abs(gain))
    missing = bound - gain
    return missing / scale if missing > _ROUNDING * scale else 0.0
