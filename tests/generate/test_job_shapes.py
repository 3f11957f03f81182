"""Draws of sizes, run times and limits against the model's own distributions."""

import math
from collections import Counter

import pytest

from logs.generate import (
    ALL_JOBS,
    BATCH,
    INTERACTIVE,
    POPULAR_LIMITS,
    Draws,
    JobClass,
    WorkloadModel,
    draw_index,
    draw_limit_s,
    draw_nodes,
    draw_run_s,
    draw_two_stage,
    gamma_cdf,
    short_share,
    two_stage_middle,
    user_weights,
)

CLASSES = pytest.mark.parametrize(
    "jobs", [ALL_JOBS, BATCH, INTERACTIVE], ids=lambda jobs: jobs.name
)
MANY = 20_000


def five_sigma(share: float, n: int) -> float:
    """Five standard errors of a share observed in *n* draws."""
    return 5 * math.sqrt(share * (1 - share) / n)


def two_stage_cdf(jobs: JobClass, high: float, x: float) -> float:
    low, middle = jobs.low_log2_nodes, two_stage_middle(jobs, high)
    if x < middle:
        return jobs.low_stage_share * max(0.0, x - low) / (middle - low)
    part = (min(x, high) - middle) / (high - middle)
    return jobs.low_stage_share + (1 - jobs.low_stage_share) * part


def power_of_two_share(jobs: JobClass, nodes: int) -> float:
    """Share of powers of two among parallel sizes: rounded ones and chance hits."""
    high = math.log2(nodes) - jobs.high_below_machine_log2
    by_chance = math.fsum(
        two_stage_cdf(jobs, high, math.log2(2**k + 0.5))
        - two_stage_cdf(jobs, high, math.log2(2**k - 0.5))
        for k in range(1, 20)
    )
    return jobs.power_share + (1 - jobs.power_share) * by_chance


def mean_run_s(jobs: JobClass, nodes: int, longest_log_run: float) -> float:
    """Mean of exp(hyper-gamma) given that the exponent is within its bound.

    With G gamma of shape k and scale t, E[exp(G); G <= L] is
    (1 - t)**-k * F_k(L (1 - t) / t).
    """
    share = short_share(jobs, nodes)
    parts = (
        (share, jobs.short_shape, jobs.short_scale),
        (1 - share, jobs.long_shape, jobs.long_scale),
    )
    weight = math.fsum(p * gamma_cdf(k, longest_log_run / t) for p, k, t in parts)
    total = math.fsum(
        p * (1 - t) ** -k * gamma_cdf(k, longest_log_run * (1 - t) / t)
        for p, k, t in parts
    )
    return total / weight


@CLASSES
def test_the_mean_log2_size_is_the_two_stage_distributions(jobs: JobClass) -> None:
    draws = Draws(1)
    low, high = jobs.low_log2_nodes, 9.0 - jobs.high_below_machine_log2
    middle, share = two_stage_middle(jobs, high), jobs.low_stage_share

    sample = [draw_two_stage(draws, jobs, high) for _ in range(MANY)]

    mean = share * (low + middle) / 2 + (1 - share) * (middle + high) / 2
    # No variance exceeds a quarter of the range squared; five standard errors.
    bound = 5 * (high - low) / 2 / math.sqrt(MANY)
    assert math.fsum(sample) / MANY == pytest.approx(mean, abs=bound)
    assert low <= min(sample)
    assert max(sample) <= high


@CLASSES
def test_serial_jobs_and_powers_of_two_have_their_shares(jobs: JobClass) -> None:
    draws = Draws(2)

    sizes = [draw_nodes(draws, jobs, 512) for _ in range(MANY)]

    serial = sizes.count(1) / MANY
    assert abs(serial - jobs.serial_share) < five_sigma(jobs.serial_share, MANY)
    parallel = [n for n in sizes if n > 1]
    powers = sum(n.bit_count() == 1 for n in parallel) / len(parallel)
    expected = power_of_two_share(jobs, 512)
    assert abs(powers - expected) < five_sigma(expected, len(parallel))


