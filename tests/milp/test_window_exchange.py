from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings

from milp.problem import custom
from milp.verify import constraint_violations
from milp.window import NEVER, Deadline, Window, WindowClass, WindowTrainer, gain
from milp.window_bound import Dual, Pool, first_bound, relax, size_rows, tighten
from milp.window_planner import Exchange, repair, rounded
from tests.milp.windows import present, whole_problem, windows


def loaded(window: Window) -> Exchange:
    pool = Pool.of(window)
    exchange = Exchange(window, pool)
    exchange.changes.load(pool.rows(present(window)))
    return exchange


def changes(window: Window) -> Iterator[tuple[int, int, int, int]]:
    """Yield trainer, class, column and nodes of each gift (below 0) and take."""
    column = 0
    for k, stay in sorted(window.classes.items()):
        for more in range(stay.nodes + 1):
            for place in range(len(window.trainers)):
                yield place, k, column, -more
                yield place, k, column, more
            column += 1


def faults_of(window: Window, counts: list[list[int]], place: int) -> list[str]:
    broken = constraint_violations(whole_problem(window), counts)
    return [one for one in broken if f" t{place}:" in one]


@settings(deadline=None)
@given(windows())
def test_what_the_ledger_says_of_a_change_is_what_it_brings(window: Window) -> None:
    exchange = loaded(window)
    exchange.run(NEVER)
    ledger = exchange.changes

    for place, k, column, more in changes(window):
        written = (ledger.gives if more < 0 else ledger.takes)[place, column]
        counts = ledger.counts.tolist()
        counts[place][k] += more
        own = {k: n for k, n in enumerate(counts[place]) if n}
        too_many = counts[place][k] > window.classes[k].nodes
        if too_many or faults_of(window, counts, place):
            assert written == -np.inf
        else:
            added = gain(window, place, own) - ledger.gains[place]
            assert written == pytest.approx(added, abs=1e-6)


@settings(deadline=None)
@given(windows())
def test_exchanging_never_lowers_the_gain_and_breaks_no_constraint(
    window: Window,
) -> None:
    exchange = loaded(window)
    before = exchange.changes.gain

    exchange.run(NEVER)

    counts = exchange.changes.counts.tolist()
    assert exchange.changes.gain >= before
    assert constraint_violations(whole_problem(window), counts) == ()


@settings(deadline=None)
@given(windows())
def test_what_prices_and_mending_make_breaks_no_constraint(window: Window) -> None:
    exchange = loaded(window)
    options = size_rows(window, Pool.of(window)) if window.trainers else None
    if options is None:
        return
    dual = tighten(
        options, first_bound(options), reached=exchange.changes.gain, steps=10
    )
    counts = rounded(options, dual, exchange.changes.counts)
    assert constraint_violations(whole_problem(window), counts.tolist()) == ()
    exchange.changes.load(counts)
    before = exchange.changes.gain

    repair(exchange, options, dual, rounds=5, deadline=NEVER)

    assert exchange.changes.gain >= before
    mended = exchange.changes.counts.tolist()
    assert constraint_violations(whole_problem(window), mended) == ()


@settings(deadline=None)
@given(windows())
def test_what_trainers_choose_alone_at_prices_is_within_the_nodes_there_are(
    window: Window,
) -> None:
    if not window.trainers:
        return
    options = size_rows(window, Pool.of(window))
    asked = relax(options, first_bound(options).prices)

    takes = asked.takes[asked.chosen]

    assert (takes <= options.pool.nodes).all()
    assert (takes.sum(axis=1) == options.size[asked.chosen]).all()


def improvable() -> Window:
    trainer = WindowTrainer(custom([0.0, 1.0, 1.9, 2.7]), {}, 0.0, 0.0, 0.0, 0.0)
    stays = {0: WindowClass(2, 300.0, 0.0, 1.0), 1: WindowClass(2, 200.0, 0.0, 1.0)}
    return Window(stays, {0: 2, 1: 2}, (trainer, trainer), 0.5, 1.0)


def test_when_time_is_up_nothing_is_exchanged_or_mended() -> None:
    window = improvable()
    over = Deadline(-1.0, float)
    options = size_rows(window, Pool.of(window))
    dual = first_bound(options)

    assert loaded(window).run(over) == 0
    assert repair(loaded(window), options, dual, rounds=5, deadline=over) == 0
    assert loaded(window).run(NEVER) > 0
    assert repair(loaded(window), options, dual, rounds=5, deadline=NEVER) > 0


def test_when_time_is_up_the_bound_takes_one_step_more() -> None:
    options = size_rows(improvable(), Pool.of(improvable()))
    prices = np.array([1000.0, 0.0])
    start = Dual(relax(options, prices).value, prices)

    late = tighten(options, start, reached=0.0, steps=50, deadline=Deadline(-1, float))

    assert late.value == start.value
    assert tighten(options, start, reached=0.0, steps=50).value < start.value
