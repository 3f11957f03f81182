"""Curves, the objective and the gap."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milp.answer import MalformedProblemError, gap
from milp.problem import (
    Problem,
    ProblemTrainer,
    custom,
    gain,
    gains,
    speed_up,
    throughput,
    weighted,
)
from tests.milp.planning_problems import one_class_problems


def test_a_curve_cannot_be_written_to_and_keeps_its_own_copy() -> None:
    values = np.array([0.0, 1.0])
    curve = throughput(values)
    values[1] = 9.0

    assert curve.value_per_s[1] == 1.0
    assert not curve.value_per_s.flags.writeable
    assert curve.value_per_s.dtype == np.float64


def test_all_sizes_are_allowed_unless_some_are_named() -> None:
    assert custom([0, 1, 2, 3]).sizes == (1, 2, 3)
    assert custom([0, 1, 2, 3], [3, 1, 3]).sizes == (1, 3)


def test_speed_up_is_throughput_over_that_of_one_node() -> None:
    assert speed_up([0.0, 4.0, 6.0]).value_per_s.tolist() == [0.0, 1.0, 1.5]


def test_without_one_node_speed_up_is_per_node_of_the_smallest_size() -> None:
    curve = speed_up([0.0, 1.0, 8.0, 10.0, 12.0], [2, 4])

    assert curve.value_per_s[2] == 2.0
    assert curve.value_per_s[4] == 3.0


def test_speed_up_over_no_work_is_refused() -> None:
    with pytest.raises(MalformedProblemError, match="no speed-up over 1 nodes"):
        speed_up([0.0, 0.0, 3.0])


def test_a_weight_scales_every_value_and_keeps_the_sizes() -> None:
    curve = weighted(custom([0, 1, 5], [2]), 3.0)

    assert curve.value_per_s.tolist() == [0.0, 3.0, 15.0]
    assert curve.sizes == (2,)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan")])
def test_a_weight_that_is_not_above_0_is_refused(weight: float) -> None:
    with pytest.raises(MalformedProblemError, match="not above 0"):
        weighted(custom([0, 1]), weight)


@pytest.mark.parametrize(
    ("values", "sizes", "why"),
    [
        ([0.0], None, "at least 1 nodes"),
        ([[0.0, 1.0]], None, "shape"),
        ([1.0, 2.0], None, "0 at 0 nodes"),
        ([0.0, float("nan")], None, "1 not finite"),
        ([0.0, 1.0], [2], "do not fit"),
        ([0.0, 1.0], [0, 1], "do not fit"),
        ([0.0, 1.0], [], "do not fit"),
    ],
)
def test_a_curve_that_contradicts_itself_is_refused(
    values: list[float], sizes: list[int] | None, why: str
) -> None:
    with pytest.raises(MalformedProblemError, match=why):
        custom(values, sizes)


CURVE = custom([0.0, 10.0, 15.0, 30.0], [1, 3])


@pytest.mark.parametrize(
    ("held", "nodes", "worth"),
    [
        (0, 0, 0.0),
        (0, 3, 100 * 30.0 - 5 * 30.0),  # starting costs of the new worth
        (1, 3, 100 * 30.0 - 18 * 10.0),  # growing costs of the old worth
        (3, 1, 100 * 10.0 - 12 * 30.0),  # so does shrinking
        (3, 0, -12 * 30.0),
        (3, 3, 100 * 30.0),  # staying is free
    ],
)
def test_gain_is_worth_over_the_look_ahead_less_the_cost_of_change(
    held: int, nodes: int, worth: float
) -> None:
    trainer = ProblemTrainer("t", CURVE, (held,), 18.0, 12.0, 5.0)

    assert gain(trainer, nodes, 100.0) == worth


def test_a_trainer_holds_the_sum_over_classes() -> None:
    trainer = ProblemTrainer("t", CURVE, (1, 2), 18.0, 12.0)

    assert gain(trainer, 3, 100.0) == 3000.0


@given(one_class_problems())
def test_gains_in_bulk_are_the_single_ones_to_the_last_bit(problem: Problem) -> None:
    for trainer in problem.trainers:
        row = gains(trainer, problem.t_fwd_s)

        for nodes, value in enumerate(row):
            allowed = nodes == 0 or nodes in trainer.curve.sizes
            one = gain(trainer, nodes, problem.t_fwd_s)
            assert value == (one if allowed else -math.inf)


ANY_GAIN = st.floats(-1e9, 1e9, allow_subnormal=False)


@pytest.mark.parametrize(
    ("gain", "bound", "expected"),
    [
        (90.0, 100.0, 0.1),
        (100.0, 100.0, 0.0),
        (0.0, 0.0, 0.0),
        (0.0, 5.0, 1.0),
        (-5.0, 5.0, 2.0),
        (-1.0, 99.0, 100.0 / 99.0),
        (-10.0, -8.0, 0.2),
        (-10.0, 0.0, 1.0),
    ],
)
def test_a_gap_is_what_is_missing_over_the_larger_of_gain_and_bound(
    gain: float, bound: float, expected: float
) -> None:
    assert gap(gain, bound) == pytest.approx(expected)


def test_what_rounding_alone_makes_is_no_gap() -> None:
    assert gap(0.1 + 0.2, 0.3) == 0.0
    assert gap(0.3, 0.1 + 0.2) == 0.0


@given(ANY_GAIN, ANY_GAIN, st.floats(1e-3, 1e3))
def test_a_gap_is_between_0_and_2_in_whatever_unit(
    one: float, other: float, unit: float
) -> None:
    gain, bound = sorted((one, other))

    assert 0.0 <= gap(gain, bound) <= 2.0
    assert gap(unit * gain, unit * bound) == pytest.approx(gap(gain, bound), abs=1e-8)
