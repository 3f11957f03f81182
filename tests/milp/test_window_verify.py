import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from milp.problem import constraint_violations, custom
from milp.window import Holding, Window, WindowClass, WindowTrainer, violations
from tests.milp.windows import rows_of, whole_problem, windows

STAY = WindowClass(4, 400.0, 0.0, 1.0)
CURVE = custom([0.0, 10.0, 18.0, 24.0, 28.0], (2, 3, 4))
# It holds two nodes of class 0, of which two are free; of class 1 four are.
TRAINER = WindowTrainer(CURVE, {0: 2}, 18.0, 12.0, 0.0, 12.0)
OTHER = WindowTrainer(CURVE, {}, 18.0, 12.0, 0.0, 12.0)
WINDOW = Window({0: STAY, 1: STAY}, {0: 2, 1: 4}, (TRAINER, OTHER), 0.5, 1.0)


def refused_for(*plan: Holding) -> set[str]:
    """Return which constraints are said to be broken."""
    return {one[:2] for one in violations(WINDOW, plan, claimed=1.0, least=0.0)}


@pytest.mark.parametrize(
    "plan",
    [
        ({0: 2}, {}),
        ({0: 4}, {1: 4}),
        ({0: 2, 1: 2}, {0: 2, 1: 2}),
        ({}, {0: 4}),
        ({0: 2, 1: 0}, {}),
    ],
)
def test_a_plan_that_breaks_no_constraint_is_sound(
    plan: tuple[Holding, Holding],
) -> None:
    assert refused_for(*plan) == set()


@pytest.mark.parametrize(
    ("plan", "broken"),
    [
        (({0: 3, 1: -1}, {}), {"M1", "M4"}),
        (({0: 2}, {1: 2.0}), {"M1"}),
        (({0: 2}, {1: True, 0: 1}), {"M1"}),
        (({0: 2}, {1: 1}), {"M2"}),
        (({0: 1}, {}), {"M2"}),
        (({0: 2, 1: 3}, {}), {"M2"}),
        (({0: 3}, {0: 2}), {"M3"}),
        (({0: 2, 1: 2}, {1: 3}), {"M3"}),
        (({1: 2}, {}), {"M4"}),
        (({1: 3}, {}), {"M4"}),
        (({0: 1, 1: 1}, {}), {"M4"}),
    ],
)
def test_a_plan_that_breaks_a_constraint_is_refused_for_it(
    plan: tuple[Holding, Holding], broken: set[str]
) -> None:
    assert refused_for(*plan) == broken


def test_who_gives_some_nodes_up_may_take_no_others() -> None:
    trainer = WindowTrainer(CURVE, {0: 3}, 18.0, 12.0, 0.0, 12.0)
    window = Window({0: STAY, 1: STAY}, {0: 1, 1: 4}, (trainer,), 0.5, 1.0)

    [broken] = violations(window, ({0: 1, 1: 1},), claimed=1.0, least=0.0)

    assert broken == "M4: trainer 0: 3 to 2 nodes, but more of class 1"


@given(windows(), st.data())
def test_a_plan_is_refused_for_what_the_published_verifier_refuses_it_for(
    window: Window, data: st.DataObject
) -> None:
    plan = [
        data.draw(st.just(one.held) | anything(window), label=f"trainer {place}")
        for place, one in enumerate(window.trainers)
    ]
    # Who keeps what is no size is not looked at: the search lets it fall back first.
    for one, new in zip(window.trainers, plan, strict=True):
        assume(new != one.held or sum(new.values()) in {0, *one.curve.sizes})

    broken = violations(window, plan, claimed=1.0, least=0.0)

    theirs = constraint_violations(whole_problem(window), rows_of(window, plan))
    assert {one[:2] for one in broken} == {one[:2] for one in theirs}


def anything(window: Window) -> st.SearchStrategy[dict[int, int]]:
    counts = {k: st.integers(0, stay.nodes) for k, stay in window.classes.items()}
    return st.fixed_dictionaries({}, optional=counts)
