"""How well real curves are forecast; figures are in docs/notes/loss-curves.md."""

from pathlib import Path

import numpy as np
import pytest

from tests.losscurve.curves import WholeCurve, real_curves
from tests.losscurve.extrapolation import STAGES, outcomes

pytestmark = [pytest.mark.shared, pytest.mark.long]


@pytest.fixture(scope="module")
def curves(shared: Path) -> tuple[WholeCurve, ...]:
    return tuple(real_curves(shared))


def test_no_network_is_forecast_worse_than_by_its_last_value(
    curves: tuple[WholeCurve, ...],
) -> None:
    for group in {curve.group for curve in curves}:
        own = [curve for curve in curves if curve.group == group]
        for stage in STAGES:
            found = outcomes(own, stage, guided=False)
            errors = np.median([(one.error, one.last) for one in found], axis=0)
            assert errors[0] <= errors[1]


def test_two_siblings_make_forecasts_better_and_ranges_hold(
    curves: tuple[WholeCurve, ...],
) -> None:
    for stage in STAGES:
        plain, guided = (outcomes(curves, stage, guided=own) for own in (False, True))
        errors = [np.mean([one.error for one in own]) for own in (plain, guided)]
        assert errors[1] < 0.8 * errors[0]
        assert np.mean([one.held for one in guided]) >= 0.85
