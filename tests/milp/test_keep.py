import math

from hypothesis import given

from milp.count import feasible_gains, greedy, reduce
from milp.exact import ExactSolver
from milp.problem import NodeClass, Plan, Problem, TrainerState, custom
from milp.verify import keep, loose_bound, plan_gain, violations
from tests.milp.planning_problems import many_class_problems, one_class_problems


@given(many_class_problems())
def test_the_kept_plan_breaks_nothing(problem: Problem) -> None:
    assert violations(problem, keep(problem)) == ()


def test_what_is_held_stays_as_it_is() -> None:
    curve = custom([0.0, 1.0, 2.0, 3.0])
    trainer = TrainerState("t", curve, (1, 2), 1.0, 1.0)
    problem = Problem((NodeClass("a", 5), NodeClass("b", 5)), (trainer,), 10.0)

    assert keep(problem).counts == ((1, 2),)


def test_a_trainer_off_its_sizes_gives_up_the_shortest_lived_nodes() -> None:
    curve = custom([0.0, 1.0, 2.0, 3.0, 4.0], [2, 4])
    trainer = TrainerState("t", curve, (1, 2), 1.0, 1.0)
    classes = (NodeClass("long", 5, 900.0), NodeClass("short", 5, 60.0))

    assert keep(Problem(classes, (trainer,), 10.0)).counts == ((1, 1),)


@given(many_class_problems())
def test_greedy_breaks_nothing_and_gains_no_less_than_keeping(
    problem: Problem,
) -> None:
    rows = feasible_gains(problem)
    kept = keep(problem)
    held = [sum(row) for row in kept.counts]

    counts = greedy(problem, rows, targets=held, price=[0.0] * len(problem.classes))
    gain = plan_gain(problem, counts)

    assert violations(problem, Plan(tuple(map(tuple, counts)), gain, math.inf)) == ()
    assert gain >= kept.gain


@given(one_class_problems())
def test_any_price_gives_a_bound_and_the_plan_known_breaks_nothing(
    problem: Problem,
) -> None:
    rows = feasible_gains(problem)
    best = ExactSolver().solve(problem)

    for price in (0.0, 1.0, 50.0, 5000.0):
        reduction = reduce(problem, rows, [price], [])

        plan = reduction.plan(proven=False)
        assert violations(problem, plan) == ()
        assert reduction.bound + reduction.rounding >= best.gain >= plan.gain
    assert loose_bound(problem) >= best.gain - reduction.rounding
