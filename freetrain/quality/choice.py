"""Which family a trainer's own past speaks for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.quality.backtest import Trial, back_test, error_of
from freetrain.quality.families.known import FLAT, KNOWN, POWER
from freetrain.quality.fit import CHI_OF_COST, costs_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from freetrain.quality.course import Course
    from freetrain.quality.families.interface import Family

HANDICAPS = {FLAT.name: 0.95, POWER.name: 1.0}
"""What a family's error is multiplied by. No further gain wins ties. The power law,
which learning curves are known to follow, is given up only for one that is clearly
better: a few cuts of one curve are weak evidence, and the best of five tries is
always luck in part."""

HANDICAP = 1.25


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The family that was chosen.

    Attributes:
        family: Which one.
        trials: Its forecasts of the past.
    """

    family: Family
    trials: tuple[Trial, ...]


def choose(course: Course, families: Iterable[Family] = KNOWN) -> Choice:
    """Return the family that would have told *course* best from its beginnings.

    Where there is too little to try on, no further gain.
    """
    best, choice = float("inf"), Choice(FLAT, ())
    for family in families:
        if family is not FLAT and not _is_needed(family, course):
            continue
        trials = back_test(family, course)
        error = error_of(trials) * HANDICAPS.get(family.name, HANDICAP)
        if error < best:
            best, choice = error, Choice(family, trials)
    return choice


def _is_needed(family: Family, course: Course) -> bool:
    """Tell whether *family* explains *course* better than a constant does.

    By the Bayesian information criterion; else what it takes for progress is noise.
    """
    constant = costs_of(FLAT, course).min()
    gained = CHI_OF_COST * float(constant - costs_of(family, course).min())
    return gained > (family.parameters - 1) * math.log(len(course))
