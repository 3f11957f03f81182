import math
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logs.generate import (
    ALL_JOBS,
    BATCH,
    INTERACTIVE,
    Cycle,
    Draws,
    JobClass,
    WorkloadModel,
    day_shares,
    gamma_cdf,
    working_times_s,
)

WEEK_S = 7 * 86_400
CLASSES = pytest.mark.parametrize(
    "jobs", [ALL_JOBS, BATCH, INTERACTIVE], ids=lambda jobs: jobs.name
)


@CLASSES
def test_the_day_is_quiet_before_dawn_and_busy_after_noon(jobs: JobClass) -> None:
    shares = day_shares(jobs)

    assert math.fsum(shares) == pytest.approx(1)
    assert 8 <= shares.index(min(shares)) <= 11
    assert 24 <= shares.index(max(shares)) <= 29


@CLASSES
def test_the_day_has_no_step_that_a_daily_cycle_cannot_have(jobs: JobClass) -> None:
    shares = day_shares(jobs)

    steps = [later / earlier for earlier, later in pairwise([*shares, shares[0]])]

    assert max(steps) < 1.6
    assert min(steps) > 1 / 1.6


@given(st.floats(0, 5 * WEEK_S), st.sampled_from([1.0, 0.3, 2.0]))
def test_the_clock_and_working_time_are_inverse(clock_s: float, weight: float) -> None:
    cycle = Cycle.of(ALL_JOBS, WorkloadModel(nodes=8, weekend_weight=weight))

    assert cycle.clock_s(cycle.working_s(clock_s)) == pytest.approx(clock_s, abs=1e-5)


def test_a_week_of_the_clock_is_a_week_of_working_time() -> None:
    cycle = Cycle.of(BATCH, WorkloadModel(nodes=8, weekend_weight=0.4))

    assert cycle.working_s(3 * WEEK_S) == pytest.approx(3 * WEEK_S)


def test_weekends_pass_with_their_weight() -> None:
    cycle = Cycle.of(ALL_JOBS, WorkloadModel(nodes=8, weekend_weight=0.25))

    monday = cycle.working_s(86_400)
    saturday = cycle.working_s(6 * 86_400) - cycle.working_s(5 * 86_400)

    assert saturday / monday == pytest.approx(0.25)


@CLASSES
def test_log_gaps_have_the_bounded_gamma_distribution(jobs: JobClass) -> None:
    n = 20_000
    times_s = list(islice(working_times_s(Draws(1), jobs, 13.0), n))

    gaps = sorted(math.log(b - a) for a, b in pairwise([0.0, *times_s]))

    whole = gamma_cdf(jobs.gap_shape, 13.0 / jobs.gap_scale)
    expected = [gamma_cdf(jobs.gap_shape, g / jobs.gap_scale) / whole for g in gaps]
    distance = max(abs(i / n - f) for i, f in enumerate(expected, start=1))
    # Massart's bound, at a probability of 0.0001, and the step of 1 / n.
    assert distance < 2.23 / math.sqrt(n) + 1 / n
    assert gaps[-1] <= 13.0 + 1e-6
