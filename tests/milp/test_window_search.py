"""Each kind of move, where it is the only one that helps."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milp.problem import constraint_violations, custom
from milp.window import Holding, Window, WindowClass, WindowTrainer, gain, total_gain
from milp.window_search import HillClimb, PlanState, TermCache, WindowTerms
from tests.milp.windows import rows_of, whole_problem, windows


def holder(worth: list[float], held: dict[int, int] | None = None) -> WindowTrainer:
    return WindowTrainer(custom(worth), held or {}, 0.0, 0.0, 0.0, 0.0)


def table_of(
    nodes: dict[int, int], free: Holding, *trainers: WindowTrainer
) -> PlanState:
    """Return what is held now, of classes that stay for a hundred seconds."""
    stays = {k: WindowClass(m, 100.0, 0.0, 1.0) for k, m in nodes.items()}
    window = Window(stays, free, trainers, hit_weight=1.0, change_weight=1.0)
    return PlanState(window, WindowTerms(window, TermCache()))


def searched(table: PlanState) -> list[Holding]:
    HillClimb(table).run()
    return [holding.mine for holding in table.holdings]


def test_a_trainer_takes_what_is_free() -> None:
    table = table_of({0: 2}, {0: 2}, holder([0.0, 1.0, 2.0]))

    assert searched(table) == [{0: 2}]


def test_a_trainer_gives_what_slows_it_down() -> None:
    slower = holder([0.0, 10.0, 5.0], {0: 1, 1: 1})

    (mine,) = searched(table_of({0: 1, 1: 1}, {}, slower))

    assert sum(mine.values()) == 1


def test_what_a_start_gave_to_one_goes_to_another_who_gains_more_by_it() -> None:
    table = table_of({0: 2}, {0: 2}, holder([0.0, 1.0, 2.0]), holder([0.0, 10.0, 20.0]))
    table.resize((2, 0))

    assert searched(table) == [{}, {0: 2}]


def test_what_one_gives_is_taken_by_another_who_had_nothing_to_take_before() -> None:
    slower, waiting = holder([0.0, 10.0, 5.0], {0: 1, 1: 1}), holder([0.0, 4.0])

    given, taken = searched(table_of({0: 1, 1: 1}, {}, slower, waiting))

    assert sorted([*given, *taken]) == [0, 1]
    assert len(taken) == 1


def test_of_equal_trainers_that_wait_each_is_served() -> None:
    waiting = [holder([0.0, 1.0]) for _ in range(3)]

    plan = searched(table_of({0: 1, 1: 1, 2: 1}, {0: 1, 1: 1, 2: 1}, *waiting))

    assert sorted(k for mine in plan for k in mine) == [0, 1, 2]


@given(windows(), st.data())
def test_in_the_end_nobody_gains_more_by_what_another_one_took(
    window: Window, data: st.DataObject
) -> None:
    pool, start = sum(stay.nodes for stay in window.classes.values()), []
    for one in window.trainers:
        fitting = [n for n in (0, *one.curve.sizes) if n <= pool]
        start.append(data.draw(st.sampled_from(fitting)))
        pool -= start[-1]

    no_transfer_is_left(window, start)


@pytest.mark.parametrize("seed", range(40))
def test_in_the_end_of_many_transfers_none_is_left(seed: int) -> None:
    draw = np.random.default_rng(seed)
    stays = {
        k: WindowClass(
            int(draw.integers(1, 5)), draw.uniform(50.0, 400.0), draw.random(), 1.0
        )
        for k in range(12)
    }
    trainers = [
        WindowTrainer(custom([0.0, *sorted(worth)]), {}, 0.0, 0.0, 0.0, loss_s)
        for *worth, loss_s in draw.uniform(0.0, [9.0] * 9 + [90.0], (8, 10)).tolist()
    ]
    free = {k: stay.nodes for k, stay in stays.items()}
    window = Window(stays, free, tuple(trainers), 1.0, 1.0)

    no_transfer_is_left(window, [sum(free.values()) // len(trainers)] * len(trainers))


def no_transfer_is_left(window: Window, start: list[int]) -> None:
    """Search from *start*, and look at all transfers there are in the end."""
    table = PlanState(window, WindowTerms(window, TermCache()))
    table.settle()
    table.resize(start)

    plan = searched(table)

    gained = total_gain(window, plan)
    magnitude = sum(abs(gain(window, j, own)) for j, own in enumerate(plan))
    for other in transferred(window, plan):
        assert total_gain(window, other) <= gained + 1e-6 * (1.0 + magnitude)


def transferred(window: Window, plan: list[Holding]) -> Iterator[list[Holding]]:
    """Yield all plans in which what one took of a class is another one's."""
    problem = whole_problem(window)
    for giver, to in permutations(range(len(plan)), 2):
        held, taker = window.trainers[giver].held, window.trainers[to]
        for k, mine in plan[giver].items():
            spare = mine - held.get(k, 0)
            room = taker.curve.sizes[-1] - sum(plan[to].values())
            if any(plan[to].get(own, 0) < n for own, n in taker.held.items()):
                # Whoever gave takes back what it held, and no more.
                room = min(room, taker.held.get(k, 0) - plan[to].get(k, 0))
            taken = min(spare, room)
            if taken <= 0:
                continue
            other = list(plan)
            other[giver] = changed(plan[giver], k, -spare)
            other[to] = changed(plan[to], k, taken)
            if not constraint_violations(problem, rows_of(window, other)):
                yield other


