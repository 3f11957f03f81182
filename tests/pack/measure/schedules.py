"""Who arrives when, with how much work: as the paper's fixed and random schedules."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

INTERVAL_S = 2.0
"""The paper's trainers took minutes and its interval was 30 s; ours take seconds."""


@dataclass(frozen=True)
class Arrival:
    """A trainer that comes.

    Attributes:
        name: What tables call it.
        kind: What it trains.
        steps: How many steps; fixed, whatever happens.
        at_s: When it comes, seconds after the start.
    """

    name: str
    kind: str
    steps: int
    at_s: float


@dataclass(frozen=True)
class Schedule:
    """What comes when, by seed.

    Attributes:
        cpus: CPUs that all trainers share.
        arrivals: The trainers, for a seed.
    """

    cpus: int
    arrivals: Callable[[int], tuple[Arrival, ...]]


# Steps are worth about 20, 14 and 8 seconds of one CPU of the machine at which they
# were chosen.
_LONG, _MIDDLE, _LATE = 135_000, 370_000, 3_000


def _fixed(seed: int) -> tuple[Arrival, ...]:
    """Three trainers, each coming when the one before has mostly converged."""
    del seed  # the seed is that of the trainings
    return (
        Arrival("1st", "network-digits", _LONG, 0.0),
        Arrival("2nd", "softmax-cancer", _MIDDLE, 8.0),
        Arrival("3rd", "sklearn-digits", _LATE, 16.0),
    )


# About 12 CPU-seconds each.
_FIVE = {
    "network-digits": 80_000,
    "softmax-cancer": 300_000,
    "softmax-digits": 240_000,
    "network-wine": 80_000,
    "sklearn-digits": 4_500,
}
_LAST_S = 15.0


def _random(seed: int) -> tuple[Arrival, ...]:
    """Five trainers, coming in any order at any time of the first 15 s."""
    chance = random.Random(seed)  # noqa: S311 -- no secret
    kinds = list(_FIVE)
    chance.shuffle(kinds)
    times_s = (0.0, *sorted(chance.uniform(0, _LAST_S) for _ in kinds[1:]))
    return tuple(
        Arrival(kind, kind, _FIVE[kind], round(at_s, 1))
        for kind, at_s in zip(kinds, times_s, strict=True)
    )


SCHEDULES: Mapping[str, Schedule] = {
    "fixed": Schedule(cpus=1, arrivals=_fixed),
    "random": Schedule(cpus=2, arrivals=_random),
}
