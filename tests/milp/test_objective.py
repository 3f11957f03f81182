import math

import pytest
from hypothesis import given

from milp.problem import Problem, TrainerState, custom
from milp.verify import gain, gains
from tests.milp.planning_problems import one_class_problems

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
    trainer = TrainerState("t", CURVE, (held,), 18.0, 12.0, 5.0)

    assert gain(trainer, nodes, 100.0) == worth


def test_a_trainer_holds_the_sum_over_classes() -> None:
    trainer = TrainerState("t", CURVE, (1, 2), 18.0, 12.0)

    assert gain(trainer, 3, 100.0) == 3000.0


@given(one_class_problems())
def test_gains_in_bulk_are_the_single_ones_to_the_last_bit(problem: Problem) -> None:
    for trainer in problem.trainers:
        row = gains(trainer, problem.t_fwd_s)

        for nodes, value in enumerate(row):
            allowed = nodes == 0 or nodes in trainer.curve.sizes
            one = gain(trainer, nodes, problem.t_fwd_s)
            assert value == (one if allowed else -math.inf)
