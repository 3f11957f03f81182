"""The quick search: in the end no move is a gain, and what is alike is tried once."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from milp.problem import custom
from milp.window import (
    AlikeClasses,
    Holding,
    Window,
    WindowClass,
    WindowTrainer,
    gain,
    total_gain,
    violations,
)
from milp.window_search import (
    HillClimb,
    PlanState,
    TermCache,
    WindowPlanner,
    WindowTerms,
)
from tests.milp.planning_problems import draw_start, faults, windows


def holder(worth: list[float], held: dict[int, int] | None = None) -> WindowTrainer:
    return WindowTrainer(custom(worth), held or {}, 0.0, 0.0, 0.0, 0.0)


def state_of(window: Window) -> PlanState:
    return PlanState(WindowTerms(window, TermCache()))


def searched(state: PlanState) -> list[Holding]:
    HillClimb(state).run()
    return [holding.mine for holding in state.holdings]


@given(windows(), st.data())
def test_in_the_end_no_move_is_a_gain(window: Window, data: st.DataObject) -> None:
    assert_no_gain_left(window, draw_start(data, window))


@pytest.mark.parametrize("seed", range(40))
def test_in_the_end_of_many_transfers_none_is_left(seed: int) -> None:
    draw = np.random.default_rng(seed)
    classes = {
        k: WindowClass(
            int(draw.integers(1, 5)), draw.uniform(50.0, 400.0), draw.random(), 1.0
        )
        for k in range(12)
    }
    trainers = [
        WindowTrainer(custom([0.0, *sorted(worth)]), {}, 0.0, 0.0, 0.0, loss_s)
        for *worth, loss_s in draw.uniform(0.0, [9.0] * 9 + [90.0], (8, 10)).tolist()
    ]
    free = {k: own.nodes for k, own in classes.items()}
    window = Window(classes, free, tuple(trainers), 1.0, 1.0)

    each = sum(free.values()) // len(trainers)
    assert_no_gain_left(window, [each] * len(trainers))


def assert_no_gain_left(window: Window, start: list[int]) -> None:
    state = state_of(window)
    state.settle()
    state.resize(start)

    plan = searched(state)

    gained = total_gain(window, plan)
    magnitude = sum(abs(gain(window, j, own)) for j, own in enumerate(plan))
    for changes in moves(window, plan, state.free):
        other = list(plan)
        for place, k, more in changes:
            other[place] = changed(other[place], k, more)
        if not faults(window, other):
            assert total_gain(window, other) <= gained + 1e-6 * (1.0 + magnitude)


def moves(
    window: Window, plan: list[Holding], free: Holding
) -> Iterator[list[tuple[int, int, int]]]:
    """Yield changes by trainer, class and nodes: takes, releases and transfers."""

    def room(place: int, k: int) -> int:
        one, own = window.trainers[place], plan[place]
        if any(own.get(other, 0) < n for other, n in one.held.items()):
            # A trainer that gave nodes takes back those it held, and no more.
            return one.held.get(k, 0) - own.get(k, 0)
        return one.curve.sizes[-1] - sum(own.values())

    for place, own in enumerate(plan):
        held = window.trainers[place].held
        takes = any(n > held.get(k, 0) for k, n in own.items())
        yield from ([(place, k, min(n, room(place, k)))] for k, n in free.items())
        for k, n in own.items():
            spare = n - held.get(k, 0)
            if spare > 0 or not takes:
                yield [(place, k, -spare if takes else -n)]
            for to in range(len(plan)):
                taken = min(spare, room(to, k))
                if to != place and taken > 0:
                    yield [(place, k, -spare), (to, k, taken)]


def changed(own: Holding, k: int, more: int) -> Holding:
    counts = {**own, k: own.get(k, 0) + more}
    return {k: n for k, n in counts.items() if n}


def test_of_classes_that_are_alike_one_is_offered_and_any_other_class_too() -> None:
    alike = WindowClass(2, 100.0, 0.5, 1.0)
    classes = dict.fromkeys(range(6), alike) | {
        3: alike._replace(nodes=3),  # one of them is held
        4: alike._replace(life_s=90.0),
    }
    trainers = holder([0.0, 1.0, 2.0, 3.0, 4.0], {3: 1}), holder([0.0, 1.0, 2.0])
    state = state_of(Window(classes, dict.fromkeys(range(6), 2), trainers, 1.0, 1.0))

    assert state.offers() == {0: 2, 3: 2, 4: 2}
    state.move(1, 0, 1)
    assert state.offers() == {0: 1, 1: 2, 3: 2, 4: 2}
    for holding in state.holdings:
        assert holding.best_take(state.offers()) == holding.best_take(state.free)
    state.move(1, 0, 1)
    state.move(1, 0, -2)
    assert list(state.offers()) == [1, 3, 4]  # a class that comes back is the last


@given(windows(), st.data())
def test_the_first_of_those_alike_is_offered_after_any_moves(
    window: Window, data: st.DataObject
) -> None:
    state = state_of(window)
    for _ in range(data.draw(st.integers(0, 6)) if window.trainers else 0):
        place = data.draw(st.integers(0, len(state.holdings) - 1))
        moves = [*state.free.items()]
        moves += [(k, -n) for k, n in state.holdings[place].mine.items()]
        if moves:
            k, most = data.draw(st.sampled_from(moves))
            state.move(place, k, data.draw(st.sampled_from((most, most // 2 or most))))

        first: dict[object, int] = {}
        for k, nodes in state.free.items():
            is_whole = nodes == window.classes[k].nodes == window.free.get(k)
            is_alike = is_whole and all(
                k not in one.new_hit_share for one in window.trainers
            )
            first.setdefault(window.classes[k] if is_alike else k, k)
        offered = list(state.offers().items())
        assert offered == [(k, state.free[k]) for k in first.values()]
        for holding in state.holdings:
            gained, _, nodes = holding.best_take(state.offers())
            assert gained == pytest.approx(holding.best_take(state.free)[0])
            assert state.may_take(holding) or not nodes


@st.composite
def windows_of_many(draw: DrawFn) -> Window:
    """Windows of which most classes are alike, and not named."""
    kinds = draw(st.integers(1, 3))
    expected = [
        WindowClass(
            draw(st.integers(1, 3)),
            draw(st.floats(50.0, 400.0)),
            draw(st.floats(0.0, 1.0)),
            draw(st.sampled_from([0.3, 1.0])),
        )
        for _ in range(kinds)
    ]
    kind_of = draw(st.lists(st.integers(0, kinds - 1), min_size=1, max_size=24))
    left = {k: expected[kind].nodes for k, kind in enumerate(kind_of)}
    trainers = []
    for _ in range(draw(st.integers(1, 4))):
        held: dict[int, int] = {}
        for k in draw(st.sets(st.sampled_from(range(len(kind_of))), max_size=4)):
            nodes = draw(st.integers(0, left[k]))
            left[k] -= nodes
            held |= {k: nodes} if nodes else {}
        most = draw(st.integers(max(1, sum(held.values())), 16))
        worth = sorted(
            draw(st.lists(st.floats(0.0, 9.0), min_size=most, max_size=most))
        )
        cost_s = draw(st.sampled_from([0.0, 5.0, 60.0]))
        trainers.append(
            WindowTrainer(custom([0.0, *worth]), held, cost_s, cost_s, cost_s, cost_s)
        )
    named = {k for trainer in trainers for k in trainer.held}
    alike = [
        AlikeClasses(expected[kind], numbers, total)
        for kind in range(kinds)
        if (numbers := [k for k, own in enumerate(kind_of) if own == kind])
        and (total := len(set(numbers) - named))
    ]
    return Window(
        classes={k: expected[kind_of[k]] for k in sorted(named)},
        free={k: left[k] for k in sorted(named) if left[k]},
        trainers=tuple(trainers),
        hit_weight=draw(st.sampled_from([0.0, 1.0])),
        change_weight=draw(st.sampled_from([1.0, 1.3])),
        alike=alike,
        order=kind_of.__getitem__ if draw(st.booleans()) else int,
    )


@given(windows_of_many(), st.data())
def test_classes_that_are_alike_are_planned_as_if_each_was_named(
    window: Window, data: st.DataObject
) -> None:
    named = window.with_all_named()
    room = named.free_nodes + sum(sum(own.held.values()) for own in named.trainers)
    start = []
    for trainer in named.trainers:
        start.append(data.draw(st.integers(0, min(room, trainer.curve.sizes[-1]))))
        room -= start[-1]

    plan = WindowPlanner().plan(window, (start,))

    assert plan == WindowPlanner().plan(named, (start,))
    assert faults(named, plan.holdings, plan.gain) == ()
    assert window.free_nodes == named.free_nodes
    for k in range(24):
        assert window.free_of(k) == named.free_of(k) == named.free.get(k, 0)


def test_a_window_is_kept_as_it_was_though_its_alike_classes_leave() -> None:
    numbers = [0, 1, 2]
    alike = AlikeClasses(WindowClass(1, 100.0, 0.5, 1.0), numbers, 3)
    kept = Window({}, {}, (), 1.0, 1.0, [alike]).to_keep()

    numbers.clear()

    assert kept.with_all_named().free == {0: 1, 1: 1, 2: 1}


def test_more_nodes_than_an_alike_class_has_are_refused() -> None:
    alike = AlikeClasses(WindowClass(2, 100.0, 0.5, 1.0), [3, 4], 2)
    taker = holder([0.0, 1.0, 2.0, 3.0])
    window = Window({}, {}, (taker,), 1.0, 1.0, [alike])

    assert violations(window, [{3: 2, 4: 1}], claimed=1.0, least=0.0) == ()
    for wrong in ({3: 3}, {5: 1}):
        (why,) = violations(window, [wrong], claimed=1.0, least=0.0)
        assert why.startswith("M3")


@pytest.mark.parametrize(
    ("others", "loss_s"),
    [
        ([WindowClass(1, 400.0, 1.0, 1.0), WindowClass(1, 50.0, 0.0, 1.0)], 0.0),
        ([WindowClass(1, 400.0, 1.0, 1.0), WindowClass(1, 390.0, 0.0, 1.0)], 300.0),
    ],
)
def test_a_class_is_taken_though_another_of_its_size_gains_nothing(
    others: list[WindowClass], loss_s: float
) -> None:
    classes = dict(enumerate([WindowClass(1, 300.0, 0.0, 1.0), *others]))
    taker = WindowTrainer(custom([0.0, 10.0, 20.0]), {0: 1}, 100.0, 0.0, 0.0, loss_s)

    plan = WindowPlanner().plan(Window(classes, {1: 1, 2: 1}, (taker,), 1.0, 1.0))

    assert plan.holdings == ({0: 1, (2 if loss_s else 1): 1},)
