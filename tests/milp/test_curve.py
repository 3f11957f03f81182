import numpy as np
import pytest

from milp.errors import MalformedProblemError
from milp.problem import custom, speed_up, throughput, weighted


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
