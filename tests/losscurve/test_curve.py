"""Usable values, few points in place of many, and the curve fitted to them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.losscurve.curve import (
    MOST_POINTS,
    LossHistory,
    NormalizedCurve,
    downsample,
    fit_curve,
    fit_level,
    noise_of,
)
from freetrain.losscurve.forecast import MetricPoint
from tests.losscurve.reported import noisy, reported, steps

# Usable values


POINTS = st.lists(
    st.builds(
        MetricPoint,
        t_s=st.floats(0, 1e6),
        samples=st.one_of(st.integers(0, 30).map(float), st.floats()),
        value=st.floats(),
    ),
    max_size=30,
)


@given(POINTS)
def test_usable_points_are_finite_and_strictly_ascend(
    points: list[MetricPoint],
) -> None:
    history = LossHistory(points)

    samples = [point.samples for point in history.points]
    assert all(a < b for a, b in pairwise(samples))
    assert all(math.isfinite(point.value) for point in history.points)
    assert samples == history.samples.tolist()
    assert [point.value for point in history.points] == history.values.tolist()
    assert len(samples) == len(history)


@given(POINTS, st.integers(0, 30))
def test_reporting_in_two_parts_is_reporting_at_once(
    points: list[MetricPoint], cut: int
) -> None:
    history = LossHistory(points[:cut])
    _ = history.points, history.samples
    history.extend(points[cut:])

    assert history.points == LossHistory(points).points


@given(POINTS)
def test_the_newest_usable_value_is_kept(points: list[MetricPoint]) -> None:
    fit = [p for p in points if math.isfinite(p.samples) and p.samples >= 0]
    usable = [p for p in fit if abs(p.value) <= 1e100]

    assert not usable or usable[-1] in LossHistory(points).points


Reports = Sequence[tuple[float, float]]
USABLE: dict[str, tuple[Reports, Reports, int]] = {
    **{
        f"{bad} within": ([(10, 3), (20, bad), (30, 2)], [(10, 3), (30, 2)], 0)
        for bad in (math.nan, math.inf, -math.inf, 1e300)
    },
    "two broken values at the end": (
        *([(10, 3), (20, 2), (30, math.nan), (40, math.inf)], [(10, 3), (20, 2)], 2),
    ),
    **{
        f"at {bad} samples": ([(bad, 3), (10, 2)], [(10, 2)], 0)
        for bad in (math.nan, math.inf, -1.0)
    },
    "a restart voids the values after its checkpoint": (
        [(10, 5), (20, 4), (30, 3), (40, 2), (25, 3.4), (35, 2.4)],
        *([(10, 5), (20, 4), (25, 3.4), (35, 2.4)], 0),
    ),
    "the first value after a restart is the newest at once": (
        *([(10, 4), (20, 3), (30, 2), (15, 3.5)], [(10, 4), (15, 3.5)], 0),
    ),
    "late values of several writers take their places": (
        [(20, 5), (10, 6), (40, 3), (30, 4), (60, 1), (50, 2), (70, 0)],
        *([(10 * i, 7 - i) for i in range(1, 8)], 0),
    ),
    "of two values for the same samples the later counts": (
        *([(10, 4), (20, 3), (20, 2)], [(10, 4), (20, 2)], 0),
    ),
}


@pytest.mark.parametrize(("reports", "kept", "broken"), USABLE.values(), ids=USABLE)
def test_the_usable_values_of_reports(
    reports: Reports, kept: Reports, broken: int
) -> None:
    samples, values = zip(*reports, strict=True)

    history = LossHistory(reported(values, samples))

    assert [(point.samples, point.value) for point in history.points] == kept
    assert history.broken == broken


# Few points in place of many


@given(st.integers(1, 3000), st.integers(4, 200))
def test_few_points_stand_for_all_of_them(count: int, most: int) -> None:
    samples = np.arange(count, dtype=np.float64)

    few = downsample(samples, -samples, most=most)

    assert few.samples.size <= most
    assert few.weights.sum() == count
    assert (np.diff(few.samples) > 0).all()
    assert np.isclose(few.samples @ few.weights, samples.sum())


def test_short_histories_are_left_alone() -> None:
    values = np.array([3.0, 1.0, 2.0])

    few = downsample(np.arange(3.0), values)

    assert few.values is values
    assert few.weights.tolist() == [1.0, 1.0, 1.0]


def test_spikes_do_not_move_the_points_that_stand_for_them() -> None:
    values = np.ones(10_000)
    values[5000::50] = 1e9

    assert downsample(np.arange(10_000.0), values).values.max() == 1.0


def test_start_and_end_of_a_long_history_keep_their_detail() -> None:
    few = downsample(np.arange(100_000.0), np.zeros(100_000))

    assert few.weights[0] == 1.0
    assert few.weights.max() < 100_000 / MOST_POINTS * 3


# The curve


WORK = steps(80) / 80


def curve(heights: np.ndarray) -> NormalizedCurve:
    ones = np.ones(heights.size)
    return NormalizedCurve(WORK[: heights.size], heights, ones, noise_of(heights, ones))


def test_no_curve_forecasts_a_loss_that_rises() -> None:
    fit = fit_curve(curve(WORK))

    assert (np.diff(fit.curve(np.linspace(1.0, 10.0, 50))) <= 0).all()


def test_no_curve_gains_more_than_was_gained_before() -> None:
    slowing = curve(1 - np.log(80 * WORK) / np.log(80))

    assert fit_curve(slowing).floor >= -1.0


def test_a_single_wild_value_moves_no_curve() -> None:
    heights = noisy(0.2 / (WORK + 0.2), noise=0.01, seed=3)
    spiked = heights.copy()
    spiked[30] = 50.0

    calm, wild = (
        fit_curve(curve(own)).forecast(np.array([1.0, 1.2, 1.5]))
        for own in (heights, spiked)
    )
    assert np.allclose(calm, wild, atol=0.02)


TRUTHS = {
    "power law": 0.1 + 0.2 * (WORK + 0.01) ** -0.4,
    "shifted power law": 0.4 * (WORK + 0.3) ** -0.8,
    "inverse": 0.1 + 0.15 / (WORK + 0.15),
}


@pytest.mark.parametrize("truth", TRUTHS.values(), ids=TRUTHS)
def test_a_shifted_power_law_is_found_from_its_first_half(truth: np.ndarray) -> None:
    assert np.allclose(fit_curve(curve(truth[:40])).curve(WORK), truth, atol=0.02)
    for seed in range(5):
        seen = curve(noisy(truth, noise=0.01, seed=seed)[:40])
        fit = fit_curve(seen)
        assert fit.forecast(WORK[-1:])[0] == pytest.approx(truth[-1], abs=0.05)


def test_a_level_stays_at_the_last_values() -> None:
    fit = fit_level(curve(np.append(1 - WORK[:70], [0.2] * 10)))

    assert fit.forecast(np.array([1.0, 9.0])).tolist() == [0.2, 0.2]


def test_the_lag_of_the_last_points_counts_fully_at_once_and_less_further_on() -> None:
    fit = replace(fit_curve(curve(0.1 + 0.2 * WORK**-0.4)), lag=0.1)
    work = np.array([1.0, 1.25, 9.0])

    above = fit.forecast(work) - fit.curve(work)
    assert above == pytest.approx([0.1, 0.1 / math.e, 0.0], abs=1e-9)
