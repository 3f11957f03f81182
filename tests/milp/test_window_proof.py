"""Whatever a solver does with a window, the answer is sound and no worse."""

import pulp
import pytest

from milp.planner import Outcome
from milp.problem import custom
from milp.solver import Found
from milp.verify import constraint_violations
from milp.window import Window, WindowClass, WindowTrainer, total_gain
from milp.window_planner import WindowAnswer, answer_window
from tests.milp.lying_solvers import (
    OUTRIGHT_LIES,
    RAGGED_CURVES,
    FakeSolver,
    Spoil,
    find_nothing,
    set_all,
    tell_the_truth,
    time_out_with_the_point,
)
from tests.milp.window_figures import wrong_gain
from tests.milp.windows import rows_of, standing_still, whole_problem

HARD = Window(
    classes={
        0: WindowClass(nodes=7, life_s=300.0, hit=0.6, share=0.5),
        1: WindowClass(nodes=6, life_s=150.0, hit=0.9, share=1.0),
    },
    free={0: 3, 1: 3},
    trainers=tuple(
        WindowTrainer(RAGGED_CURVES[k % 3], held, 8.0, 5.0, 3.0, 60.0)
        for k, held in enumerate([{0: 2}, {1: 3}, {0: 2}, {}])
    ),
    hit_weight=0.5,
    change_weight=1.0,
)


def call_nothing_optimal(model: pulp.LpProblem, _: Found) -> Found:
    # Every trainer waits: sound, and worse than what was known.
    set_all(model, 0.0)
    for variable in model.variables():
        if variable.name.startswith("z_"):
            place, row = map(int, variable.name.split("_")[1:])
            first = min(
                int(one.name.split("_")[2])
                for one in model.variables()
                if one.name.startswith(f"z_{place}_")
            )
            variable.varValue = float(row == first)
    return Found.OPTIMUM


def answer(fake: FakeSolver, *, limit_s: float = 100.0) -> WindowAnswer:
    return answer_window(HARD, limit_s=limit_s, clock=standing_still, solver=fake)


def searched() -> WindowAnswer:
    return answer(FakeSolver(find_nothing))


def is_sound(found: WindowAnswer) -> bool:
    broken = constraint_violations(whole_problem(HARD), rows_of(HARD, found.holdings))
    return not broken and not wrong_gain(HARD, found.holdings, found.gain)


def test_the_hard_window_is_proven_by_the_program_alone() -> None:
    alone, fake = searched(), FakeSolver(tell_the_truth)

    proven = answer(fake)

    assert alone.outcome is Outcome.INCUMBENT
    assert alone.gap > 1e-3
    assert proven.outcome is Outcome.PROVEN
    assert alone.gain <= proven.gain <= proven.bound <= alone.bound
    assert proven.gap <= 1e-5
    assert is_sound(proven)
    assert len(fake.limits_s) == 1


def test_without_a_solver_given_cbc_proves_it() -> None:
    proven = answer_window(HARD, limit_s=100.0, clock=standing_still)

    assert proven.outcome is Outcome.PROVEN


@pytest.mark.parametrize("spoil", [*OUTRIGHT_LIES, call_nothing_optimal, find_nothing])
def test_a_solver_that_lies_or_dies_leaves_the_searchs_plan_and_says_why(
    spoil: Spoil,
) -> None:
    found = answer(FakeSolver(spoil))

    assert found.outcome is Outcome.INCUMBENT
    assert found.holdings == searched().holdings
    assert found.bound == searched().bound
    assert found.reason
    assert is_sound(found)


def test_a_point_at_the_limit_is_used_and_not_called_proven() -> None:
    found = answer(FakeSolver(time_out_with_the_point))

    assert found.outcome is Outcome.INCUMBENT
    assert found.gain >= searched().gain
    assert found.bound == searched().bound
    assert "in time" in found.reason


def test_the_solver_has_less_than_what_is_left() -> None:
    fake = FakeSolver(tell_the_truth)

    answer(fake, limit_s=10.0)

    assert fake.limits_s[0] is not None
    assert 0.0 < fake.limits_s[0] < 10.0


def test_without_time_no_solver_is_started() -> None:
    fake = FakeSolver(tell_the_truth)

    found = answer(fake, limit_s=0.2)

    assert fake.limits_s == []
    assert "no time" in found.reason
    assert is_sound(found)


def test_a_large_program_is_not_even_written() -> None:
    curve = custom([0.0, *[(n % 7) + n**0.5 for n in range(1, 65)]])
    stays = {k: WindowClass(20, 100.0 + 10.0 * k, 0.5, 0.1) for k in range(8)}
    trainers = tuple(WindowTrainer(curve, {}, 1.0, 1.0, 0.0, 60.0) for _ in range(12))
    window = Window(stays, dict.fromkeys(range(8), 20), trainers, 0.5, 1.0)
    fake = FakeSolver(tell_the_truth)

    found = answer_window(window, limit_s=100.0, clock=standing_still, solver=fake)

    assert fake.limits_s == []
    assert "too many" in found.reason
    assert found.gain == pytest.approx(total_gain(window, found.holdings))
