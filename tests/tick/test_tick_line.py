"""A tick in one line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from freetrain.store.trainers import TrainerState
from freetrain.tick.line import line_of
from freetrain.tick.page import TrainerLine
from milp.planner import Outcome
from tests.desk.desks import a_page

DONE = {"leases asked for": 0, "leases ended": 0, "generations": 0}
BRAKE = "as many leases as the site allows"


def line(*states: TrainerState) -> str:
    """Return the line of a tick that may ask for no lease."""
    trainers = tuple(TrainerLine(name="a", state=str(state)) for state in states)
    return line_of(a_page(trainers=trainers, brake=BRAKE, done=DONE))


def test_what_keeps_leases_from_those_who_want_nodes_is_told() -> None:
    assert f"asking for no more: {BRAKE}" in line(TrainerState.WANTED)


@pytest.mark.parametrize(
    ("outcome", "gap", "said"),
    [
        (Outcome.PROVEN, 0.0, "; plan proven the best; "),
        (Outcome.INCUMBENT, 0.0082, "; plan at most 0.82 % below the best; "),
    ],
)
def test_how_good_the_plan_is_is_told_to_those_who_want_one(
    outcome: Outcome, gap: float, said: str
) -> None:
    page = a_page(planner=str(outcome), planner_gap=gap, done=DONE)
    wants = TrainerLine(name="a", state=str(TrainerState.WANTED))

    assert said in line_of(replace(page, trainers=(wants,)))
    assert "plan" not in line_of(page)


@pytest.mark.parametrize(
    "states", [(), (TrainerState.FINISHED, TrainerState.FAILED)], ids=str
)
def test_nothing_is_kept_from_nobody(states: tuple[TrainerState, ...]) -> None:
    assert "0 of 0 trainers run" in line(*states)
    assert "asking for no more" not in line(*states)