@pytest.mark.parametrize("machine_nodes", [1, 2, 3, 7, 100, 513, 9408])
def test_sizes_stay_within_a_machine_of_any_size(machine_nodes: int) -> None:
    draws = Draws(3)

    for jobs in (ALL_JOBS, BATCH, INTERACTIVE):
        sizes = Counter(draw_nodes(draws, jobs, machine_nodes) for _ in range(3000))

        assert min(sizes) == 1
        assert max(sizes) <= machine_nodes
        assert len(sizes) > 1 or machine_nodes < 7


def test_the_largest_jobs_come_near_the_machines_size() -> None:
    draws = Draws(4)

    assert max(draw_nodes(draws, ALL_JOBS, 512) for _ in range(5000)) > 450


@CLASSES
@pytest.mark.parametrize("nodes", [1, 32, 400])
def test_the_mean_run_time_is_the_hyper_gammas(jobs: JobClass, nodes: int) -> None:
    draws = Draws(5)
    n = 60_000

    runs_s = [draw_run_s(draws, jobs, nodes, longest_log_run=12.0) for _ in range(n)]

    mean = mean_run_s(jobs, nodes, 12.0)
    # A bounded number has E[X^2] <= max * E[X]: five standard errors at the most.
    bound = 5 * math.sqrt(math.exp(12) * mean / n)
    assert math.fsum(runs_s) / n == pytest.approx(mean, abs=bound)
    assert min(runs_s) >= 1
    assert max(runs_s) <= math.exp(12) + 0.5


def test_the_median_log_run_time_splits_the_hyper_gamma_in_half() -> None:
    draws = Draws(6)
    share = short_share(ALL_JOBS, 64)
    cuts = [2.0, 5.0, 8.0, 9.4, 11.0]

    runs_s = [
        draw_run_s(draws, ALL_JOBS, 64, longest_log_run=12.0) for _ in range(MANY)
    ]

    def below(log_s: float) -> float:
        return share * gamma_cdf(4.2, log_s / 0.94) + (1 - share) * gamma_cdf(
            312.0, log_s / 0.03
        )

    for cut in cuts:
        expected = below(cut) / below(12.0)
        # Rounding to whole seconds moves a cut at e^2 s by up to half a second.
        seen = sum(run_s <= math.exp(cut) for run_s in runs_s) / MANY
        assert abs(seen - expected) < five_sigma(expected, MANY) + 0.02 * (cut < 3)


def test_larger_jobs_are_seldom_short_and_the_share_stays_a_share() -> None:
    shares = [short_share(ALL_JOBS, n) for n in (1, 50, 144, 145, 5000)]

    assert shares[0] == pytest.approx(0.7746)
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == 0.0


def test_a_time_limit_is_popular_and_never_below_the_run_time() -> None:
    draws = Draws(7)
    model = WorkloadModel(nodes=8)
    popular = [limit_s for limit_s, _ in POPULAR_LIMITS]

    for run_s in (1, 299, 300, 301, 7200, 100_000, 172_800):
        limits_s = {draw_limit_s(draws, model, run_s) for _ in range(500)}

        assert limits_s <= {limit_s for limit_s in popular if limit_s >= run_s}
        assert len(limits_s) > 5 or run_s > 7200


def test_closeness_moves_limits_towards_the_run_time() -> None:
    means_s = []
    for closeness in (0.0, 1.0, 2.0):
        draws = Draws(8)
        model = WorkloadModel(nodes=8, closeness=closeness)
        means_s.append(sum(draw_limit_s(draws, model, 600) for _ in range(2000)))

    assert means_s == sorted(means_s, reverse=True)


def test_the_first_user_submits_twice_as_much_as_the_second() -> None:
    draws = Draws(9)
    cumulative = user_weights(10)
    total = math.fsum(1 / k for k in range(1, 11))

    seen = Counter(draw_index(draws, cumulative) for _ in range(MANY))

    for user in range(10):
        share = 1 / (user + 1) / total
        assert abs(seen[user] / MANY - share) < five_sigma(share, MANY)
