"""What is known of a trainer's loss, and what may be expected of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


# ----------------------------------------------------------------------
# What is known of a trainer's loss, and what may be expected of it.

ABSURD = 1e100
"""Values beyond this are overflows; their squares would be, too."""


class Better(StrEnum):
    """Which values of a metric are the good ones."""

    LOWER = "lower"
    HIGHER = "higher"

    def is_reached(self, target: float, value: float) -> bool:
        """Tell whether *value* is *target* or better; nan never is."""
        return value <= target if self is Better.LOWER else value >= target


@dataclass(frozen=True, slots=True)
class Point:
    """One value that a trainer told.

    Attributes:
        t_s: When, seconds on the caller's clock.
        samples: Training samples done by then, since the training began.
        value: The metric, as told; may be nan or infinite.
    """

    t_s: float
    samples: float
    value: float


@dataclass(frozen=True, slots=True)
class Expected:
    """A value that is expected at some amount of work.

    Attributes:
        value: The most likely one.
        low: Nineteen of twenty outcomes are above this.
        high: Nineteen of twenty outcomes are below this.
    """

    value: float
    low: float
    high: float


class LossForecast(Protocol):
    """What a trainer's past values say; made from its past only.

    *Quality* is the metric turned round and scaled so that it is 0 where the trainer
    began and 1 at the best value it has shown: signed, above 1 for what is better
    than anything seen, and below 0 for what is worse than the beginning.
    """

    @property
    def better(self) -> Better:
        """Which values are good."""
        ...

    @property
    def points(self) -> Sequence[Point]:
        """The usable values, ascending in samples, finite; the newest last."""
        ...

    @property
    def family(self) -> str:
        """The name of the family that was chosen."""
        ...

    @property
    def is_diverging(self) -> bool:
        """Whether the last values were not finite, or far worse than the best."""
        ...

    def expected(self, samples: float) -> Expected:
        """Return the value expected after *samples* in all, at least those done."""
        ...

    def quality(self, value: float) -> float:
        """Return *value* as quality; nan counts as the worst value shown."""
        ...

    def samples_to(self, value: float) -> float:
        """Return after how many samples in all *value* is expected; inf for never."""
        ...
