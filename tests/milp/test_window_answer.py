from collections.abc import Callable, Iterator
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milp.planner import Outcome
from milp.verify import constraint_violations
from milp.window import Deadline, Window, total_gain
from milp.window_planner import answer_window
from milp.window_search import WindowPlanner
from tests.milp.window_figures import wrong_gain
from tests.milp.windows import rows_of, standing_still, whole_problem, windows


def ticking(by_s: float) -> Callable[[], float]:
    """A clock that goes on by so much each time it is looked at."""
    ticks: Iterator[int] = count()
    return lambda: by_s * next(ticks)


@settings(deadline=None)
@given(windows(), st.sampled_from([0.0, 0.01, 0.3]))
def test_an_answer_breaks_no_constraint_gains_what_it_says_and_no_more_than_its_bound(
    window: Window, by_s: float
) -> None:
    answer = answer_window(window, limit_s=1.0, clock=ticking(by_s))

    plan = answer.holdings
    assert answer.outcome is not Outcome.KEPT
    assert constraint_violations(whole_problem(window), rows_of(window, plan)) == ()
    assert wrong_gain(window, plan, answer.gain) == ""
    assert answer.kept_gain <= answer.gain <= answer.bound
    assert answer.gap >= 0.0


@settings(deadline=None)
@given(windows())
def test_an_answer_is_no_worse_than_the_plan_of_a_replay(window: Window) -> None:
    fast = WindowPlanner().plan(window)

    answer = answer_window(window, limit_s=1.0, clock=standing_still)

    assert answer.gain >= fast.gain - 1e-9 * (1.0 + abs(fast.gain))


def test_a_deadline_is_shared_out_of_what_is_left() -> None:
    deadline = Deadline(10.0, ticking(1.0))

    assert deadline.share(0.5).end_s == pytest.approx(5.0)
    assert deadline.left_s() == pytest.approx(9.0)
    assert not deadline.passed()


def test_without_trainers_or_nodes_the_answer_is_proven() -> None:
    window = Window({}, {}, (), 0.5, 1.0)

    answer = answer_window(window, limit_s=1.0, clock=standing_still)

    assert answer.outcome is Outcome.PROVEN
    assert answer.gap == 0.0
    assert total_gain(window, answer.holdings) == 0.0
