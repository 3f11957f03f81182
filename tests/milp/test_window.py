import math
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milp.problem import constraint_violations, custom
from milp.window import (
    Holding,
    Window,
    WindowClass,
    WindowTrainer,
    gain,
    total_gain,
    violations,
)
from milp.window_search import (
    PlanState,
    TermCache,
    TrainerTerms,
    WindowPlanner,
    WindowTerms,
)
from tests.milp.windows import rows_of, whole_problem, windows, wrong_gain

FOR_EVER = WindowClass(nodes=4, life_s=400.0, hit=0.0, share=1.0)
WEIGHTS = st.sampled_from([0.0, 0.25, 1.0, 1.3])


def holder(
    held: Holding, *, fresh: dict[int, float] | None = None, **costs: float
) -> WindowTrainer:
    seconds = {"up_s": 18.0, "down_s": 12.0, "start_s": 0.0, "loss_s": 12.0} | costs
    curve = custom([0.0, 10.0, 18.0, 24.0, 28.0])
    return WindowTrainer(curve, held, **seconds, new_hit_share=fresh or {})


def window_of(
    stays: dict[int, WindowClass], free: dict[int, int], *trainers: WindowTrainer
) -> Window:
    return Window(stays, free, trainers, hit_weight=0.5, change_weight=1.0)


@given(windows())
def test_a_plan_breaks_no_constraint_and_gains_what_it_claims(window: Window) -> None:
    plan = WindowPlanner().plan(window)

    assert plan.refused == ()
    assert (
        constraint_violations(whole_problem(window), rows_of(window, plan.holdings))
        == ()
    )
    assert wrong_gain(window, plan.holdings, plan.gain) == ""


@given(windows())
def test_a_plan_gains_no_less_than_keeping_what_is_held(window: Window) -> None:
    plan = WindowPlanner().plan(window)

    assert plan.gain >= plan.kept_gain
    kept = [one.held for one in window.trainers]
    sizes = [sum(held.values()) for held in kept]
    usable = [{0, *one.curve.sizes} for one in window.trainers]
    if all(n in sizes_ for n, sizes_ in zip(sizes, usable, strict=True)):
        assert plan.kept_gain == pytest.approx(total_gain(window, kept))


@given(windows(), st.data())
def test_a_plan_gains_no_less_than_any_start_it_is_given(
    window: Window, data: st.DataObject
) -> None:
    pool, start = sum(stay.nodes for stay in window.classes.values()), []
    for one in window.trainers:
        fitting = [n for n in (0, *one.curve.sizes) if n <= pool]
        start.append(data.draw(st.sampled_from(fitting)))
        pool -= start[-1]
    table = PlanState(window, WindowTerms(window, TermCache()))
    table.resize(start)

    plan = WindowPlanner().plan(window, (start,))

    assert plan.refused == ()
    assert plan.gain >= table.value
    assert [holding.nodes for holding in table.holdings] == start
    assert (
        constraint_violations(whole_problem(window), rows_of(window, plan.holdings))
        == ()
    )


@given(windows(), st.sampled_from([-1, 1_000]))
def test_a_start_that_does_not_fit_the_pool_is_left_out(
    window: Window, count: int
) -> None:
    start = [count for _ in window.trainers]

    plan = WindowPlanner().plan(window, (start,))

    assert plan == WindowPlanner().plan(window)


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


@given(windows())
def test_the_same_window_has_the_same_plan(window: Window) -> None:
    assert WindowPlanner().plan(window) == WindowPlanner().plan(window)


@given(windows(), st.sampled_from([0.5, 1.0, 2.0]), st.integers(0, 5))
def test_what_is_kept_from_one_window_says_nothing_false_of_the_next(
    window: Window, factor: float, first: int
) -> None:
    stays = {
        k: one._replace(life_s=factor * one.life_s, hit=one.hit / (1.0 + factor))
        for k, one in window.classes.items()
    }
    others = window.trainers[first:] + window.trainers[:first]
    later = replace(
        window,
        classes=stays,
        trainers=others,
        change_weight=window.change_weight * factor,
    )
    planner = WindowPlanner()
    planner.plan(window)

    assert planner.plan(later) == WindowPlanner().plan(later)


def test_a_class_that_leaves_together_is_one_hit_however_many_nodes_it_has() -> None:
    stay = WindowClass(nodes=3, life_s=100.0, hit=0.6, share=1.0)

    assert stay.hits() == pytest.approx([0.0, 0.6, 0.6, 0.6])


def test_of_nodes_that_leave_one_by_one_few_are_hit_less_than_all() -> None:
    stay = WindowClass(nodes=2, life_s=100.0, hit=0.6, share=0.5)

    assert stay.hits() == pytest.approx([0.0, 0.6 * 0.5 / 0.75, 0.6])


def test_nodes_that_go_on_where_others_end_are_hit_as_one_cluster() -> None:
    whole = WindowClass(nodes=4, life_s=300.0, hit=0.6, share=0.25)
    part = whole._replace(nodes=2, hit=whole.hits()[2])
    own = holder({0: 2}, fresh={1: 0.75**2})

    split = window_of({0: part, 1: part}, {1: 2}, own)
    one = window_of({0: whole}, {0: 2}, holder({0: 2}))

    assert gain(split, 0, {0: 2}) == pytest.approx(gain(one, 0, {0: 2}))
    assert gain(split, 0, {0: 2, 1: 2}) == pytest.approx(gain(one, 0, {0: 4}))


