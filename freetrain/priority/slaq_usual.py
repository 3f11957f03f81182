"""What trainings usually gain, for those that have told little of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from freetrain.priority.slaq_horizon import whole_samples

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from freetrain.priority.interface import Contender
    from freetrain.quality.outlook import Outlook

USUAL = 0.4
"""Share of the whole work within which a training comes nearer to its end by a
factor e: wide, as half of the recorded ones are nine tenths of their way after a
quarter of the work, and some have hardly begun then."""

HALF_TRUSTED = 10
"""Values told by which an outlook counts as much as what is usual."""

NEW = "has told too little, so it is taken to learn as trainings usually do"


def usual_gains(contender: Contender, horizon_s: float) -> NDArray[np.float64]:
    """Return the share of its way that a training gains, as far as is usual.

    The way gone is 1 - exp(-x / 0.4) after a share x of the work.

    Args:
        contender: Its whole work is above 0.
        horizon_s: Seconds.

    Returns:
        Shape (largest size + 1,), 0 to 1, at 0 .. the largest size.
    """
    whole, done = whole_samples(contender), contender.done_samples
    speeds = contender.samples_per_s[: contender.sizes[-1] + 1]
    then = np.minimum(done + speeds * horizon_s, max(whole, done))
    way: NDArray[np.float64] = 1.0 - np.exp(-then / whole / USUAL)
    gained: NDArray[np.float64] = way - way[0]
    return gained


def trust(outlook: Outlook) -> float:
    """Return how much an outlook counts beside what is usual, from 0 to 1."""
    told = len(outlook.points)
    return told / (told + HALF_TRUSTED)
