"""Recording the forecasts of a replay under ``lookahead`` changes nothing else."""

from dataclasses import replace

import pytest

from freetrain.lookahead.learned import LearnedForecaster
from freetrain.lookahead.reliability import Reliability, ScoredForecaster
from freetrain.planning.settings import HORIZON_S
from freetrain.replay.pool import PoolTimeline
from freetrain.replay.run import ReplayResult
from freetrain.replay.settings import Accounting
from tests.lookahead.forecasters import watch
from tests.replay.test_replay_golden import COSTS, generated_pool
from tests.replay.worlds import linear, replay, trace_of, trainer


def replayed(*, policy: str = "lookahead", **choices: bool) -> ReplayResult:
    team = [
        trainer(f"t{k}", scaling=linear(10.0, 6), samples=1e6, costs=COSTS)
        for k in range(4)
    ]
    return replay(
        generated_pool(), team, policy=policy, accounting=Accounting.REAL, **choices
    )


@pytest.mark.parametrize("learned", [False, True])
def test_to_be_watched_changes_no_decision(learned: bool) -> None:  # noqa: FBT001
    plain = replayed(learns_speeds=learned)
    watched = replayed(learns_speeds=learned, record_forecasts=True)

    assert plain.forecasts is None
    assert watched.forecasts is not None
    assert len({step.used_nodes for step in plain.steps}) > 3
    assert replace(watched, forecasts=None) == plain


def test_what_was_recorded_rests_on_the_nodes_of_the_log() -> None:
    record = replayed(record_forecasts=True).forecasts

    assert record is not None
    assert record.affinity is not None
    assert record.affinity.nodes_left == 12
    assert sum(one.count for one in record.reliability.deciles) > 20
    assert {name for cell in record.affinity.cells for name in cell} == {
        f"n{node}" for node in range(12)
    }


def test_survivals_that_are_recorded_were_corrected_by_what_came_before() -> None:
    recorded = replayed(record_forecasts=True).forecasts
    said = {checks: told_by(checks=checks).deciles for checks in (False, True)}

    assert recorded is not None
    assert recorded.reliability.deciles == said[True] != said[False]


def told_by(*, checks: bool) -> Reliability:
    """Return how reliable a forecaster is that is shown the pool alone."""
    pool = PoolTimeline.from_trace(trace_of(generated_pool()))
    watched = ScoredForecaster(LearnedForecaster(HORIZON_S, checks=checks))
    return watch((e for e in pool.events() if e.time_s < pool.horizon_s), watched)


def test_a_policy_without_forecasts_records_none() -> None:
    assert replayed(policy="freetrain", record_forecasts=True).forecasts is None
