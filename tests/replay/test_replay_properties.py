import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.replay.accounting import PublishedAccountant, RealAccountant, Tally
from freetrain.replay.engine import Engine
from freetrain.replay.policies.base import Change, ReplayPolicy, View
from freetrain.replay.policies.registry import SolverUse, policy_for
from freetrain.replay.pool import PoolTimeline
from freetrain.replay.run import run_replay
from freetrain.replay.settings import Accounting, ReplaySettings
from freetrain.replay.trainers import TrainerSpec
from tests.replay.worlds import (
    FOR_NOTHING,
    no_clock,
    pools,
    replay,
    settings,
    teams,
    trace_of,
)

Pool = dict[int, list[tuple[float, float]]]


class Watching:
    """Holds what the engine shows a policy against the pool it was given."""

    def __init__(self, watched: ReplayPolicy, pool: Pool) -> None:
        self.name = watched.name
        self._watched = watched
        self._pool = pool

    def decide(self, view: View) -> Sequence[Change]:
        idle = sorted(
            node
            for node, own in self._pool.items()
            if any(a <= view.now_s < b for a, b in own)
        )
        held = [node for trainer in view.trainers for node in trainer.held]
        assert sorted([*held, *view.free]) == idle
        assert view.idle_nodes == len(idle)
        assert list(view.free) == sorted(view.free)
        return self._watched.decide(view)


@given(pools(), teams(), settings())
def test_no_node_is_held_twice_and_only_idle_nodes_are_held(
    pool: Pool, team: tuple[TrainerSpec, ...], choice: ReplaySettings
) -> None:
    policy = policy_for(choice, no_clock, SolverUse())
    real = choice.accounting is Accounting.REAL
    at_once = choice.accounting is Accounting.PUBLISHED_C
    Engine(
        PoolTimeline.from_trace(trace_of(pool)),
        team,
        policy=Watching(policy, pool),
        accountant=RealAccountant(Tally())
        if real
        else PublishedAccountant(Tally(), notices_at_once=at_once),
        settings=choice,
    ).run()


@given(pools(), teams(), settings())
def test_node_time_and_samples_add_up(
    pool: Pool, team: tuple[TrainerSpec, ...], choice: ReplaySettings
) -> None:
    timeline = PoolTimeline.from_trace(trace_of(pool))

    result = run_replay(timeline, team, choice, clock=no_clock)

    idle_node_s = sum(
        min(b, result.end_s) - min(a, result.end_s)
        for own in pool.values()
        for a, b in own
    )
    assert result.pool_node_s == pytest.approx(idle_node_s)
    assert 0 <= result.used_node_s <= result.pool_node_s + 1e-6
    assert result.coverage <= 1 + 1e-9
    by_trainer = math.fsum(c.samples for c in result.completions)
    assert result.samples == pytest.approx(by_trainer, abs=1e-6)
    assert result.finished == sum(c.finished_s is not None for c in result.completions)
    assert result.finished == sum(len(step.finished) for step in result.steps)


@given(pools(), teams(), settings(accounting=Accounting.REAL))
def test_real_progress_is_never_negative_and_never_more_than_the_work(
    pool: Pool, team: tuple[TrainerSpec, ...], choice: ReplaySettings
) -> None:
    result = replay(pool, team, **_fields(choice))

    work = {trainer.name: trainer.samples for trainer in team}
    for one in result.completions:
        assert 0 <= one.samples <= work[one.trainer] + 1e-9
    assert result.samples >= 0
    assert result.coverage >= 0
    for loss in (result.rescale_samples, result.preempt_samples, result.start_samples):
        assert loss >= 0


@given(pools(), teams(), settings())
def test_what_costs_nothing_loses_nothing(
    pool: Pool, team: tuple[TrainerSpec, ...], choice: ReplaySettings
) -> None:
    free = [replace(trainer, costs=FOR_NOTHING) for trainer in team]

    result = replay(pool, free, **_fields(choice))

    assert result.rescale_samples == result.preempt_samples == 0
    assert result.start_samples == 0


@given(pools(), teams(), settings(), st.sampled_from([0.0, 1.0, 5.0]))
def test_the_same_replay_twice_gives_the_same_result(
    pool: Pool, team: tuple[TrainerSpec, ...], choice: ReplaySettings, factor: float
) -> None:
    chosen = _fields(choice) | {"cost_factor": factor}

    assert replay(pool, team, **chosen) == replay(pool, team, **chosen)


@given(st.integers(1, 12), teams(), st.sampled_from([10.0, 120.0]))
def test_on_one_event_without_costs_freetrain_trains_at_least_an_equal_share(
    nodes: int, team: tuple[TrainerSpec, ...], t_fwd_s: float
) -> None:
    pool = {node: [(0.0, 30.0)] for node in range(nodes)}
    endless = [
        replace(trainer, costs=FOR_NOTHING, samples=1e9, arrival_s=0.0)
        for trainer in team
    ]

    ours = replay(pool, endless, policy="freetrain", t_fwd_s=t_fwd_s)
    equal = replay(pool, endless, policy="equal")

    assert ours.samples >= equal.samples - 1e-6


@given(pools(), teams(), settings())
def test_progress_is_told_in_order_and_ends_at_1_unless_all_is_done(
    pool: Pool, team: tuple[TrainerSpec, ...], choice: ReplaySettings
) -> None:
    told: list[float] = []
    timeline = PoolTimeline.from_trace(trace_of(pool))

    run_replay(timeline, team, choice, clock=no_clock, on_progress=told.append)

    assert told == sorted(told)
    assert all(0 <= fraction <= 1 for fraction in told)


def _fields(choice: ReplaySettings) -> dict[str, Any]:
    return {name: getattr(choice, name) for name in choice.__slots__}
