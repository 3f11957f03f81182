"""What all families promise to those who fit them."""

import math

import numpy as np
import pytest

from freetrain.losscurve.curve import (
    CURVES,
    EXPONENTIAL,
    FLAT,
    INVERSE_LINEAR,
    INVERSE_QUADRATIC,
    KNOWN,
    POWER,
    Family,
    NormalizedCurve,
    fit_family,
    noise_of,
    polished,
)
from tests.losscurve.reported import noisy, steps

WORK = steps(80) / 80


def curve(heights: np.ndarray) -> NormalizedCurve:
    ones = np.ones(heights.size)
    return NormalizedCurve(WORK[: heights.size], heights, ones, noise_of(heights, ones))


@pytest.mark.parametrize("family", KNOWN, ids=lambda family: family.name)
class TestEveryFamily:
    def test_has_a_basis_that_falls_and_is_never_below_nothing(
        self, family: Family
    ) -> None:
        basis = family.basis(np.geomspace(1e-6, 1e6, 200), family.shapes)

        assert np.isfinite(basis).all()
        assert (basis >= 0).all()
        assert (np.diff(basis, axis=1) <= 0).all()

    def test_counts_its_parameters(self, family: Family) -> None:
        assert family.shapes.shape[1] == max(family.parameters - 2, 0)

    def test_never_forecasts_a_loss_that_rises(self, family: Family) -> None:
        fit = polished(fit_family(family, curve(WORK)), curve(WORK))

        ahead = fit.curve(np.linspace(1.0, 10.0, 50))
        assert (np.diff(ahead) <= 0).all()

    def test_gains_no_more_than_was_gained_before(self, family: Family) -> None:
        falling = curve(1 - np.log(80 * WORK) / np.log(80))

        rough = fit_family(family, falling)

        for fit in (rough, polished(rough, falling)):
            assert fit.floor >= -1.0

    def test_is_not_moved_by_one_wild_value(self, family: Family) -> None:
        heights = noisy(0.2 / (WORK + 0.2), noise=0.01, seed=3)
        spiked = heights.copy()
        spiked[30] = 50.0

        calm = polished(fit_family(family, curve(heights)), curve(heights))
        wild = polished(fit_family(family, curve(spiked)), curve(spiked))

        ahead = np.array([1.0, 1.5, 3.0])
        assert np.allclose(calm.forecast(ahead), wild.forecast(ahead), atol=0.02)


TRUTHS = (
    (POWER, 0.1 + 0.2 * WORK**-0.4),
    (EXPONENTIAL, 0.2 + 0.8 * np.exp(-WORK / 0.4)),
    (INVERSE_LINEAR, 0.1 + 0.15 / (WORK + 0.15)),
    (INVERSE_QUADRATIC, 0.1 + 0.1 / (0.1 + 0.5 * WORK + 0.5 * WORK**2)),
)


@pytest.mark.parametrize(("family", "truth"), TRUTHS, ids=[f.name for f, _ in TRUTHS])
def test_each_family_finds_its_own_curve_among_noise(
    family: Family, truth: np.ndarray
) -> None:
    """Seen is half; asked is the end, and how much is left to gain."""
    for seed in range(5):
        seen = curve(noisy(truth, noise=0.01, seed=seed)[:40])

        fit = polished(fit_family(family, seen), seen)

        assert fit.forecast(WORK[-1:])[0] == pytest.approx(truth[-1], abs=0.04)


@pytest.mark.parametrize(("family", "truth"), TRUTHS, ids=[f.name for f, _ in TRUTHS])
def test_without_noise_each_family_finds_its_own_curve(
    family: Family, truth: np.ndarray
) -> None:
    seen = curve(truth[:40])

    fit = polished(fit_family(family, seen), seen)

    assert np.allclose(fit.curve(WORK), truth, atol=1e-3)


def test_what_slaq_calls_its_second_family_is_exponential_decay() -> None:
    """Mu to the power of k - b, for whatever mu in 0..1 and b, is c + a * exp()."""
    mu, b = 0.01, 0.3
    basis = EXPONENTIAL.basis(WORK, np.array([[-1 / math.log(mu)]]))[0]

    assert np.allclose(mu ** (WORK - b), mu**-b * basis)


def test_no_further_gain_stays_at_the_last_values() -> None:
    heights = np.append(1 - WORK[:70], [0.2] * 10)

    fit = fit_family(FLAT, curve(heights))

    assert fit.forecast(np.array([1.0, 9.0])).tolist() == [0.2, 0.2]


def test_polishing_never_fits_worse_than_the_grid() -> None:
    seen = curve(noisy(0.2 * WORK**-0.5, noise=0.02, seed=1))
    for family in CURVES:
        rough = fit_family(family, seen)

        fine = polished(rough, seen)

        missed_before = np.abs(rough.curve(WORK) - seen.heights).mean()
        assert np.abs(fine.curve(WORK) - seen.heights).mean() < missed_before * 1.05
