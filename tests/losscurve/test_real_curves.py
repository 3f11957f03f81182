"""How well real curves are forecast; figures are in docs/notes/loss-curves.md."""

from pathlib import Path

import numpy as np
import pytest

from tests.losscurve.curves import WholeCurve, real_curves
from tests.losscurve.extrapolation import CUTS, coverage_of, errors_of

pytestmark = [pytest.mark.shared, pytest.mark.long]

BEST_SINGLE_FAMILY = (0.082, 0.050, 0.031, 0.032)
"""The lowest median error of any single family, by cut, on the 34 curves from which
these 13 are; last values count as a family."""


@pytest.fixture(scope="module")
def curves(shared: Path) -> tuple[WholeCurve, ...]:
    return tuple(real_curves(shared))


def test_the_choice_is_as_good_as_the_best_family(
    curves: tuple[WholeCurve, ...],
) -> None:
    errors = errors_of(curves)

    for cut, best in zip(CUTS, BEST_SINGLE_FAMILY, strict=True):
        assert np.median(errors["**the choice**", cut]) <= 1.1 * best


def test_on_no_network_is_it_worse_than_the_last_value(
    curves: tuple[WholeCurve, ...],
) -> None:
    for group in {curve.group for curve in curves}:
        errors = errors_of(curve for curve in curves if curve.group == group)
        for cut in CUTS:
            chosen = np.median(errors["**the choice**", cut])
            assert chosen <= 1.1 * np.median(errors["last value", cut])


def test_intervals_have_their_coverage(curves: tuple[WholeCurve, ...]) -> None:
    covered = [coverage_of(curves, cut) for cut in CUTS]

    tight, wide = np.mean(covered, axis=0)
    assert 0.70 <= tight <= 0.92
    assert 0.80 <= wide <= 0.97