def test_who_waits_and_for_whom_other_hits_count_is_not_taken_for_its_like() -> None:
    stays = dict.fromkeys(
        (0, 1), WindowClass(nodes=4, life_s=300.0, hit=1.0, share=1.0)
    )
    waiting = holder({}, loss_s=400.0)
    window = window_of(
        stays, {0: 4, 1: 4}, waiting, replace(waiting, new_hit_share={1: 0.0})
    )

    assert WindowPlanner().plan(window).holdings == ({0: 4}, {1: 4})
    assert set(WindowTerms(window, TermCache()).untouched) == {0}


@given(windows())
def test_hits_from_shares_seen_before_are_the_same_to_the_last_digit(
    window: Window,
) -> None:
    worths = TermCache()

    for expected in (
        worths.class_terms(window.classes),
        worths.class_terms(window.classes),
    ):
        for k, (life_s, hit, whole, gone) in expected.items():
            assert life_s == window.classes[k].life_s
            assert [hit * one / whole for one in gone] == window.classes[k].hits()


@given(windows(), st.lists(st.tuples(WEIGHTS, WEIGHTS), max_size=3))
def test_terms_kept_from_other_windows_are_those_that_would_be_made_anew(
    window: Window, weights: list[tuple[float, float]]
) -> None:
    worths = TermCache()
    for hit, change in [*weights, *weights[:1]]:
        weighed = replace(window, hit_weight=hit, change_weight=change)
        kept, fresh = worths.terms(weighed), TermCache().terms(weighed)

        assert [seen(terms) for terms in kept] == [seen(terms) for terms in fresh]


def seen(terms: TrainerTerms) -> list[object]:
    names = ("held", "before", "worth", "most", "up", "down", "start_s", "loss_s")
    return [getattr(terms, name) for name in names]


def test_the_gain_is_work_over_lives_less_losses_and_changes() -> None:
    stays = {0: WindowClass(2, 300.0, 0.2, 1.0), 1: WindowClass(1, 60.0, 0.5, 1.0)}
    window = window_of(stays, {1: 1}, holder({0: 2}))

    by_hand = 24.0 * ((2 * 300 + 60) / 3 - 0.5 * 12 * (0.2 + 0.5)) - 18.0 * 18.0
    assert gain(window, 0, {0: 2, 1: 1}) == pytest.approx(by_hand)


def test_starting_costs_seconds_of_the_new_worth() -> None:
    window = window_of({0: FOR_EVER}, {0: 4}, holder({}, start_s=40.0))

    assert gain(window, 0, {0: 4}) == pytest.approx(28.0 * (400.0 - 40.0))


def test_nodes_that_are_likely_to_leave_are_left_alone_where_a_loss_costs_much() -> (
    None
):
    young = WindowClass(nodes=2, life_s=200.0, hit=0.9, share=1.0)
    for cost_s, taken in ((1.0, 2), (300.0, 0)):
        trainer = holder({0: 2}, up_s=0.0, loss_s=cost_s)
        window = window_of(
            {0: WindowClass(2, 400.0, 0, 1.0), 1: young}, {1: 2}, trainer
        )

        plan = WindowPlanner().plan(window)

        assert plan.holdings[0].get(1, 0) == taken


def test_clusters_stay_whole_where_that_loses_less() -> None:
    stays = {k: WindowClass(2, 300.0, 0.5, 1.0) for k in (0, 1)}
    window = window_of(stays, {0: 2, 1: 2}, holder({}), holder({}))

    plan = WindowPlanner().plan(window, ((2, 2),))

    assert sorted(plan.holdings, key=str) == [{0: 2}, {1: 2}]


def test_a_change_that_gains_less_than_its_weight_is_not_made() -> None:
    stays = {0: WindowClass(1, 400.0, 0.0, 1.0), 1: WindowClass(1, 100.0, 0.0, 1.0)}
    for weight, nodes in ((49.0, 2), (51.0, 1)):
        trainer = holder({0: 1}, up_s=1.0)
        window = Window(stays, {1: 1}, (trainer,), 0.0, weight)

        plan = WindowPlanner().plan(window)

        # 18 (400 + 100) / 2 is 500 more than 10 * 400, which is 50 times the cost.
        assert sum(plan.holdings[0].values()) == nodes


def test_a_plan_that_gives_a_node_twice_is_refused() -> None:
    window = window_of({0: FOR_EVER}, {0: 4}, holder({}), holder({}))

    broken = violations(window, ({0: 3}, {0: 2}), claimed=1e9, least=0.0)

    assert len(broken) == 1
    assert broken[0].startswith("M3")


def test_a_plan_that_migrates_is_refused() -> None:
    stays = {0: FOR_EVER, 1: FOR_EVER}
    window = window_of(stays, {0: 2, 1: 4}, holder({0: 2}))

    broken = violations(window, ({1: 2},), claimed=1e9, least=0.0)

    assert broken
    assert all(one.startswith("M4") for one in broken)


def test_a_plan_that_is_worse_than_keeping_is_refused() -> None:
    window = window_of({0: FOR_EVER}, {0: 2}, holder({0: 2}))

    assert violations(window, ({0: 2},), claimed=1.0, least=2.0)


def test_a_claimed_gain_that_is_wrong_is_told() -> None:
    window = window_of({0: FOR_EVER}, {0: 2}, holder({0: 2}))

    right = total_gain(window, ({0: 2},))

    assert wrong_gain(window, ({0: 2},), right) == ""
    assert wrong_gain(window, ({0: 2},), right + 1.0)
    assert not math.isclose(right, 0.0)
