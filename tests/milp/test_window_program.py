"""The integer program of a window: right, verified, and never needed."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milp.answer import SolverStatus
from milp.problem import Curve, constraint_violations, custom
from milp.program import Cbc, WindowProgram, window_program
from milp.window import (
    MOST_ERROR,
    BoundedClasses,
    Holding,
    Segments,
    SizeRows,
    Window,
    WindowClass,
    WindowTrainer,
    bound,
    size_rows,
    total_gain,
    variables,
)
from milp.window_planner import answer_window
from tests.milp.windows import present, standing_still, whole_problem, windows


def every_row(options: SizeRows) -> list[list[int]]:
    return [
        list(range(int(options.first[kind]), int(options.ends[kind])))
        for kind in options.kind.tolist()
    ]


def whole_program(window: Window) -> WindowProgram:
    options = size_rows(window, BoundedClasses.of(window))
    return window_program(window, options, every_row(options))


def times(curve: Curve, factor: float) -> Curve:
    return custom(factor * curve.value_per_s, curve.sizes)


def best_of_all(window: Window) -> float:
    """Return the best gain, by trying every plan."""
    classes, problem = sorted(window.classes), whole_problem(window)
    own = list(
        itertools.product(*(range(window.classes[k].nodes + 1) for k in classes))
    )
    return max(
        total_gain(window, [_holding(classes, row) for row in rows])
        for rows in itertools.product(own, repeat=len(window.trainers))
        if not constraint_violations(problem, [list(row) for row in rows])
    )


def _holding(classes: list[int], row: tuple[int, ...]) -> Holding:
    return {k: n for k, n in zip(classes, row, strict=True) if n}


def test_hits_count_in_the_program_as_far_as_they_are_new_to_a_trainer() -> None:
    curve = custom([0.0, 10.0, 18.0, 24.0])
    own = WindowTrainer(curve, {0: 1}, 1.0, 1.0, 0.0, 300.0, new_hit_share={1: 0.25})
    stays = {0: WindowClass(1, 300.0, 0.6, 1.0), 1: WindowClass(2, 290.0, 0.6, 0.5)}
    window = Window(stays, {1: 2}, (own,), hit_weight=1.0, change_weight=1.0)
    program = whole_program(window)

    for counts in ([1, 0], [1, 1], [1, 2]):
        program.begin([counts])
        gains = total_gain(window, [_holding([0, 1], tuple(counts))])
        assert program.value() == pytest.approx(gains)


@settings(max_examples=30, deadline=None)
@given(windows(most_classes=2, most_trainers=2))
def test_the_programs_optimum_is_that_of_trying_everything(window: Window) -> None:
    if not window.trainers:
        return
    best = best_of_all(window)
    program = whole_program(window)
    kept = present(window)
    program.begin(BoundedClasses.of(window).rows(kept).tolist())
    assert program.value() == pytest.approx(total_gain(window, kept), abs=1e-6)

    assert Cbc().solve(program.model, limit_s=None) is SolverStatus.OPTIMUM

    found = [_holding(sorted(window.classes), tuple(row)) for row in program.counts()]
    assert constraint_violations(whole_problem(window), program.counts()) == ()
    assert total_gain(window, found) == pytest.approx(best, rel=1e-5, abs=1e-5)
    assert program.value() == pytest.approx(best, rel=1e-5, abs=1e-5)
    answer = answer_window(window, limit_s=100.0, clock=standing_still)
    assert answer.gain == pytest.approx(best, rel=1e-5, abs=1e-5)
    assert answer.bound <= bound(window, best) + 1e-5 * (1.0 + abs(best))


@given(windows(), st.sampled_from([1.0, -1.0]), st.sampled_from([1.0, 0.0]))
def test_the_program_has_as_many_variables_as_are_counted_beforehand(
    window: Window, sign: float, hits: float
) -> None:
    if not window.trainers:
        return
    # Where nothing is hit one piece is enough, but for worths below 0.
    signed = [replace(one, curve=times(one.curve, sign)) for one in window.trainers]
    stays = {k: one._replace(hit=hits * one.hit) for k, one in window.classes.items()}
    window = replace(window, classes=stays, trainers=tuple(signed))
    options = size_rows(window, BoundedClasses.of(window))
    rows = every_row(options)

    written = window_program(window, options, rows).model.variables()

    assert variables(window, options, rows, enough=5_000) == len(written)


@given(
    st.integers(1, 60), st.floats(0.0, 1.0), st.floats(0.01, 1.0), st.integers(0, 59)
)
def test_pieces_lie_below_the_hits_and_hardly(
    nodes: int, hit: float, share: float, least: int
) -> None:
    hits = WindowClass(nodes + 1, 100.0, hit, share).hits()
    least = min(least, nodes)

    made = Segments([hits]).of(0, least, nodes)

    assert sum(piece.nodes for piece in made) == nodes - least
    assert Segments([hits]).count(0, least, nodes) == len(made)
    for piece in made:
        for n in range(piece.nodes + 1):
            here = hits[least] + piece.hits + piece.slope * n
            true = hits[least + piece.start + n]
            assert -1e-12 <= true - here <= MOST_ERROR + 1e-12


@given(st.integers(1, 20), st.floats(0.1, 1.0), st.floats(0.01, 0.9))
def test_pieces_of_one_node_each_have_no_error(
    nodes: int, hit: float, share: float
) -> None:
    made = Segments([WindowClass(nodes, 1.0, hit, share).hits()]).of(
        0, 0, nodes, exact=True
    )

    assert [(piece.start, piece.nodes) for piece in made] == [
        (n, 1) for n in range(nodes)
    ]


def test_worths_next_to_nothing_make_a_program_all_the_same() -> None:
    """Scaled up they would be without end, and no program takes that."""
    curve = custom([0.0, 2.3e-308])
    window = Window(
        classes={0: WindowClass(1, 1.0, 0.0, 1.0)},
        free={0: 1},
        trainers=(
            WindowTrainer(curve, {}, up_s=0.0, down_s=0.0, start_s=0.0, loss_s=0.0),
        ),
        hit_weight=0.0,
        change_weight=1.0,
    )

    assert whole_program(window).scale == 1.0
