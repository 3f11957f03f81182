"""Harm job by job, and forecasts of planned starts, held against the starts."""

from typing import Any

from freetrain.replay.loop import harm_of
from freetrain.replay.run import ReplayResult
from freetrain.replay.settings import LoopSettings
from tests.replay.loop.worlds_loop import UNBOUND, J, play, stage_of
from tests.replay.worlds import trainer


def test_harm_is_the_difference_job_by_job() -> None:
    harm = harm_of(
        {0: 10.0, 1: 25.0, 2: 30.0, 3: 50.5, 4: 59.5},
        {0: 10.0, 1: 5.0, 2: 40.0, 3: 50.0, 4: 60.0},
        {1: 15.0, 2: 2.0},
        bound_s=10.0,
    )

    assert (harm.jobs, harm.later, harm.sooner) == (5, 2, 2)
    assert (harm.median_s, harm.most_s) == (0.0, 20.0)
    assert harm.mean_s == 2.0
    assert (harm.met, harm.waited_most_s, harm.waited_longer) == (2, 15.0, 1)
    assert (harm.waited_mean_s, harm.waited_median_s) == (8.5, 8.5)
    assert (harm.met_later_mean_s, harm.met_later_most_s) == (5.0, 20.0)


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
    assert record.deciles


def test_nothing_is_recorded_of_plans_unknown_or_unless_asked_for() -> None:
    blind = played(knows_plans=False, record_forecasts=True).forecasts
    plain = played(knows_plans=True)

    assert blind is not None
    assert blind.promises == ()
    assert plain.forecasts is None
    assert played(knows_plans=True, record_forecasts=True).steps == plain.steps
