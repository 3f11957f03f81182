import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.priority.base import Contender, RatingInputs
from freetrain.priority.speed import Price
from milp.answer import MalformedProblemError

SPEEDS = st.lists(st.floats(0.1, 1e4), min_size=1, max_size=8)


def contender(speeds: list[float], *, weight: float = 1.0) -> Contender:
    return Contender(
        name="t",
        sizes=tuple(range(1, len(speeds) + 1)),
        samples_per_s=np.array([0.0, *speeds]),
        held=0,
        done_samples=0.0,
        weight=weight,
    )


def curve(one: Contender) -> list[float]:
    inputs_of = RatingInputs(now_s=0.0, contenders=(one,), nodes=9, t_fwd_s=120.0)
    (rating,) = Price(mu=0.5).rate(inputs_of, {}).ratings
    values: list[float] = rating.curve.value_per_s.tolist()
    return values


@given(SPEEDS)
def test_no_size_is_worth_more_than_its_nodes_and_one_is_worth_just_them(
    speeds: list[float],
) -> None:
    over = [value - (n + 0.5) for n, value in enumerate(curve(contender(speeds)))]

    assert max(over[1:]) == pytest.approx(0.0, abs=1e-9)


@given(SPEEDS, st.floats(0.01, 100.0))
def test_a_network_that_does_more_samples_a_second_is_worth_no_more(
    speeds: list[float], faster: float
) -> None:
    scaled = [speed * faster for speed in speeds]

    assert curve(contender(scaled)) == pytest.approx(curve(contender(speeds)))


def test_users_weights_are_on_top() -> None:
    plain, heavy = contender([3.0, 5.0]), contender([3.0, 5.0], weight=4.0)

    assert curve(heavy) == pytest.approx([4 * value for value in curve(plain)])


def test_a_trainer_that_does_no_work_has_no_price() -> None:
    with pytest.raises(MalformedProblemError, match="t does no work"):
        curve(contender([0.0, 0.0]))
