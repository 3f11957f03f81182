from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.scaling import (
    MeasuredSpeed,
    Rescale,
    TrainedFragment,
    measured_speed,
    rescale_cost,
)
from tests.scaling.fragments import at_speeds, steady


def seen(fragment: TrainedFragment) -> MeasuredSpeed:
    found = measured_speed(fragment)
    assert found is not None
    return found


def test_a_steady_fragment_shows_its_speed() -> None:
    assert seen(steady(4, 100.0)).samples_per_s == pytest.approx(100.0)


@given(st.integers(1, 8), st.floats(0.0, 0.8))
def test_a_warm_up_of_any_length_is_left_out(slow: int, share: float) -> None:
    found = seen(at_speeds(4, [100.0 * share] * slow + [100.0] * 10))

    assert found.samples_per_s == pytest.approx(100.0, rel=0.01)
    assert found.trained_s == pytest.approx(100.0)


@given(st.integers(10, 18), st.floats(0.0, 1e6))
def test_one_absurd_interval_does_not_move_the_speed_far(at: int, speed: float) -> None:
    speeds = [100.0] * 20
    speeds[at] = speed

    assert seen(at_speeds(4, speeds)).samples_per_s == pytest.approx(100.0, rel=0.01)


def test_a_stall_longer_than_all_the_rest_does_not_halve_the_speed() -> None:
    fragment = at_speeds(4, [100.0] * 20)
    marks = tuple(
        replace(mark, t_s=mark.t_s + 1000.0) if mark.t_s > 200.0 else mark
        for mark in fragment.marks
    )
    stalled = replace(fragment, marks=marks, last_step_s=fragment.last_step_s + 1000.0)

    assert seen(stalled).samples_per_s > 90.0


def test_a_fragment_of_one_step_says_nothing_of_speed() -> None:
    assert measured_speed(replace(steady(4, 100.0), steps=1)) is None
    assert measured_speed(replace(steady(4, 100.0), first_step_s=None)) is None


def test_without_marks_the_whole_fragment_is_one_interval() -> None:
    assert seen(replace(steady(4, 100.0), marks=())).samples_per_s == 100.0


@pytest.mark.parametrize(
    ("before", "step_before_s", "kind", "seconds"),
    [
        (0, None, Rescale.START, 10.0),
        (2, -5.0, Rescale.GROW, 15.0),
        (8, -5.0, Rescale.SHRINK, 15.0),
    ],
)
def test_a_rescale_costs_what_passes_between_the_steps_around_it(
    before: int, step_before_s: float | None, kind: Rescale, seconds: float
) -> None:
    came = replace(steady(4, 100.0), nodes_before=before, step_before_s=step_before_s)

    paid = rescale_cost(came)

    assert paid is not None
    assert (paid[0], paid[1].seconds) == (kind, seconds)


def test_restarts_after_failures_and_clocks_that_go_back_cost_nothing() -> None:
    came = replace(steady(4, 100.0), nodes_before=2, step_before_s=-5.0)

    assert rescale_cost(replace(came, follows_failure=True)) is None
    assert rescale_cost(replace(came, step_before_s=50.0)) is None
    assert rescale_cost(replace(came, nodes_before=4)) is None
