from hypothesis import given

from milp.exact import ExactSolver
from milp.objective import gain, plan_gain
from milp.problem import Problem
from tests.milp.problems import one_class_problems


def plain_best(problem: Problem) -> tuple[list[int], float]:
    """The textbook dynamic program, one cell at a time.

    Each trainer in order takes the smallest count that is best for the pool
    that is left; written out without NumPy so that it shares nothing with the
    solver but the gain.
    """
    pool = problem.classes[0].nodes
    best = [0.0] * (pool + 1)
    choices: list[list[int]] = []
    for trainer in problem.trainers:
        after, choice = [], []
        for left in range(pool + 1):
            options = [0, *(n for n in trainer.curve.sizes if n <= left)]
            values = [
                best[left - n] + gain(trainer, n, problem.t_fwd_s) for n in options
            ]
            after.append(max(values))
            choice.append(options[values.index(max(values))])
        best = after
        choices.append(choice)
    left, counts = pool, []
    for choice in reversed(choices):
        counts.append(choice[left])
        left -= counts[-1]
    return counts[::-1], best[pool]


@given(one_class_problems())
def test_exact_gives_each_trainer_the_count_of_the_plain_dynamic_program(
    problem: Problem,
) -> None:
    counts, value = plain_best(problem)

    plan = ExactSolver().solve(problem)

    assert [row[0] for row in plan.counts] == counts
    assert plan.gain == value


@given(one_class_problems())
def test_the_claimed_gain_is_the_gain_of_the_counts(problem: Problem) -> None:
    plan = ExactSolver().solve(problem)

    assert plan.gain == plan_gain(problem, plan.counts) == plan.bound
