"""What the look-ahead in a loop said of planned starts, held against what came."""

from typing import Any

from freetrain.replay.run import ReplayResult
from freetrain.replay.settings import LoopSettings
from tests.replay.loop.worlds_loop import UNBOUND, J, play, stage_of
from tests.replay.worlds import trainer

EARLY = [J(0.0, 605.0, 2, 900.0), J(70.0, 50.0, 3)]
"""The second needs all three nodes, at 900 s as planned; the first ends at 605 s."""


def played(*, knows_plans: bool, **choices: Any) -> ReplayResult:  # noqa: ANN401
    loop = LoopSettings(notice_s=0.0, knows_plans=knows_plans, **UNBOUND)
    stage = stage_of(EARLY, 3, until_s=1_500.0)
    return play(stage, [trainer()], loop, policy="lookahead", **choices).replay


def test_the_record_says_that_a_plan_came_early() -> None:
    record = played(knows_plans=True, record_forecasts=True).forecasts

    assert record is not None
    # One node waits for it: from the tick at 120 s on, and taken at 605 s.
    assert [(kind.lead_s, kind.nodes, kind.early) for kind in record.promises] == [
        (300.0, 1, 1.0),
        (600.0, 1, 1.0),
    ]
    assert all(-300.0 <= kind.middle_s <= -120.0 for kind in record.promises)
    assert record.reliability.deciles


def test_who_is_blind_to_plans_records_none_of_them() -> None:
    record = played(knows_plans=False, record_forecasts=True).forecasts

    assert record is not None
    assert record.promises == ()


def test_nothing_is_recorded_unless_asked_for() -> None:
    plain = played(knows_plans=True)
    watched = played(knows_plans=True, record_forecasts=True)

    assert plain.forecasts is None
    assert watched.steps == plain.steps
