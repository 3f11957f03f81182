"""A tick in one line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from freetrain.state.tables import TrainerState
from freetrain.tick.status_report import TrainerLine, summary_line
from milp.planner import Outcome
from tests.client.client_states import a_page

DONE = {"leases asked for": 0, "leases ended": 0, "generations": 0}
BRAKE = "as many leases as the site allows"


def line(*states: TrainerState) -> str:
    """Return the line of a tick that may ask for no lease."""
    trainers = tuple(TrainerLine(name="a", state=str(state)) for state in states)
    return summary_line(a_page(trainers=trainers, brake=BRAKE, done=DONE))


def test_what_keeps_leases_from_those_who_want_nodes_is_told() -> None:
    assert f"asking for no more: {BRAKE}" in line(TrainerState.WANTED)


def test_a_plan_that_is_not_proven_is_told_to_those_who_want_one() -> None:
    some = a_page(planner=str(Outcome.INCUMBENT), planner_gap=0.0082, done=DONE)
    wants = TrainerLine(name="a", state=str(TrainerState.WANTED))
    wanted = replace(some, trainers=(wants,))

    assert "; plan at most 0.82 % below the best; " in summary_line(wanted)
    assert "plan" not in summary_line(some)
    assert "plan" not in summary_line(replace(wanted, planner=str(Outcome.PROVEN)))


@pytest.mark.parametrize(
    "states", [(), (TrainerState.FINISHED, TrainerState.FAILED)], ids=str
)
def test_nothing_is_kept_from_nobody(states: tuple[TrainerState, ...]) -> None:
    assert "0 of 0 trainers run" in line(*states)
    assert "asking for no more" not in line(*states)
