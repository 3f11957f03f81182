import math
from itertools import pairwise

import pytest

from logs.generate import Draws, gamma_cdf


def largest_distance(sample: list[float], shape: float) -> float:
    """Kolmogorov's distance between a sample and the gamma distribution."""
    ordered = sorted(sample)
    below = [gamma_cdf(shape, x) for x in ordered]
    n = len(ordered)
    return max(max(i / n - f, f - (i - 1) / n) for i, f in enumerate(below, start=1))


def test_the_stream_of_a_seed_never_changes() -> None:
    draws = Draws(7, 0, 1)

    assert [draws.uniform() for _ in range(3)] == [
        0.872908525547428,
        0.3242371290640921,
        0.10916288915244698,
    ]


def test_streams_with_different_keys_or_seeds_differ() -> None:
    streams = [Draws(7, 0, 1), Draws(7, 1, 0), Draws(8, 0, 1)]

    assert len({stream.uniform() for stream in streams}) == 3


def test_uniform_numbers_are_at_least_0_and_below_1_beyond_one_block() -> None:
    draws = Draws(1)

    sample = [draws.uniform() for _ in range(5000)]

    assert all(0 <= x < 1 for x in sample)
    assert len(set(sample)) == len(sample)
    # Five standard errors of the mean of a uniform number: 5 / sqrt(12 n).
    assert abs(math.fsum(sample) / 5000 - 0.5) < 5 / math.sqrt(12 * 5000)


@pytest.mark.parametrize("shape", [1.0, 4.2, 10.46, 639.1])
def test_gamma_numbers_have_the_gamma_distribution(shape: float) -> None:
    draws = Draws(11)
    n = 20_000

    sample = [draws.gamma(shape, 1.0) for _ in range(n)]

    # Dvoretzky, Kiefer, Wolfowitz and Massart: P(distance > e) <= 2 exp(-2 n e^2),
    # which is 0.0001 here.
    assert largest_distance(sample, shape) < 2.23 / math.sqrt(n)


def test_the_scale_of_a_gamma_number_multiplies_it() -> None:
    assert Draws(5).gamma(4.2, 3.0) == pytest.approx(3 * Draws(5).gamma(4.2, 1.0))


@pytest.mark.parametrize("shape", [1, 2, 5, 30])
def test_the_gamma_distribution_of_a_whole_shape_is_erlangs(shape: int) -> None:
    for x in (0.1, 1.0, 4.0, 30.0, 60.0):
        tail = math.fsum(x**i / math.factorial(i) for i in range(shape)) * math.exp(-x)
        assert gamma_cdf(shape, x) == pytest.approx(1 - tail, abs=1e-12)


def test_the_gamma_distribution_never_falls() -> None:
    values = [gamma_cdf(312.0, x) for x in range(1, 900)]

    assert all(low <= high + 1e-12 for low, high in pairwise(values))
    assert values[-1] == pytest.approx(1.0)
