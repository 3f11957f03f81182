"""The planner of a tick: exchanges, the integer program, and sound answers always."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pulp
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from milp.answer import PlanStatus, SolverStatus
from milp.problem import constraint_violations, custom
from milp.program import Cbc, WindowProgram, window_program
from milp.window import (
    MOST_ERROR,
    NEVER,
    BoundedClasses,
    Holding,
    SearchDeadline,
    Segments,
    SizeRows,
    Window,
    WindowClass,
    WindowTrainer,
    bound,
    first_bound,
    gain,
    relax,
    size_rows,
    tighten,
    total_gain,
    variables,
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
from tests.milp.planning_problems import (
    faults,
    present,
    standing_still,
    whole_problem,
    windows,
)

OVER = SearchDeadline(-1.0, float)


def rows_of(window: Window) -> SizeRows:
    return size_rows(window, BoundedClasses.of(window))


def loaded(window: Window) -> Exchange:
    pool = BoundedClasses.of(window)
    exchange = Exchange(window, pool)
    exchange.changes.load(pool.rows(present(window)))
    return exchange


# The longer search.


@settings(deadline=None)
@given(windows())
def test_exchanging_never_loses_and_the_table_has_the_gain_of_every_change(
    window: Window,
) -> None:
    exchange, problem = loaded(window), whole_problem(window)
    before, table = exchange.changes.gain, exchange.changes

    exchange.run(NEVER)

    assert table.gain >= before
    assert constraint_violations(problem, table.counts.tolist()) == ()
    every = [(k, n) for k in window.classes for n in range(window.classes[k].nodes + 1)]
    for column, (k, nodes) in enumerate(every):
        for place in range(len(window.trainers)):
            for written, more in ((table.gives, -nodes), (table.takes, nodes)):
                counts = table.counts.tolist()
                counts[place][k] += more
                own = {k: n for k, n in enumerate(counts[place]) if n}
                broken = constraint_violations(problem, counts)
                too_many = counts[place][k] > window.classes[k].nodes
                if too_many or any(f" t{place}:" in fault for fault in broken):
                    assert written[place, column] == -np.inf
                else:
                    added = gain(window, place, own) - table.gains[place]
                    assert written[place, column] == pytest.approx(added, abs=1e-6)


@settings(deadline=None)
@given(windows())
def test_choices_at_prices_fit_and_rounding_and_repairing_make_sound_plans(
    window: Window,
) -> None:
    assume(window.trainers)
    exchange, problem, rows = loaded(window), whole_problem(window), rows_of(window)
    dual = first_bound(rows)
    alone = relax(rows, dual.prices)
    takes = alone.takes[alone.chosen]
    assert (takes <= rows.pool.nodes).all()
    assert (takes.sum(axis=1) == rows.size[alone.chosen]).all()

    dual = tighten(rows, dual, reached=exchange.changes.gain, steps=10)
    counts = rounded(rows, dual, exchange.changes.counts)
    assert constraint_violations(problem, counts.tolist()) == ()
    exchange.changes.load(counts)
    before = exchange.changes.gain

    repair(exchange, rows, dual, rounds=5, deadline=NEVER)

    assert exchange.changes.gain >= before
    assert constraint_violations(problem, exchange.changes.counts.tolist()) == ()


def improvable() -> Window:
    trainer = WindowTrainer(custom([0.0, 1.0, 1.9, 2.7]), {}, 0.0, 0.0, 0.0, 0.0)
    classes = {0: WindowClass(2, 300.0, 0.0, 1.0), 1: WindowClass(2, 200.0, 0.0, 1.0)}
    return Window(classes, {0: 2, 1: 2}, (trainer, trainer), 0.5, 1.0)


def test_when_time_is_up_nothing_is_exchanged_or_repaired() -> None:
    window = improvable()
    rows = rows_of(window)
    dual = first_bound(rows)

    assert loaded(window).run(OVER) == 0
    assert repair(loaded(window), rows, dual, rounds=5, deadline=OVER) == 0
    assert loaded(window).run(NEVER) > 0
    assert repair(loaded(window), rows, dual, rounds=5, deadline=NEVER) > 0


def ticking(by_s: float) -> Callable[[], float]:
    """Return a clock that goes on by so much each time it is read."""
    ticks: Iterator[int] = itertools.count()
    return lambda: by_s * next(ticks)


# The integer program.


def every_row(rows: SizeRows) -> list[list[int]]:
    return [
        list(range(int(rows.first[kind]), int(rows.ends[kind])))
        for kind in rows.kind.tolist()
    ]


def whole_program(window: Window) -> WindowProgram:
    rows = rows_of(window)
    return window_program(window, rows, every_row(rows))


def holding_of(window: Window, row: tuple[int, ...]) -> Holding:
    return {k: n for k, n in zip(sorted(window.classes), row, strict=True) if n}


def best_of_all(window: Window) -> float:
    """Return the best gain, by trying every plan."""
    nodes = [own.nodes for _, own in sorted(window.classes.items())]
    own = list(itertools.product(*(range(n + 1) for n in nodes)))
    return max(
        total_gain(window, [holding_of(window, row) for row in rows])
        for rows in itertools.product(own, repeat=len(window.trainers))
        if not constraint_violations(whole_problem(window), rows)
    )


@settings(max_examples=30, deadline=None)
@given(windows(most_classes=2, most_trainers=2))
def test_the_programs_optimum_is_that_of_trying_everything(window: Window) -> None:
    assume(window.trainers)
    best = pytest.approx(best_of_all(window), rel=1e-5, abs=1e-5)
    program, kept = whole_program(window), present(window)
    program.begin(BoundedClasses.of(window).rows(kept).tolist())
    assert program.value() == pytest.approx(total_gain(window, kept), abs=1e-6)

    assert Cbc().solve(program.model, limit_s=None) is SolverStatus.OPTIMUM

    found = [holding_of(window, tuple(row)) for row in program.counts()]
    assert faults(window, found) == ()
    assert total_gain(window, found) == best
    assert program.value() == best
    answer = answer_window(window, limit_s=100.0, clock=standing_still)
    assert answer.gain == best
    slack = 1e-5 * (1.0 + abs(answer.gain))
    assert answer.bound <= bound(window, answer.gain) + slack


@given(windows(), st.sampled_from([1.0, -1.0]), st.sampled_from([1.0, 0.0]))
def test_the_program_has_as_many_variables_as_are_counted_beforehand(
    window: Window, sign: float, hits: float
) -> None:
    assume(window.trainers)
    # Where nothing is hit one segment is enough, but for worths below 0.
    window = replace(
        window,
        classes={k: c._replace(hit=hits * c.hit) for k, c in window.classes.items()},
        trainers=tuple(
            replace(one, curve=custom(sign * one.curve.value_per_s, one.curve.sizes))
            for one in window.trainers
        ),
    )
    rows = rows_of(window)
    chosen = every_row(rows)

    written = window_program(window, rows, chosen).model.variables()

    assert variables(window, rows, chosen, enough=5_000) == len(written)


@given(
    st.integers(1, 60), st.floats(0.0, 1.0), st.floats(0.01, 1.0), st.integers(0, 59)
)
def test_segments_lie_below_the_hits_and_hardly(
    nodes: int, hit: float, share: float, least: int
) -> None:
    hits = WindowClass(nodes + 1, 100.0, hit, share).hits()
    least = min(least, nodes)

    made = Segments([hits]).of(0, least, nodes)

    assert sum(segment.nodes for segment in made) == nodes - least
    assert Segments([hits]).count(0, least, nodes) == len(made)
    for segment in made:
        for n in range(segment.nodes + 1):
            here = hits[least] + segment.hits + segment.slope * n
            true = hits[least + segment.start + n]
            assert -1e-12 <= true - here <= MOST_ERROR + 1e-12
    exact = Segments([hits]).of(0, least, nodes, exact=True)
    assert [(segment.start, segment.nodes) for segment in exact] == [
        (n, 1) for n in range(nodes - least)
    ]


def test_worths_next_to_nothing_are_not_scaled_up_without_end() -> None:
    trainer = WindowTrainer(custom([0.0, 2.3e-308]), {}, 0.0, 0.0, 0.0, 0.0)
    window = Window({0: WindowClass(1, 1.0, 0.0, 1.0)}, {0: 1}, (trainer,), 0.0, 1.0)

    assert whole_program(window).scale == 1.0


# Answers.


@settings(deadline=None)
@given(windows(), st.sampled_from([0.0, 0.01, 0.3]))
def test_an_answer_is_sound_and_gains_its_claim_and_no_more_than_its_bound(
    window: Window, by_s: float
) -> None:
    answer = answer_window(window, limit_s=1.0, clock=ticking(by_s))

    assert answer.outcome is not PlanStatus.KEPT
    assert faults(window, answer.holdings, answer.gain) == ()
    assert answer.kept_gain <= answer.gain <= answer.bound
    assert answer.gap >= 0.0
    if not by_s:
        fast = WindowPlanner().plan(window).gain
        assert answer.gain >= fast - 1e-9 * (1.0 + abs(fast))


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


def call_waiting_optimal(model: pulp.LpProblem, _: SolverStatus) -> SolverStatus:
    # Every trainer waits: sound, and worse than the known plan.
    set_all(model, 0.0)
    first: dict[str, pulp.LpVariable] = {}
    for variable in model.variables():
        kind, place, *row = variable.name.split("_")
        if kind == "z" and int(row[0]) <= int(
            first.get(place, variable).name.split("_")[2]
        ):
            first[place] = variable
    for variable in first.values():
        variable.varValue = 1.0
    return SolverStatus.OPTIMUM


def answer(
    spoil: Spoil, *, limit_s: float = 100.0, window: Window = HARD
) -> tuple[WindowAnswer, FakeSolver]:
    """Return a sound answer, and the solver with its calls."""
    fake = FakeSolver(spoil)
    found = answer_window(window, limit_s=limit_s, clock=standing_still, solver=fake)
    assert faults(window, found.holdings, found.gain) == ()
    return found, fake


def searched() -> WindowAnswer:
    return answer(find_nothing)[0]


def test_the_hard_window_is_proven_by_the_program_alone() -> None:
    alone = searched()

    proven, fake = answer(tell_the_truth)

    assert alone.outcome is PlanStatus.INCUMBENT
    assert alone.gap > 1e-3
    assert proven.outcome is PlanStatus.PROVEN
    assert alone.gain <= proven.gain <= proven.bound <= alone.bound
    assert proven.gap <= 1e-5
    assert len(fake.limits_s) == 1
    by_cbc = answer_window(HARD, limit_s=100.0, clock=standing_still)
    assert by_cbc.outcome is PlanStatus.PROVEN


LIES = OUTRIGHT_LIES | {
    "calls waiting optimal": call_waiting_optimal,
    "finds nothing": find_nothing,
}


@pytest.mark.parametrize("spoil", LIES.values(), ids=LIES)
def test_a_solver_that_lies_or_dies_leaves_the_searchs_plan_and_says_why(
    spoil: Spoil,
) -> None:
    found, _ = answer(spoil)

    assert found.outcome is PlanStatus.INCUMBENT
    assert found.holdings == searched().holdings
    assert found.bound == searched().bound
    assert found.reason


def test_a_point_at_the_limit_is_used_and_not_called_proven() -> None:
    found, _ = answer(time_out_with_the_point)

    assert found.outcome is PlanStatus.INCUMBENT
    assert found.gain >= searched().gain
    assert found.bound == searched().bound
    assert "in time" in found.reason


def test_the_solver_has_less_than_the_time_left_and_is_not_started_without() -> None:
    _, fake = answer(tell_the_truth, limit_s=10.0)

    assert fake.limits_s[0] is not None
    assert 0.0 < fake.limits_s[0] < 10.0
    found, fake = answer(tell_the_truth, limit_s=0.2)
    assert fake.limits_s == []
    assert "no time" in found.reason


def test_a_large_program_is_not_even_written() -> None:
    curve = custom([0.0, *[(n % 7) + n**0.5 for n in range(1, 65)]])
    classes = {k: WindowClass(20, 100.0 + 10.0 * k, 0.5, 0.1) for k in range(8)}
    trainers = tuple(WindowTrainer(curve, {}, 1.0, 1.0, 0.0, 60.0) for _ in range(12))
    window = Window(classes, dict.fromkeys(range(8), 20), trainers, 0.5, 1.0)

    found, fake = answer(tell_the_truth, window=window)

    assert fake.limits_s == []
    assert "too many" in found.reason
