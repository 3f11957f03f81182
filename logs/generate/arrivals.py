"""When jobs are submitted: gaps of uneven length, and the cycle of day and week."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from logs.generate.draws import Draws
    from logs.generate.model import JobClass, WorkloadModel

HALF_HOUR_S = 1800
HALF_HOURS_A_DAY = 48
FIRST_HALF_HOUR = 11
"""The model's day begins with its 11th half hour, at 05:00, the quietest one.

The parameters say 11 without a unit. In half hours the shares of the day's first
and last half hour agree within 50 % for all three published classes, as a cycle
must; in hours they would differ by a factor of 40.
"""


def working_times_s(
    draws: Draws, jobs: JobClass, longest_log_gap: float
) -> Iterator[float]:
    """Yield the submissions of one class without end, in working seconds.

    Working seconds pass faster when many users are at work, see ``Cycle``. Gaps
    between submissions have a gamma-distributed natural logarithm.
    """
    now = 0.0
    while True:
        log_gap = draws.gamma(jobs.gap_shape, jobs.gap_scale)
        if log_gap <= longest_log_gap:
            now += math.exp(log_gap)
            yield now


def day_shares(jobs: JobClass) -> list[float]:
    """Return each half hour's share of a day's submissions, midnight first."""
    shares = [0.0] * HALF_HOURS_A_DAY
    for i in range(FIRST_HALF_HOUR, FIRST_HALF_HOUR + HALF_HOURS_A_DAY):
        high = gamma_cdf(jobs.day_shape, (i + 0.5) / jobs.day_scale_half_hours)
        low = gamma_cdf(jobs.day_shape, (i - 0.5) / jobs.day_scale_half_hours)
        shares[(i - 1) % HALF_HOURS_A_DAY] = high - low
    total = math.fsum(shares)
    return [share / total for share in shares]


def gamma_cdf(shape: float, x: float) -> float:
    """Return the probability that a gamma number of scale 1 is below *x*.

    The power series of the incomplete gamma function; its terms are positive, so
    that nothing cancels.

    Source:
        NIST Digital Library of Mathematical Functions, 8.7.1.
    """
    term = math.exp(shape * math.log(x) - x - math.lgamma(shape + 1.0))
    total = 0.0
    n = 0
    while term > total * 1e-17:
        total += term
        n += 1
        term *= x / (shape + n)
    return total


@dataclass(frozen=True, slots=True)
class Cycle:
    """The week's rhythm: how working time passes while the clock runs.

    Attributes:
        passed_s: Working seconds passed since Monday 00:00 at the end of each half
            hour of the week, 0 first: 337 numbers. A whole week holds as many
            working seconds as it has seconds.
    """

    passed_s: tuple[float, ...]

    @classmethod
    def of(cls, jobs: JobClass, model: WorkloadModel) -> Cycle:
        """Return the cycle of one class of jobs."""
        day = day_shares(jobs)
        week = day * 5 + [share * model.weekend_weight for share in day] * 2
        scale = len(week) * HALF_HOUR_S / math.fsum(week)
        return cls(tuple(accumulate((w * scale for w in week), initial=0.0)))

    def working_s(self, clock_s: float) -> float:
        """Return the working seconds passed at *clock_s* seconds since Monday."""
        weeks, rest_s = divmod(clock_s, self._week_s)
        i = min(int(rest_s // HALF_HOUR_S), len(self.passed_s) - 2)
        part = rest_s / HALF_HOUR_S - i
        low, high = self.passed_s[i], self.passed_s[i + 1]
        return weeks * self.passed_s[-1] + low + part * (high - low)

    def clock_s(self, working_s: float) -> float:
        """Return when *working_s* working seconds have passed: the inverse."""
        weeks, rest_s = divmod(working_s, self.passed_s[-1])
        i = min(bisect_right(self.passed_s, rest_s), len(self.passed_s) - 1) - 1
        low, high = self.passed_s[i], self.passed_s[i + 1]
        part = (rest_s - low) / (high - low)
        return weeks * self._week_s + (i + part) * HALF_HOUR_S

    @property
    def _week_s(self) -> int:
        return (len(self.passed_s) - 1) * HALF_HOUR_S
