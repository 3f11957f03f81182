"""A forecast comes back from JSON as it was."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.errors import BadDataError
from freetrain.losscurve.curve import LossHistory
from freetrain.losscurve.fit import fingerprint, fit_forecast, from_state, to_state
from freetrain.losscurve.forecast import Better
from tests.losscurve.reported import STEP, noisy, reported, steps

CURVES = {
    "learning": noisy(0.5 + 2 * steps(60) ** -0.5, noise=0.02, seed=0),
    "flat": np.full(10, 0.25),
    "gone wrong": np.array([3.0, 2.0, 1.0, 9.0, 9.0, 9.0, 9.0]),
    "broken": np.array([3.0, 2.0, 1.5, 1.2, math.nan]),
}


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("better", Better)
def test_what_is_kept_forecasts_what_was_fitted(name: str, better: Better) -> None:
    points = reported(CURVES[name])
    fitted = fit_forecast(points, better)
    assert fitted is not None

    state = json.loads(json.dumps(to_state(fitted)))
    again = from_state(state, LossHistory(points), better)

    for field in ("better", "points", "family", "is_diverging", "phase_samples"):
        assert getattr(again, field) == getattr(fitted, field)
    for work in (0.0, 80 * STEP, 1e9):
        assert again.expected(work) == fitted.expected(work)
    values = CURVES[name][:3].tolist()
    assert [*map(again.quality, values)] == [*map(fitted.quality, values)]
    assert [*map(again.samples_to, values)] == [*map(fitted.samples_to, values)]
    assert again.samples_to(0.4) == fitted.samples_to(0.4)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 0},
        {"family": "another"},
        {"frame": None},
        {"curve": [1.0]},
        {"shape": ["x"]},
        {"scale": {}},
    ],
)
def test_what_another_release_kept_is_refused(change: dict[str, object]) -> None:
    fitted = fit_forecast(reported(CURVES["learning"]), Better.LOWER)
    assert fitted is not None

    with pytest.raises(BadDataError, match="fitted again"):
        from_state(to_state(fitted) | change, LossHistory(), Better.LOWER)


@settings(deadline=None)
@given(st.lists(st.floats(), min_size=1, max_size=8), st.data())
def test_any_change_of_the_points_changes_the_fingerprint(
    values: list[float], data: st.DataObject
) -> None:
    points = reported(values)
    at = data.draw(st.integers(0, len(values) - 1))
    other = [*values[:at], 0.5 if values[at] != 0.5 else 0.25, *values[at + 1 :]]

    print_ = fingerprint(points, Better.LOWER)

    assert print_ == fingerprint(reported(values), Better.LOWER)
    assert print_ != fingerprint(reported(other), Better.LOWER)
    assert print_ != fingerprint(reported([*values, 0.5]), Better.LOWER)
    assert print_ != fingerprint(points, Better.HIGHER)
