"""What the broker did to everybody else's jobs."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Harm:
    """Start times with us, less start times without us, over the jobs compared.

    Attributes:
        jobs: Jobs compared.
        later: Jobs that started later.
        sooner: Jobs that started sooner: what delays one lets another in.
        mean_s: Mean difference, those that started sooner counted negative.
        median_s: Median difference.
        most_s: Largest difference.
        met: Jobs that were placed on nodes we held.
        waited_mean_s: How long these waited for us to go, mean.
        waited_median_s: The same, median.
        waited_most_s: The same, at most.
        waited_longer: How many waited longer than the notice, or one tick.
        met_later_mean_s: Mean difference of these.
        met_later_most_s: Largest difference of these.
    """

    jobs: int
    later: int
    sooner: int
    mean_s: float
    median_s: float
    most_s: float
    met: int
    waited_mean_s: float
    waited_median_s: float
    waited_most_s: float
    waited_longer: int
    met_later_mean_s: float
    met_later_most_s: float


def harm_of(
    with_us_s: Mapping[int, float],
    without_us_s: Mapping[int, float],
    waited_s: Mapping[int, float],
    *,
    bound_s: float,
) -> Harm:
    """Hold two runs of the same jobs against each other.

    Args:
        with_us_s: When each job started, by job.
        without_us_s: The same where we were never there; the same jobs.
        waited_s: How long each job waited for our leases, by job that met one.
        bound_s: How long one should wait at most.
    """
    later_s = {job: with_us_s[job] - s for job, s in without_us_s.items()}
    differences = sorted(later_s.values())
    waits_s = list(waited_s.values())
    met_s = [later_s[job] for job in waited_s if job in later_s]
    return Harm(
        jobs=len(differences),
        later=sum(s > 0 for s in differences),
        sooner=sum(s < 0 for s in differences),
        mean_s=_mean(differences),
        median_s=_median(differences),
        most_s=max(differences, default=0.0),
        met=len(waited_s),
        waited_mean_s=_mean(waits_s),
        waited_median_s=_median(waits_s),
        waited_most_s=max(waits_s, default=0.0),
        waited_longer=sum(s > bound_s for s in waits_s),
        met_later_mean_s=_mean(met_s),
        met_later_most_s=max(met_s, default=0.0),
    )


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _median(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0
