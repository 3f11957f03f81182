"""Which family a trainer's own past speaks for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.quality.backtest import Trial, back_test, error_of
from freetrain.quality.families.flat import FLAT
from freetrain.quality.families.known import KNOWN
from freetrain.quality.families.power import POWER
from freetrain.quality.fit import CHI_OF_COST, costs_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.quality.course import Course
    from freetrain.quality.families.interface import Family

HANDICAPS = {FLAT.name: 0.95, POWER.name: 1.0}
"""What a family's error is multiplied by. No further gain wins ties. So does the power
law, which learning curves are known to follow, among the others: a few cuts of one
curve are weak evidence, and the best of five tries is always luck in part."""

HANDICAP = 1.1

MOST_MISFIT = 1.5
"""Errors are multiplied by at most the exponential of this for what was seen."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The family that was chosen.

    Attributes:
        family: Which one.
        trials: Its forecasts of the past.
    """

    family: Family
    trials: tuple[Trial, ...]


def choose(course: Course, families: Sequence[Family] = KNOWN) -> Choice:
    """Return the family that would have told *course* best from its beginnings.

    Its errors then count, and whether it explains what has been seen by now, by the
    Bayesian information criterion: a family that explains it no better than a
    constant is not tried, for what it takes for progress is noise; one that explains
    it worse than another does has its errors multiplied. Where there is too little to
    try on, no further gain.
    """
    misfits = {family.name: _misfit(family, course) for family in (FLAT, *families)}
    needed = [f for f in families if f is FLAT or misfits[f.name] < misfits[FLAT.name]]
    least = min(misfits.values())
    best, choice = math.inf, Choice(FLAT, ())
    for family in needed:
        trials = back_test(family, course)
        error = error_of(trials) * HANDICAPS.get(family.name, HANDICAP)
        if family is not FLAT:
            error *= math.exp(min(misfits[family.name] - least, MOST_MISFIT))
        if error < best:
            best, choice = error, Choice(family, trials)
    return choice


def _misfit(family: Family, course: Course) -> float:
    """Return the information criterion of *family*'s best curve, for each point."""
    squares = CHI_OF_COST * float(costs_of(family, course).min())
    return (squares + family.parameters * math.log(len(course))) / len(course)
