"""Recording the forecasts of a replay under ``lookahead`` changes nothing else."""

from dataclasses import replace

import pytest

from freetrain.replay.result import ReplayResult
from freetrain.replay.settings import Accounting
from tests.replay.test_replay_golden import COSTS, generated_pool
from tests.replay.worlds import linear, replay, trainer


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


def test_a_policy_without_forecasts_records_none() -> None:
    assert replayed(policy="freetrain", record_forecasts=True).forecasts is None
