"""Loops small enough to work out on paper.

One trainer does 10 samples/s a node and changes nodes for nothing; the broker ticks
every 60 s and holds whatever is idle at a tick.
"""

from typing import Any

import pytest

from freetrain.errors import UsageError
from freetrain.replay.loop import Stage
from freetrain.replay.pool import DAY_S
from freetrain.replay.settings import LoopSettings
from logs.simulation import Method
from tests.replay.loop.worlds_loop import (
    PAIR,
    PLANNED,
    UNBOUND,
    J,
    looped,
    play,
    stage_of,
    trace_of,
)
from tests.replay.worlds import trainer


def test_nodes_are_held_from_the_next_tick_until_a_job_takes_them() -> None:
    made = looped(PAIR, 240.0, notice_s=0.0, **UNBOUND)
    # Idle from 100 s, held from the tick at 120 s, taken at 160 s.
    assert made.replay.samples == 2 * 10 * 40
    assert made.replay.used_node_s == 2 * 40
    assert made.replay.pool_node_s == 2 * (60 + 30)
    assert made.replay.preemptions == 1


def test_nobody_waits_where_there_is_no_notice() -> None:
    made = looped(PAIR, 240.0, notice_s=0.0, **UNBOUND)
    assert made.harm.met == 1
    assert made.harm.later == made.harm.sooner == 0
    assert made.harm.most_s == made.harm.waited_most_s == 0.0


@pytest.mark.parametrize(("notice_s", "waits_s"), [(30.0, 5.0), (5.0, 5.0), (3.0, 3.0)])
def test_a_job_waits_for_a_commit_and_no_longer_than_the_notice(
    notice_s: float, waits_s: float
) -> None:
    made = looped(PAIR, 240.0, notice_s=notice_s, commit_s=5.0, **UNBOUND)
    assert (made.harm.jobs, made.harm.later, made.harm.most_s) == (1, 1, waits_s)
    assert made.harm.met_later_most_s == made.harm.waited_most_s == waits_s
    # The nodes are not idle while the trainer commits, and it trains no more then.
    assert made.replay.samples == 2 * 10 * 40
    assert made.replay.pool_node_s == 2 * (60 + 30 - waits_s)


def test_a_job_that_meets_nobody_does_not_wait() -> None:
    # It comes at 110 s: the nodes are idle, and the broker has not looked yet.
    early = [J(0.0, 100.0, 2), J(110.0, 50.0, 2)]
    made = looped(early, 200.0, **UNBOUND)
    assert made.harm.met == made.harm.later == 0


def test_a_trainer_that_finished_before_the_job_came_has_nothing_to_commit() -> None:
    # 20 samples/s from 120 s on: 600 samples are done at 150 s, ten before the job.
    made = looped(PAIR, 240.0, team=[trainer(samples=600.0)], **UNBOUND)
    assert made.replay.finished == 1
    assert made.harm.met == made.harm.later == 0


def test_what_delays_one_job_delays_those_behind_it() -> None:
    # The third needs both nodes and waits for the second, which waits 5 s for us.
    jobs = [*PAIR, J(170.0, 10.0, 2)]
    made = looped(jobs, 240.0, **UNBOUND)
    assert (made.harm.met, made.harm.later, made.harm.most_s) == (1, 2, 5.0)
    assert made.harm.mean_s == made.harm.median_s == 5.0


def test_a_job_that_starts_after_the_broker_has_gone_is_compared_too() -> None:
    jobs = [*PAIR, J(170.0, 10.0, 2)]
    made = looped(jobs, 180.0, **UNBOUND)
    assert (made.harm.jobs, made.harm.later) == (2, 2)


def test_a_lease_ends_its_margin_before_the_planned_start() -> None:
    made = looped(PLANNED, 240.0, margin_s=30.0, shortest_s=0.0)
    # Node 1 is idle from 0 and held at once; by the tick at 60 s the plan is known.
    assert made.replay.used_node_s == 170.0
    assert made.replay.preemptions == 0
    assert made.harm.met == made.harm.later == 0


def test_a_broker_that_is_blind_to_plans_is_met_by_the_planned_job() -> None:
    made = looped(PLANNED, 240.0, knows_plans=False, margin_s=30.0, shortest_s=0.0)
    assert made.replay.used_node_s == 200.0
    assert made.replay.preemptions == 1
    assert made.harm.met == 1
    assert made.harm.most_s == 5.0


def test_a_lease_that_ends_just_as_its_job_starts_is_not_met() -> None:
    made = looped(PLANNED, 240.0, margin_s=0.0, shortest_s=0.0)
    assert made.replay.used_node_s == 200.0
    assert made.replay.preemptions == made.harm.met == 0


def test_a_hole_too_short_for_a_lease_is_left_alone() -> None:
    # Node 1 is taken at 0 s before anything is planned; given back, it is not taken
    # again: at 60 s and later less than 150 s are left.
    jobs = [J(0.0, 200.0, 1, 200.0), J(0.0, 50.0, 1, 50.0), J(10.0, 50.0, 2, 50.0)]
    made = looped(jobs, 240.0, margin_s=30.0, shortest_s=120.0)
    assert made.replay.used_node_s == 0.0


def test_nodes_of_several_units_are_held_whole_and_left_for_any_unit() -> None:
    jobs = [J(0.0, 100.0, 4), J(160.0, 200.0, 1)]
    stage = Stage(trace_of(jobs, 4, 2), Method.EASY, days=240.0 / DAY_S)
    made = play(stage, [trainer()], LoopSettings(notice_s=0.0, **UNBOUND))
    # Two nodes from 120 s; one unit of the first is taken at 160 s.
    assert made.replay.samples == 10 * (2 * 40 + 80)


def test_long_holes_are_counted_by_their_length_and_use() -> None:
    jobs = [J(0.0, 30.0, 2), J(100.0, 50.0, 1), J(800.0, 100.0, 2)]
    made = looped(jobs, 880.0, notice_s=0.0, **UNBOUND)
    # Node 0: 30 to 100 s, and 150 to 800 s, held from 180 s. Node 1: 30 to 800 s, held
    # from 60 s.
    assert (made.holes.holes, made.holes.node_s) == (3, 70.0 + 650.0 + 770.0)
    assert (made.holes.long_holes, made.holes.long_node_s) == (2, 650.0 + 770.0)
    assert made.holes.long_used_node_s == 620.0 + 740.0
    assert made.holes.long_use == pytest.approx(1360 / 1420)


def test_a_loop_begins_where_it_is_told_with_the_jobs_that_run_then() -> None:
    made = play(
        stage_of(PAIR, 2, until_s=140.0, start_s=50.0),
        [trainer()],
        LoopSettings(notice_s=0.0, **UNBOUND),
    )
    # Ticks at 50, 110 and 170 s of the log: held from 110 to 160 s.
    assert made.replay.samples == 2 * 10 * 50
    assert made.harm.jobs == 1


@pytest.mark.parametrize("policy", ["scavenger", "static"])
def test_policies_that_cannot_wait_for_a_tick_are_refused(policy: str) -> None:
    with pytest.raises(UsageError, match="cannot be in the loop"):
        play(stage_of(PAIR, 2, until_s=9.0), [trainer()], LoopSettings(), policy=policy)


@pytest.mark.parametrize(
    "wrong",
    [
        {"tick_s": 0.0},
        {"lead_s": -1.0},
        {"last_s": -1.0},
        {"notice_s": -1.0},
        {"margin_s": -1.0},
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="Nothing was replayed"):
        LoopSettings(**wrong)
