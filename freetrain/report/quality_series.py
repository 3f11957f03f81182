"""Quality over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from freetrain.replay.result import Learning, ReplayResult

MOMENTS = 2_000
"""At which quality over time is looked at; more change no third digit."""


@dataclass(frozen=True, slots=True, eq=False)
class QualityOverTime:
    """Quality at moments, float64, nan where there is nobody.

    Attributes:
        times_s: The moments.
        under_way: Mean over the trainers that have arrived and not finished.
        worst: The least among those.
        submitted: Mean over all that have arrived; who has finished stays as good
            as it became.
    """

    times_s: NDArray[np.float64]
    under_way: NDArray[np.float64]
    worst: NDArray[np.float64]
    submitted: NDArray[np.float64]


def moments_s(end_s: float, *, count: int = MOMENTS) -> NDArray[np.float64]:
    """Return the middles of *count* equal stretches up to *end_s*."""
    return np.linspace(0.0, end_s, count, endpoint=False) + end_s / (2 * count)


def quality_over_time(
    result: ReplayResult, times_s: NDArray[np.float64]
) -> QualityOverTime:
    """Return the quality of *result*'s trainers at *times_s*, ascending."""
    rows = np.array([_quality(one, times_s) for one in result.learning])
    rows = rows.reshape(len(result.learning), len(times_s))
    arrived = np.array([times_s >= one.arrival_s for one in result.learning])
    finished = np.array([_is_over(one, times_s) for one in result.learning])
    under_way = arrived & ~finished
    return QualityOverTime(
        times_s=times_s,
        under_way=_mean(rows, under_way),
        worst=_worst(rows, under_way),
        submitted=_mean(rows, arrived),
    )


def mean_of(values: NDArray[np.float64]) -> float | None:
    """Return the mean of *values* where there are any."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _quality(one: Learning, times_s: NDArray[np.float64]) -> NDArray[np.float64]:
    steps = np.array([0.0, *one.quality])
    passed = np.searchsorted(np.array(one.times_s), times_s, side="right")
    return np.asarray(steps[passed])


def _is_over(one: Learning, times_s: NDArray[np.float64]) -> NDArray[np.bool_]:
    end_s = np.inf if one.finished_s is None else one.finished_s
    return np.asarray(times_s >= end_s)


def _mean(rows: NDArray[np.float64], counted: NDArray[np.bool_]) -> NDArray[np.float64]:
    number = counted.sum(axis=0)
    total = np.where(counted, rows, 0.0).sum(axis=0)
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)


def _worst(
    rows: NDArray[np.float64], counted: NDArray[np.bool_]
) -> NDArray[np.float64]:
    least = np.where(counted, rows, np.inf).min(axis=0, initial=np.inf)
    return np.where(np.isfinite(least), least, np.nan)
