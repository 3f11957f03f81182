"""What a replay records beside its figures: gaps of plans, and forecasts."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from freetrain.lookahead.learned import LearnedForecaster
from freetrain.lookahead.reliability import ForecastRecord, ScoredForecaster
from freetrain.planning.settings import HORIZON_S
from freetrain.replay.policies.registry import Gap, GapSampler
from freetrain.replay.pool import PoolTimeline
from freetrain.replay.run import ReplayResult
from freetrain.replay.settings import Accounting
from milp.window import Window, window_gap
from tests.lookahead.forecasters import watch
from tests.replay.test_lookahead_policy import decisions
from tests.replay.test_replay_golden import COSTS, generated_pool
from tests.replay.worlds import linear, replay, trace_of, trainer

EMPTY = Window({}, {}, (), 0.5, 1.0)


TEAM = [
    trainer(f"t{k}", scaling=linear(10.0, 6), samples=1e6, costs=COSTS)
    for k in range(4)
]


def replayed(policy: str, **choices: bool) -> ReplayResult:
    return replay(
        generated_pool(), TEAM, policy=policy, accounting=Accounting.REAL, **choices
    )


@pytest.mark.parametrize("policy", ["freetrain", "static"])
def test_plans_of_the_exact_solver_are_proven_every_one(policy: str) -> None:
    result = replayed(policy)

    plans = result.solver_calls
    assert plans > 0
    assert result.gap == Gap(0.0, 0.0, 0.0, sampled=plans, plans=plans)


def test_plans_that_look_ahead_are_held_against_the_bound() -> None:
    gap = replayed("lookahead").gap

    assert gap is not None
    assert 20 <= gap.sampled <= 40 < gap.plans
    assert 0.0 <= gap.mean <= gap.most < 0.5
    assert gap.high <= gap.most


@pytest.mark.parametrize("policy", ["equal", "scavenger"])
def test_a_policy_without_objective_and_forecasts_records_neither(policy: str) -> None:
    result = replayed(policy, record_forecasts=True)
    assert (result.gap, result.forecasts) == (None, None)


class LooksAtOnce(GapSampler):
    """Looks at every plan when it is made, too."""

    def __init__(self) -> None:
        super().__init__(most=8)
        self.found: list[float] = []

    def keep(self, window: Window, gain: float) -> None:
        super().keep(window, gain)
        self.found.append(window_gap(window, gain))


def decided(gaps: GapSampler | None) -> object:
    pool = {node: own for node, own in generated_pool().items() if node < 6}
    return decisions(pool, TEAM[:3], note=None if gaps is None else gaps.keep)


def test_to_be_looked_at_changes_no_decision() -> None:
    watched = LooksAtOnce()

    assert decided(watched) == decided(None)
    assert len(watched.found) > 16


def test_what_is_looked_at_in_the_end_is_what_was_there_when_it_was_planned() -> None:
    watched = LooksAtOnce()
    decided(watched)

    gap = watched.summary()

    assert gap is not None
    every = -(-gap.plans // gap.sampled)
    step = 1 << (every - 1).bit_length()
    sampled = sorted(watched.found[::step])
    assert gap.sampled == len(sampled)
    assert gap.most == sampled[-1]
    assert gap.mean == pytest.approx(sum(sampled) / len(sampled))


@given(st.integers(1, 6), st.integers(1, 60))
def test_of_plans_enough_are_kept_at_equal_distances(most: int, plans: int) -> None:
    gaps = GapSampler(most)
    assert gaps.summary() is None
    for _ in range(plans):
        gaps.keep(EMPTY, 0.0)

    summary = gaps.summary()

    assert summary is not None
    assert summary.plans == plans
    assert min(plans, most) <= 2 * summary.sampled - 1 < 2 * most
    if plans <= most:
        assert summary.sampled == plans


@given(st.lists(st.sampled_from([0.0, 0.1, 0.4]), min_size=1, max_size=30))
@example([*[0.0] * 9, 0.4])
def test_nine_of_ten_plans_have_at_most_the_high_gap(known: list[float]) -> None:
    gaps = GapSampler()
    for gap in known:
        gaps.know(gap)

    summary = gaps.summary()

    assert summary is not None
    assert 10 * sum(gap <= summary.high for gap in known) >= 9 * len(known)
    assert 10 * sum(gap < summary.high for gap in known) < 9 * len(known)
    assert summary.most == max(known)


# Forecasts of lookahead, and what came


@pytest.mark.parametrize("learned", [False, True])
def test_to_be_watched_changes_no_decision(learned: bool) -> None:  # noqa: FBT001
    plain = replayed("lookahead", learns_speeds=learned)
    watched = replayed("lookahead", learns_speeds=learned, record_forecasts=True)

    assert plain.forecasts is None
    assert watched.forecasts is not None
    assert len({step.used_nodes for step in plain.steps}) > 3
    assert replace(watched, forecasts=None) == plain


def test_what_was_recorded_rests_on_the_nodes_of_the_log() -> None:
    record = replayed("lookahead", record_forecasts=True).forecasts

    assert record is not None
    assert record.affinity is not None
    assert record.affinity.nodes_left == 12
    assert sum(one.count for one in record.deciles) > 20
    assert {name for cell in record.affinity.cells for name in cell} == {
        f"n{node}" for node in range(12)
    }


def test_survivals_that_are_recorded_were_corrected_by_what_came_before() -> None:
    recorded = replayed("lookahead", record_forecasts=True).forecasts
    shown = {checks: seen_by(checks=checks).deciles for checks in (False, True)}

    assert recorded is not None
    assert recorded.deciles == shown[True] != shown[False]


def seen_by(*, checks: bool) -> ForecastRecord:
    """Return how reliable a forecaster is that is shown the pool alone."""
    pool = PoolTimeline.from_trace(trace_of(generated_pool()))
    watched = ScoredForecaster(LearnedForecaster(HORIZON_S, checks=checks))
    return watch((e for e in pool.events() if e.time_s < pool.horizon_s), watched)
