"""Windows: the objective, the checks and the bound, and the quick search's front."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from milp.problem import constraint_violations, custom
from milp.window import (
    BoundedClasses,
    Holding,
    Window,
    WindowClass,
    WindowTrainer,
    bound,
    first_bound,
    gain,
    size_rows,
    tighten,
    total_gain,
    violations,
    window_gap,
)
from milp.window_search import PlanState, TermCache, WindowPlanner, WindowTerms
from tests.milp.planning_problems import draw_start, faults, whole_problem, windows

FOR_EVER = WindowClass(nodes=4, life_s=400.0, hit=0.0, share=1.0)
WORTH = [0.0, 10.0, 18.0, 24.0, 28.0]


def holder(
    held: Holding,
    *,
    sizes: tuple[int, ...] | None = None,
    fresh: dict[int, float] | None = None,
    **costs: float,
) -> WindowTrainer:
    seconds = {"up_s": 18.0, "down_s": 12.0, "start_s": 0.0, "loss_s": 12.0} | costs
    curve = custom(WORTH, sizes)
    return WindowTrainer(curve, held, **seconds, new_hit_share=fresh or {})


def window_of(
    classes: dict[int, WindowClass], free: dict[int, int], *trainers: WindowTrainer
) -> Window:
    return Window(classes, free, trainers, hit_weight=0.5, change_weight=1.0)


# The objective.


@pytest.mark.parametrize(
    ("nodes", "share", "hits"),
    [
        (3, 1.0, [0.0, 0.6, 0.6, 0.6]),
        (2, 0.5, [0.0, 0.6 * 0.5 / 0.75, 0.6]),
    ],
    ids=["nodes that leave together are hit once", "few are hit less than all"],
)
def test_hits_grow_with_the_nodes_as_far_as_they_leave_one_by_one(
    nodes: int, share: float, hits: list[float]
) -> None:
    assert WindowClass(nodes, 100.0, 0.6, share).hits() == pytest.approx(hits)


def test_nodes_that_go_on_where_others_end_are_hit_as_one_cluster() -> None:
    whole = WindowClass(nodes=4, life_s=300.0, hit=0.6, share=0.25)
    part = whole._replace(nodes=2, hit=whole.hits()[2])

    split = window_of({0: part, 1: part}, {1: 2}, holder({0: 2}, fresh={1: 0.75**2}))
    one = window_of({0: whole}, {0: 2}, holder({0: 2}))

    assert gain(split, 0, {0: 2}) == pytest.approx(gain(one, 0, {0: 2}))
    assert gain(split, 0, {0: 2, 1: 2}) == pytest.approx(gain(one, 0, {0: 4}))


def test_the_gain_is_work_over_lives_less_losses_changes_and_the_start() -> None:
    classes = {0: WindowClass(2, 300.0, 0.2, 1.0), 1: WindowClass(1, 60.0, 0.5, 1.0)}
    grows = window_of(classes, {1: 1}, holder({0: 2}))
    starts = window_of({0: FOR_EVER}, {0: 4}, holder({}, start_s=40.0))

    by_hand = 24.0 * ((2 * 300 + 60) / 3 - 0.5 * 12 * (0.2 + 0.5)) - 18.0 * 18.0
    assert gain(grows, 0, {0: 2, 1: 1}) == pytest.approx(by_hand)
    assert gain(starts, 0, {0: 4}) == pytest.approx(28.0 * (400.0 - 40.0))


# The checks. The first trainer holds two nodes of class 0, of which two are free; of
# class 1 four are.

SIZES = (2, 3, 4)
CHECKED = window_of(
    {0: FOR_EVER, 1: FOR_EVER},
    {0: 2, 1: 4},
    holder({0: 2}, sizes=SIZES),
    holder({}, sizes=SIZES),
)


@pytest.mark.parametrize(
    ("plan", "broken"),
    [
        (({0: 2}, {}), set()),
        (({0: 4}, {1: 4}), set()),
        (({0: 2, 1: 2}, {0: 2, 1: 2}), set()),
        (({}, {0: 4}), set()),
        (({0: 2, 1: 0}, {}), set()),
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
def test_a_plan_is_refused_for_each_constraint_that_it_breaks(
    plan: tuple[Holding, Holding], broken: set[str]
) -> None:
    found = violations(CHECKED, plan, claimed=1.0, least=0.0)

    assert {fault[:2] for fault in found} == broken


def test_a_trainer_that_gives_nodes_up_may_take_no_others() -> None:
    window = replace(CHECKED, trainers=(holder({0: 3}, sizes=SIZES),))

    [broken] = violations(window, ({0: 1, 1: 1},), claimed=1.0, least=0.0)

    assert broken == "M4: trainer 0: 3 to 2 nodes, but more of class 1"


def test_a_plan_that_is_worse_than_keeping_is_refused() -> None:
    assert violations(CHECKED, ({0: 2}, {}), claimed=1.0, least=2.0)


@given(windows(), st.data())
def test_a_plan_is_refused_for_the_same_as_by_the_published_verifier(
    window: Window, data: st.DataObject
) -> None:
    counts = {k: st.integers(0, own.nodes) for k, own in window.classes.items()}
    anything = st.fixed_dictionaries({}, optional=counts)
    plan = [data.draw(st.just(one.held) | anything) for one in window.trainers]
    # A trainer that keeps a count that is no size is not looked at: the search lets it
    # fall back first.
    for one, new in zip(window.trainers, plan, strict=True):
        assume(new != one.held or sum(new.values()) in {0, *one.curve.sizes})

    broken = violations(window, plan, claimed=1.0, least=0.0)

    assert {one[:2] for one in broken} == {one[:2] for one in faults(window, plan)}


# The bound.


def tolerance(gained: float) -> float:
    return 1e-6 * (1 + abs(gained))


@given(windows())
def test_no_plan_gains_more_than_the_bound(window: Window) -> None:
    gained = WindowPlanner().plan(window).gain

    assert gained <= bound(window, gained) + tolerance(gained)


@given(windows(most_classes=2, most_trainers=2))
def test_no_plan_at_all_gains_more_than_the_bound(window: Window) -> None:
    best = max(total_gain(window, plan) for plan in sound_plans(window))

    assert best <= bound(window, best) + tolerance(best)


def sound_plans(window: Window) -> Iterator[tuple[Holding, ...]]:
    """Yield all plans that break no constraint."""
    problem = whole_problem(window)
    nodes = [own.nodes for own in window.classes.values()]
    own = [
        [
            row
            for row in itertools.product(*(range(n + 1) for n in nodes))
            if sum(row) in {0, *one.curve.sizes}
        ]
        for one in window.trainers
    ]
    for rows in itertools.product(*own):
        if not constraint_violations(problem, rows):
            yield tuple(
                {k: n for k, n in zip(window.classes, row, strict=True) if n}
                for row in rows
            )


@given(windows(most_classes=3, most_trainers=2, least_worth=0.0), st.integers(1, 3))
def test_no_plan_gains_more_than_the_bound_of_merged_classes(
    window: Window, most: int
) -> None:
    assume(window.trainers)
    pool = BoundedClasses.of(window)
    rows = size_rows(window, pool.merged(most))
    best = WindowPlanner().plan(window).gain

    dual = tighten(rows, first_bound(rows), reached=best, steps=20)

    assert len(rows.pool.nodes) <= most
    assert rows.pool.nodes.sum() == pool.nodes.sum()
    assert best <= dual.value + tolerance(best)


def test_the_bound_of_one_trainer_and_one_class_is_its_gain() -> None:
    trainer = WindowTrainer(custom([0.0, 10.0, 18.0]), {0: 2}, 18.0, 12.0, 0.0, 12.0)
    window = window_of({0: WindowClass(2, 300.0, 0.5, 1.0)}, {}, trainer)

    gained = 18.0 * (300.0 - 0.5 * 12.0 * 0.5)
    assert bound(window, gained) == pytest.approx(gained)
    assert window_gap(window, gained) == pytest.approx(0.0, abs=1e-12)
    assert window_gap(window, 0.75 * gained) == pytest.approx(0.25)
    assert bound(window_of({}, {}), 0.0) == 0.0


# The quick search.


@given(windows(), st.data())
def test_a_plan_is_sound_and_no_worse_than_the_present_one_and_any_start(
    window: Window, data: st.DataObject
) -> None:
    start = draw_start(data, window)
    state = PlanState(WindowTerms(window, TermCache()))
    state.resize(start)
    assert [holding.nodes for holding in state.holdings] == start

    for plan in (WindowPlanner().plan(window), WindowPlanner().plan(window, (start,))):
        assert plan.refused == ()
        assert faults(window, plan.holdings, plan.gain) == ()
        assert faults(window, plan.kept, plan.kept_gain) == ()
        assert plan.gain >= plan.kept_gain
    assert plan.gain >= state.value
    kept = [one.held for one in window.trainers]
    if not faults(window, kept):
        assert list(plan.kept) == kept


@given(windows(), st.sampled_from([-1, 1_000]))
def test_a_start_that_does_not_fit_the_pool_is_left_out(
    window: Window, count: int
) -> None:
    start = [count for _ in window.trainers]

    assert WindowPlanner().plan(window, (start,)) == WindowPlanner().plan(window)


def test_a_start_that_the_search_came_to_is_not_searched_again() -> None:
    window = window_of({0: FOR_EVER}, {0: 4}, holder({}))
    plan, asked = WindowPlanner().plan(window), [0, 0, 0]

    def goes_on(place: int) -> bool:
        asked[place] += 1
        return False

    assert plan.holdings == ({0: 4},)
    for place, starts in enumerate(((), ((4,),), ((2,),))):
        stop = partial(goes_on, place)
        assert WindowPlanner().plan(window, starts, stop=stop) == plan
    assert asked[0] == asked[1] < asked[2]


@given(windows(), st.sampled_from([0.5, 1.0, 2.0]), st.integers(0, 5))
def test_a_plan_does_not_depend_on_windows_planned_before(
    window: Window, factor: float, first: int
) -> None:
    later = replace(
        window,
        classes={
            k: own._replace(life_s=factor * own.life_s, hit=own.hit / (1.0 + factor))
            for k, own in window.classes.items()
        },
        trainers=window.trainers[first:] + window.trainers[:first],
        hit_weight=window.hit_weight * factor,
        change_weight=window.change_weight * factor,
    )
    planner = WindowPlanner()
    planner.plan(window)

    assert planner.plan(later) == WindowPlanner().plan(later)


def test_a_waiting_trainer_to_which_other_hits_are_new_is_not_taken_for_its_like() -> (
    None
):
    classes = dict.fromkeys((0, 1), WindowClass(4, life_s=300.0, hit=1.0, share=1.0))
    waiting = holder({}, loss_s=400.0)
    window = window_of(
        classes, {0: 4, 1: 4}, waiting, replace(waiting, new_hit_share={1: 0.0})
    )

    assert WindowPlanner().plan(window).holdings == ({0: 4}, {1: 4})
    assert set(WindowTerms(window, TermCache()).untouched) == {0}


@pytest.mark.parametrize(("weight", "nodes"), [(49.0, 2), (51.0, 1)])
def test_a_change_that_gains_less_than_its_weight_is_not_made(
    weight: float, nodes: int
) -> None:
    # 18 (400 + 100) / 2 is 500 more than 10 * 400, which is 50 times the cost.
    classes = {0: WindowClass(1, 400.0, 0.0, 1.0), 1: WindowClass(1, 100.0, 0.0, 1.0)}
    window = Window(classes, {1: 1}, (holder({0: 1}, up_s=1.0),), 0.0, weight)

    plan = WindowPlanner().plan(window)

    assert sum(plan.holdings[0].values()) == nodes
