"""Speeds of trainers that wait, as a planner is told them: less where not sure.

A planner takes what seems best, and of many that wait and are much alike that is the
one whose estimate errs upwards most: mostly whoever was measured least, or on many
nodes only. So nodes went round them all, few were finished, and they kept their
places from others. The optimiser's curse: Smith and Winkler, Management Science 52
(2006).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from freetrain.scaling.estimate import Estimate


DEVIATIONS = 1.0
"""Half of one left two of seven orders of ``imagenet``, 40 at a time, under 97 % of
what true curves give, and this none; ``hps``, 40 at a time, loses 0.8 % by it:
nodes go to those that run rather than to those that wait."""

BY_SAMPLES = frozenset({"throughput"})
"""Priorities that hold samples a second of one trainer against those of another.

A speed-up is divided by the speed on the smallest size. Who was measured on many nodes
only is least sure there, so that lowered speeds make it seem to gain more, not less."""


def deviations_for(priority: str) -> float:
    """Return by how many deviations those that wait are lowered under *priority*."""
    return DEVIATIONS if priority in BY_SAMPLES else 0.0


def cautious(known: Estimate, *, held: int, deviations: float = DEVIATIONS) -> Estimate:
    """Return *known* as a planner is to see it of a trainer that holds *held* nodes.

    Who waits, and was measured, has every speed lower by so many deviations. Who
    was never measured keeps what is expected of it: lowered too, nobody new would be
    tried where others wait. Who runs is known where it is: lowered elsewhere, it
    would cling to sizes that it has seen.
    """
    if held or not known.measured:
        return known
    samples_per_s = known.samples_per_s * np.exp(-deviations * known.log_sd)
    samples_per_s.flags.writeable = False
    return replace(known, samples_per_s=samples_per_s)
