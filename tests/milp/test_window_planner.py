"""The planner of a tick: exchanges, and sound answers whatever a solver does."""

from collections.abc import Callable, Iterator
from itertools import count

import numpy as np
import pulp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milp.answer import PlanStatus, SolverStatus
from milp.problem import constraint_violations, custom
from milp.window import (
    NEVER,
    BoundedClasses,
    Dual,
    SearchDeadline,
    Window,
    WindowClass,
    WindowTrainer,
    first_bound,
    gain,
    relax,
    size_rows,
    tighten,
    total_gain,
)
from milp.window_planner import Exchange, WindowAnswer, answer_window, repair, rounded
from milp.window_search import WindowPlanner
from tests.milp.lying_solvers import (
    OUTRIGHT_LIES,
    RAGGED_CURVES,
    FakeSolver,
    Spoil,
    find_nothing,
    set_all,
    tell_the_truth,
    time_out_with_the_point,
)
from tests.milp.windows import (
    present,
    rows_of,
    standing_still,
    whole_problem,
    windows,
    wrong_gain,
)


def loaded(window: Window) -> Exchange:
    pool = BoundedClasses.of(window)
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
    options = size_rows(window, BoundedClasses.of(window)) if window.trainers else None
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
    options = size_rows(window, BoundedClasses.of(window))
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
    over = SearchDeadline(-1.0, float)
    options = size_rows(window, BoundedClasses.of(window))
    dual = first_bound(options)

    assert loaded(window).run(over) == 0
    assert repair(loaded(window), options, dual, rounds=5, deadline=over) == 0
    assert loaded(window).run(NEVER) > 0
    assert repair(loaded(window), options, dual, rounds=5, deadline=NEVER) > 0


def test_when_time_is_up_the_bound_takes_one_step_more() -> None:
    options = size_rows(improvable(), BoundedClasses.of(improvable()))
    prices = np.array([1000.0, 0.0])
    start = Dual(relax(options, prices).value, prices)

    late = tighten(
        options, start, reached=0.0, steps=50, deadline=SearchDeadline(-1, float)
    )

    assert late.value == start.value
    assert tighten(options, start, reached=0.0, steps=50).value < start.value


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
    assert answer.outcome is not PlanStatus.KEPT
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
    deadline = SearchDeadline(10.0, ticking(1.0))

    assert deadline.share(0.5).end_s == pytest.approx(5.0)
    assert deadline.left_s() == pytest.approx(9.0)
    assert not deadline.passed()


def test_without_trainers_or_nodes_the_answer_is_proven() -> None:
    window = Window({}, {}, (), 0.5, 1.0)

    answer = answer_window(window, limit_s=1.0, clock=standing_still)

    assert answer.outcome is PlanStatus.PROVEN
    assert answer.gap == 0.0
    assert total_gain(window, answer.holdings) == 0.0


HARD = Window(
    classes={
        0: WindowClass(nodes=7, life_s=300.0, hit=0.6, share=0.5),
        1: WindowClass(nodes=6, life_s=150.0, hit=0.9, share=1.0),
    },
    free={0: 3, 1: 3},
    trainers=tuple(
        WindowTrainer(RAGGED_CURVES[k % 3], held, 8.0, 5.0, 3.0, 60.0)
        for k, held in enumerate([{0: 2}, {1: 3}, {0: 2}, {}])
    ),
    hit_weight=0.5,
    change_weight=1.0,
)


def call_nothing_optimal(model: pulp.LpProblem, _: SolverStatus) -> SolverStatus:
    # Every trainer waits: sound, and worse than what was known.
    set_all(model, 0.0)
    for variable in model.variables():
        if variable.name.startswith("z_"):
            place, row = map(int, variable.name.split("_")[1:])
            first = min(
                int(one.name.split("_")[2])
                for one in model.variables()
                if one.name.startswith(f"z_{place}_")
            )
            variable.varValue = float(row == first)
    return SolverStatus.OPTIMUM


def answer(fake: FakeSolver, *, limit_s: float = 100.0) -> WindowAnswer:
    return answer_window(HARD, limit_s=limit_s, clock=standing_still, solver=fake)


def searched() -> WindowAnswer:
    return answer(FakeSolver(find_nothing))


def is_sound(found: WindowAnswer) -> bool:
    broken = constraint_violations(whole_problem(HARD), rows_of(HARD, found.holdings))
    return not broken and not wrong_gain(HARD, found.holdings, found.gain)


def test_the_hard_window_is_proven_by_the_program_alone() -> None:
    alone, fake = searched(), FakeSolver(tell_the_truth)

    proven = answer(fake)

    assert alone.outcome is PlanStatus.INCUMBENT
    assert alone.gap > 1e-3
    assert proven.outcome is PlanStatus.PROVEN
    assert alone.gain <= proven.gain <= proven.bound <= alone.bound
    assert proven.gap <= 1e-5
    assert is_sound(proven)
    assert len(fake.limits_s) == 1


def test_without_a_solver_given_cbc_proves_it() -> None:
    proven = answer_window(HARD, limit_s=100.0, clock=standing_still)

    assert proven.outcome is PlanStatus.PROVEN


@pytest.mark.parametrize("spoil", [*OUTRIGHT_LIES, call_nothing_optimal, find_nothing])
def test_a_solver_that_lies_or_dies_leaves_the_searchs_plan_and_says_why(
    spoil: Spoil,
) -> None:
    found = answer(FakeSolver(spoil))

    assert found.outcome is PlanStatus.INCUMBENT
    assert found.holdings == searched().holdings
    assert found.bound == searched().bound
    assert found.reason
    assert is_sound(found)


def test_a_point_at_the_limit_is_used_and_not_called_proven() -> None:
    found = answer(FakeSolver(time_out_with_the_point))

    assert found.outcome is PlanStatus.INCUMBENT
    assert found.gain >= searched().gain
    assert found.bound == searched().bound
    assert "in time" in found.reason


def test_the_solver_has_less_than_what_is_left() -> None:
    fake = FakeSolver(tell_the_truth)

    answer(fake, limit_s=10.0)

    assert fake.limits_s[0] is not None
    assert 0.0 < fake.limits_s[0] < 10.0


def test_without_time_no_solver_is_started() -> None:
    fake = FakeSolver(tell_the_truth)

    found = answer(fake, limit_s=0.2)

    assert fake.limits_s == []
    assert "no time" in found.reason
    assert is_sound(found)


def test_a_large_program_is_not_even_written() -> None:
    curve = custom([0.0, *[(n % 7) + n**0.5 for n in range(1, 65)]])
    stays = {k: WindowClass(20, 100.0 + 10.0 * k, 0.5, 0.1) for k in range(8)}
    trainers = tuple(WindowTrainer(curve, {}, 1.0, 1.0, 0.0, 60.0) for _ in range(12))
    window = Window(stays, dict.fromkeys(range(8), 20), trainers, 0.5, 1.0)
    fake = FakeSolver(tell_the_truth)

    found = answer_window(window, limit_s=100.0, clock=standing_still, solver=fake)

    assert fake.limits_s == []
    assert "too many" in found.reason
    assert found.gain == pytest.approx(total_gain(window, found.holdings))
