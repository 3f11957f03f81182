"""What ``freetrain explain`` says of the last plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from freetrain.cli.explain import plan_lines
from freetrain.state.tables import TrainerState
from freetrain.tick.status_report import TrainerLine
from milp.answer import Outcome
from tests.cli.desk_files import at_home, run_json
from tests.cli.worlds import run
from tests.client.client_states import a_page, put_page

if TYPE_CHECKING:
    from pathlib import Path

ONE = (TrainerLine(name="a", state=str(TrainerState.WANTED)),)


@pytest.mark.parametrize(
    ("outcome", "gap", "by_lives", "said"),
    [
        (
            Outcome.PROVEN,
            0.0,
            False,
            "The plan is proven to be the best, counted as if every node stayed.",
        ),
        (
            Outcome.INCUMBENT,
            0.0082,
            True,
            (
                "The plan is at most 0.82 % below the best, counted by how long "
                "nodes are expected to stay."
            ),
        ),
        (
            Outcome.KEPT,
            0.5,
            False,
            (
                "The plan that stays is at most 50.00 % below the best, counted as if "
                "every node stayed."
            ),
        ),
    ],
)
def test_a_plan_is_held_against_the_best_by_its_own_objective(
    outcome: Outcome,
    gap: float,
    by_lives: bool,  # noqa: FBT001
    said: str,
) -> None:
    page = a_page(
        trainers=ONE, planner=str(outcome), planner_gap=gap, is_by_lives=by_lives
    )

    assert list(plan_lines(page)) == [said]


def test_why_a_plan_is_no_better_follows_as_a_sentence() -> None:
    page = a_page(
        trainers=ONE,
        planner=str(Outcome.INCUMBENT),
        planner_gap=0.1,
        planner_reason="x",
    )

    assert list(plan_lines(page))[1:] == ["Of the plan: x."]


def test_nothing_is_said_of_a_plan_that_nobody_wanted_or_told() -> None:
    assert not list(plan_lines(a_page(planner_gap=0.0)))
    assert not list(plan_lines(a_page(trainers=ONE)))


def test_explain_tells_it_to_people_and_to_programs(tmp_path: Path) -> None:
    page = a_page(
        trainers=ONE,
        planner=str(Outcome.INCUMBENT),
        planner_gap=0.0082,
        planner_reason="why",
        is_by_lives=True,
    )
    state = at_home(tmp_path)
    assert run("submit", "job.toml", cwd=tmp_path).code == 0
    put_page(state, page)

    shown = " ".join(run("explain", cwd=tmp_path).stdout.split())
    record = run_json("explain", cwd=tmp_path)

    assert all(line in shown for line in plan_lines(page))
    assert record["plan"] == {
        "outcome": "incumbent",
        "reason": "why",
        "gap": 0.0082,
        "is_by_lives": True,
    }
