"""A trainer's loss and the forecast of it: the types that other packages use."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


LARGEST_VALUE = 1e100
"""Values beyond this count as overflows; their squares would be, too."""


class MetricDirection(StrEnum):
    """Which values of a metric are the good ones."""

    LOWER = "lower"
    HIGHER = "higher"

    def is_reached(self, target: float, value: float) -> bool:
        """Tell whether *value* is *target* or better; nan never is."""
        return value <= target if self is MetricDirection.LOWER else value >= target


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One value that a trainer reported.

    Attributes:
        t_s: Its time, seconds on the caller's clock.
        samples: Training samples done by then, since the training began.
        value: The metric, as reported; may be nan or infinite.
    """

    t_s: float
    samples: float
    value: float


@dataclass(frozen=True, slots=True)
class Expected:
    """The value that is expected at some amount of work, and the range of outcomes.

    With two finished trainings of the same program or more the range is made to hold
    nine of ten outcomes. Without, it is a range that promises no share.

    Attributes:
        value: The most likely value.
        low: The lowest value of the range.
        high: The highest value of the range.
    """

    value: float
    low: float
    high: float


class LossForecast(Protocol):
    """A forecast of a trainer's loss, from its past values and finished trainings.

    *Quality* is the metric turned round and scaled so that it is 0 where the trainer
    began and 1 at its best value so far: above 1 for better values than any so far, and
    below 0 for values worse than the first.
    """

    @property
    def better(self) -> MetricDirection:
        """Which values are good."""
        ...

    @property
    def points(self) -> Sequence[MetricPoint]:
        """The usable values, ascending in samples, finite; the newest last."""
        ...

    @property
    def family(self) -> str:
        """The kind of curve that was fitted."""
        ...

    @property
    def is_diverging(self) -> bool:
        """Whether the last values were not finite, or far worse than the best."""
        ...

    def expected(self, samples: float) -> Expected:
        """Return the value expected after *samples* in all, at least those done."""
        ...

    def quality(self, value: float) -> float:
        """Return *value* as quality; nan counts as the worst value so far."""
        ...

    def samples_to(self, value: float) -> float:
        """Return after how many samples in all *value* is expected; inf for never."""
        ...
