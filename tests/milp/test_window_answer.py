from hypothesis import given

from milp.window import Window
from milp.window_answer import answer_window
from milp.window_planner import wrong_gain
from tests.milp.windows import windows


def standing_still() -> float:
    return 0.0


@given(windows())
def test_an_answer_gains_what_it_says_and_no_more_than_its_bound(
    window: Window,
) -> None:
    answer = answer_window(window, limit_s=1.0, clock=standing_still)

    assert wrong_gain(window, answer.holdings, answer.gain) == ""
    assert answer.kept_gain <= answer.gain <= answer.bound
    assert answer.gap >= 0.0