def changed(own: Holding, k: int, more: int) -> Holding:
    counts = {**own, k: own.get(k, 0) + more}
    return {k: n for k, n in counts.items() if n}


def test_searching_one_table_leaves_another_of_the_same_window_alone() -> None:
    stays = {0: WindowClass(2, 100.0, 0.0, 1.0)}
    window = Window(stays, {0: 2}, (holder([0.0, 1.0, 2.0]),), 1.0, 1.0)
    chances = WindowTerms(window, TermCache())
    one, other = (PlanState(window, chances) for _ in range(2))

    HillClimb(one).run()

    assert one.holdings[0].mine == {0: 2}
    assert other.holdings[0].mine == {}
    assert other.free == {0: 2}


def test_of_classes_that_are_alike_one_is_offered_and_any_other_class_too() -> None:
    alike, held, shorter = (
        WindowClass(2, 100.0, 0.5, 1.0),
        WindowClass(3, 100.0, 0.5, 1.0),
        WindowClass(2, 90.0, 0.5, 1.0),
    )
    stays = {0: alike, 1: alike, 2: alike, 3: held, 4: shorter, 5: alike}
    free = {0: 2, 1: 2, 2: 2, 3: 2, 4: 2, 5: 2}
    trainers = holder([0.0, 1.0, 2.0, 3.0, 4.0], {3: 1}), holder([0.0, 1.0, 2.0])
    window = Window(stays, free, trainers, 1.0, 1.0)
    table = PlanState(window, WindowTerms(window, TermCache()))

    assert table.offers() == {0: 2, 3: 2, 4: 2}
    table.move(1, 0, 1)
    assert table.offers() == {0: 1, 1: 2, 3: 2, 4: 2}
    for holding in table.holdings:
        assert holding.best_take(table.offers()) == holding.best_take(table.free)
    table.move(1, 0, 1)
    table.move(1, 0, -2)
    assert list(table.offers()) == [1, 3, 4]  # who comes back is the last again


def test_counts_are_reached_by_whole_classes_the_largest_first_then_by_a_part() -> None:
    stays = {k: WindowClass(m, 100.0 - k, 0.0, 1.0) for k, m in enumerate((3, 2, 2, 5))}
    worth = [float(n) for n in range(9)]
    trainers = holder(worth, {1: 1}), holder(worth)
    window = Window(stays, {0: 3, 1: 1, 2: 2, 3: 5}, trainers, 1.0, 1.0)
    for counts, held in {
        (1, 3): ({1: 1}, {0: 3}),
        (1, 6): ({1: 1}, {3: 5, 1: 1}),
        (2, 6): ({1: 1, 0: 1}, {3: 5, 1: 1}),  # of what is left the longest-lived
        (4, 2): ({1: 2, 2: 2}, {0: 2}),  # its own before any other
    }.items():
        table = PlanState(window, WindowTerms(window, TermCache()))
        table.resize(counts)

        assert table.counts() == held


@given(windows(), st.data())
def test_the_first_of_those_alike_is_offered_whatever_moved(
    window: Window, data: st.DataObject
) -> None:
    table = PlanState(window, WindowTerms(window, TermCache()))
    for _ in range(data.draw(st.integers(0, 6)) if window.trainers else 0):
        place = data.draw(st.integers(0, len(table.holdings) - 1))
        mine = table.holdings[place].mine
        moves = [(k, n) for k, n in table.free.items()]
        moves += [(k, -n) for k, n in mine.items()]
        if moves:
            k, most = data.draw(st.sampled_from(moves))
            table.move(place, k, data.draw(st.sampled_from((most, most // 2 or most))))

        first: dict[object, int] = {}
        for k, nodes in table.free.items():
            is_whole = nodes == window.classes[k].nodes == window.free.get(k)
            is_alike = is_whole and all(
                k not in one.new_hit_share for one in window.trainers
            )
            first.setdefault(window.classes[k] if is_alike else k, k)
        told = table.offers()
        if len(table.free) > 3:
            assert list(told.items()) == [(k, table.free[k]) for k in first.values()]
        else:
            assert told == table.free


def test_a_search_goes_no_further_from_where_another_one_ended() -> None:
    table = table_of({0: 1, 1: 1}, {0: 1, 1: 1}, holder([0.0, 1.0, 2.0]))

    HillClimb(table).run(ended=({0: 1},))

    assert table.counts() == ({0: 1},)


@given(windows())
def test_no_gift_that_is_a_gain_is_left_out(window: Window) -> None:
    table = PlanState(window, WindowTerms(window, TermCache()))
    table.settle()

    for holding in table.holdings:
        gifts = {k for _, k, _ in holding.releases()}
        for k, mine in holding.mine.items():
            gained = holding.with_more(k, -mine) - holding.value
            assert k in gifts or gained <= 1e-6 * (1.0 + abs(holding.value))


@given(windows(), st.integers(1, 3))
def test_who_gains_by_a_class_is_the_same_whatever_was_asked_before(
    window: Window, nodes: int
) -> None:
    strangers = {k: WindowClass(nodes, 200.0, 0.5, 0.5) for k in (100, 101, 102)}
    both = replace(
        window,
        classes={**window.classes, **strangers},
        free={**window.free, **dict.fromkeys(strangers, nodes)},
    )
    asked = WindowTerms(both, TermCache())
    for k, free in both.free.items():
        for some in range(1, free + 1):
            fresh = WindowTerms(both, TermCache())
            assert asked.takers(k, some) == fresh.takers(k, some)
