import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
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
    size_rows,
    tighten,
    total_gain,
    window_gap,
)
from milp.window_search import WindowPlanner
from tests.milp.windows import rows_of, whole_problem, windows


@given(windows())
def test_no_plan_gains_more_than_the_bound(window: Window) -> None:
    plan = WindowPlanner().plan(window)

    assert plan.gain <= bound(window, plan.gain) + 1e-6 * (1 + abs(plan.gain))


@given(windows(most_classes=2, most_trainers=2))
def test_no_plan_at_all_gains_more_than_the_bound(window: Window) -> None:
    best = max(total_gain(window, plan) for plan in sound_plans(window))

    assert best <= bound(window, best) + 1e-6 * (1 + abs(best))


@given(windows(most_classes=3, most_trainers=2, least_worth=0.0), st.integers(1, 3))
def test_no_plan_gains_more_than_the_bound_of_merged_classes(
    window: Window, most: int
) -> None:
    if not window.trainers:
        return
    pool = BoundedClasses.of(window)
    options = size_rows(window, pool.merged(most))
    best = WindowPlanner().plan(window).gain

    dual = tighten(options, first_bound(options), reached=best, steps=20)

    assert len(options.pool.nodes) <= most
    assert options.pool.nodes.sum() == pool.nodes.sum()
    assert best <= dual.value + 1e-6 * (1 + abs(best))


def sound_plans(window: Window) -> Iterator[tuple[Holding, ...]]:
    """Yield all plans that break no constraint."""
    problem = whole_problem(window)
    for plan in every_plan(window):
        if not constraint_violations(problem, rows_of(window, plan)):
            yield plan


def every_plan(window: Window) -> Iterator[tuple[Holding, ...]]:
    """Yield all plans of sizes that fit the pool, migrating ones among them."""
    classes = list(window.classes)
    own = [
        list(itertools.product(*(range(window.classes[k].nodes + 1) for k in classes)))
        for _ in window.trainers
    ]
    for rows in itertools.product(*own):
        sums = [sum(column) for column in zip(*rows, strict=True)]
        fits = all(
            n <= window.classes[k].nodes for n, k in zip(sums, classes, strict=False)
        )
        sized = all(
            sum(row) in {0, *one.curve.sizes}
            for row, one in zip(rows, window.trainers, strict=True)
        )
        if fits and sized:
            yield tuple(
                {k: n for k, n in zip(classes, row, strict=True) if n} for row in rows
            )


def test_the_bound_of_one_trainer_and_one_class_is_what_it_gains() -> None:
    trainer = WindowTrainer(custom([0.0, 10.0, 18.0]), {0: 2}, 18.0, 12.0, 0.0, 12.0)
    window = Window({0: WindowClass(2, 300.0, 0.5, 1.0)}, {}, (trainer,), 0.5, 1.0)

    gain = 18.0 * (300.0 - 0.5 * 12.0 * 0.5)
    assert bound(window, gain) == pytest.approx(gain)
    assert window_gap(window, gain) == pytest.approx(0.0, abs=1e-12)
    assert window_gap(window, 0.75 * gain) == pytest.approx(0.25)


def test_without_nodes_nothing_is_gained() -> None:
    assert bound(Window({}, {}, (), 0.5, 1.0), 0.0) == 0.0
