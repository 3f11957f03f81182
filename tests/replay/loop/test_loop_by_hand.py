"""Loops small enough to work out on paper.

One trainer does 10 samples/s a node and changes nodes for nothing; the broker ticks
every 60 s and holds whatever is idle at a tick.
"""

from dataclasses import replace
from typing import Any

import pytest

from freetrain.errors import UsageError
from freetrain.replay.loop.settings import LoopSettings, Mode, usual_settings
from freetrain.replay.loop.stage import Stage
from freetrain.replay.timeline import DAY_S
from logs.schedule import Method, SlurmParameters
from tests.replay.loop.worlds_loop import UNBOUND, J, play, stage_of, trace_of
from tests.replay.worlds import trainer

PAIR = [J(0.0, 100.0, 2), J(160.0, 50.0, 2)]
"""Both on two nodes: idle from 100 to 160, and from 210 on if nobody is in the way."""


def test_nodes_are_held_from_the_next_tick_until_a_job_takes_them() -> None:
    made = play(
        stage_of(PAIR, 2, until_s=240.0),
        [trainer()],
        LoopSettings(notice_s=0.0, **UNBOUND),
    )
    # Idle from 100 s, held from the tick at 120 s, taken at 160 s.
    assert made.replay.samples == 2 * 10 * 40
    assert made.replay.used_node_s == 2 * 40
    assert made.replay.pool_node_s == 2 * (60 + 30)
    assert made.replay.preemptions == 1


def test_nobody_waits_where_there_is_no_notice() -> None:
    made = play(
        stage_of(PAIR, 2, until_s=240.0),
        [trainer()],
        LoopSettings(notice_s=0.0, **UNBOUND),
    )
    assert made.harm.met == 1
    assert made.harm.later == made.harm.sooner == 0
    assert made.harm.most_s == made.harm.waited_most_s == 0.0


@pytest.mark.parametrize(("notice_s", "waits_s"), [(30.0, 5.0), (5.0, 5.0), (3.0, 3.0)])
def test_a_job_waits_for_a_commit_and_no_longer_than_the_notice(
    notice_s: float, waits_s: float
) -> None:
    made = play(
        stage_of(PAIR, 2, until_s=240.0),
        [trainer()],
        LoopSettings(notice_s=notice_s, commit_s=5.0, **UNBOUND),
    )
    assert (made.harm.jobs, made.harm.later, made.harm.most_s) == (1, 1, waits_s)
    assert made.harm.met_later_most_s == made.harm.waited_most_s == waits_s
    # The nodes are not idle while the trainer commits, and it trains no more then.
    assert made.replay.samples == 2 * 10 * 40
    assert made.replay.pool_node_s == 2 * (60 + 30 - waits_s)


def test_a_job_that_meets_nobody_does_not_wait() -> None:
    # It comes at 110 s: the nodes are idle, and the broker has not looked yet.
    early = [J(0.0, 100.0, 2), J(110.0, 50.0, 2)]
    made = play(stage_of(early, 2, until_s=200.0), [trainer()], LoopSettings(**UNBOUND))
    assert made.harm.met == made.harm.later == 0


def test_a_trainer_that_finished_before_the_job_came_has_nothing_to_commit() -> None:
    # 20 samples/s from 120 s on: 600 samples are done at 150 s, ten before the job.
    made = play(
        stage_of(PAIR, 2, until_s=240.0),
        [trainer(samples=600.0)],
        LoopSettings(**UNBOUND),
    )
    assert made.replay.finished == 1
    assert made.harm.met == made.harm.later == 0


def test_what_delays_one_job_delays_those_behind_it() -> None:
    # The third needs both nodes and waits for the second, which waits 5 s for us.
    jobs = [*PAIR, J(170.0, 10.0, 2)]
    made = play(stage_of(jobs, 2, until_s=240.0), [trainer()], LoopSettings(**UNBOUND))
    assert (made.harm.met, made.harm.later, made.harm.most_s) == (1, 2, 5.0)
    assert made.harm.mean_s == made.harm.median_s == 5.0


def test_a_job_that_starts_after_the_broker_has_gone_is_compared_too() -> None:
    jobs = [*PAIR, J(170.0, 10.0, 2)]
    made = play(stage_of(jobs, 2, until_s=180.0), [trainer()], LoopSettings(**UNBOUND))
    assert (made.harm.jobs, made.harm.later) == (2, 2)


PLANNED = [J(0.0, 200.0, 1, 200.0), J(10.0, 50.0, 2, 50.0)]
"""The second waits from 10 s for the first, and is planned for 200 s, as it comes."""


def test_a_lease_ends_its_margin_before_the_planned_start() -> None:
    made = play(
        stage_of(PLANNED, 2, until_s=240.0),
        [trainer()],
        LoopSettings(margin_s=30.0, shortest_s=0.0),
    )
    # Node 1 is idle from 0 and held at once; by the tick at 60 s the plan is known.
    assert made.replay.used_node_s == 170.0
    assert made.replay.preemptions == 0
    assert made.harm.met == made.harm.later == 0


def test_a_broker_that_is_blind_to_plans_is_met_by_the_planned_job() -> None:
    made = play(
        stage_of(PLANNED, 2, until_s=240.0),
        [trainer()],
        LoopSettings(knows_plans=False, margin_s=30.0, shortest_s=0.0),
    )
    assert made.replay.used_node_s == 200.0
    assert made.replay.preemptions == 1
    assert made.harm.met == 1
    assert made.harm.most_s == 5.0


def test_a_lease_that_ends_just_as_its_job_starts_is_not_met() -> None:
    made = play(
        stage_of(PLANNED, 2, until_s=240.0),
        [trainer()],
        LoopSettings(margin_s=0.0, shortest_s=0.0),
    )
    assert made.replay.used_node_s == 200.0
    assert made.replay.preemptions == made.harm.met == 0


def test_a_hole_too_short_for_a_lease_is_left_alone() -> None:
    # Node 1 is taken at 0 s before anything is planned; given back, it is not taken
    # again: at 60 s and later less than 150 s are left.
    jobs = [J(0.0, 200.0, 1, 200.0), J(0.0, 50.0, 1, 50.0), J(10.0, 50.0, 2, 50.0)]
    made = play(
        stage_of(jobs, 2, until_s=240.0),
        [trainer()],
        LoopSettings(margin_s=30.0, shortest_s=120.0),
    )
    assert made.replay.used_node_s == 0.0


def test_nodes_of_several_units_are_held_whole_and_left_for_any_unit() -> None:
    jobs = [J(0.0, 100.0, 4), J(160.0, 200.0, 1)]
    stage = Stage(trace_of(jobs, 4, 2), Method.EASY, days=240.0 / DAY_S)
    made = play(stage, [trainer()], LoopSettings(notice_s=0.0, **UNBOUND))
    # Two nodes from 120 s; one unit of the first is taken at 160 s.
    assert made.replay.samples == 10 * (2 * 40 + 80)


def test_long_holes_are_counted_by_their_length_and_use() -> None:
    jobs = [J(0.0, 30.0, 2), J(100.0, 50.0, 1), J(800.0, 100.0, 2)]
    made = play(
        stage_of(jobs, 2, until_s=880.0),
        [trainer()],
        LoopSettings(notice_s=0.0, **UNBOUND),
    )
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


WITH_LEASES_AS_JOBS = replace(
    usual_settings(Mode.YIELD), tick_s=60.0, lead_s=None, last_s=None
)


def test_where_leases_are_jobs_others_wait_for_the_next_tick() -> None:
    made = play(stage_of(PAIR, 2, until_s=300.0), [trainer()], WITH_LEASES_AS_JOBS)
    # Held from 120 s; the job of 160 s gets the nodes at the tick of 180 s, and they
    # are free again at 230 s and held from 240 s on.
    assert made.replay.samples == 2 * 10 * (60 + 60)
    assert (made.harm.met, made.harm.waited_most_s) == (1, 20.0)
    assert (made.harm.later, made.harm.most_s) == (1, 20.0)


def test_nodes_that_a_waiting_job_could_start_on_are_not_leased() -> None:
    # Under slurm the third waits for a backfill cycle, as the second needs all nodes.
    jobs = [J(0.0, 95.0, 1), J(0.0, 900.0, 3), J(59.0, 10.0, 1, 10.0)]
    stage = stage_of(jobs, 3, until_s=120.0, method=Method.SLURM)
    made = play(stage, [trainer()], WITH_LEASES_AS_JOBS)
    assert made.harm.most_s <= 60.0


def test_a_lease_that_puts_a_start_off_goes_and_the_next_one_ends_before_it() -> None:
    made = play(
        stage_of(PLANNED, 2, until_s=240.0),
        [trainer()],
        replace(WITH_LEASES_AS_JOBS, margin_s=30.0, shortest_s=0.0),
    )
    # Held from 0 s for four hours, behind which the second job is planned. The tick at
    # 60 s gives the node up, and that at 120 s takes it until 30 s before 200 s.
    assert made.replay.used_node_s == 60.0 + 50.0
    assert made.harm.met == made.harm.later == 0


def test_a_blind_broker_that_yields_delays_a_planned_job_to_the_next_tick() -> None:
    made = play(
        stage_of(PLANNED, 2, until_s=300.0),
        [trainer()],
        replace(WITH_LEASES_AS_JOBS, knows_plans=False),
    )
    # It could start at 200 s; the broker looks at 240 s.
    assert (made.harm.met, made.harm.waited_most_s, made.harm.most_s) == (1, 40.0, 40.0)


def test_a_lease_that_begins_while_somebody_waits_ends_before_that_could_start() -> (
    None
):
    # Node 1 comes free at 50 s, and node 0 by 180 s; what is planned is not told.
    jobs = [J(0.0, 180.0, 1, 180.0), J(0.0, 50.0, 1, 50.0), J(10.0, 50.0, 2, 50.0)]
    loop = replace(WITH_LEASES_AS_JOBS, knows_plans=False, shortest_s=0.0)
    made = play(stage_of(jobs, 2, until_s=230.0), [trainer()], loop)
    assert made.replay.used_node_s == 90.0
    assert made.harm.met == made.harm.later == 0


def test_leases_are_given_back_when_the_broker_goes() -> None:
    # It leaves at 170 s: the job of 160 s has the nodes then, and not at 180 s.
    made = play(stage_of(PAIR, 2, until_s=170.0), [trainer()], WITH_LEASES_AS_JOBS)
    assert made.harm.most_s == pytest.approx(10.0)


OVERTAKEN = [
    J(0.0, 180.0, 2, 1000.0),
    J(10.0, 50.0, 3, 100.0),
    J(20.0, 100.0, 2, 100.0),
]
"""The first ends early, just as backfill looks. The second could have all three nodes
then, but for a lease of 120 s that is to end before 1,020 s: the third goes ahead."""


@pytest.mark.parametrize("until_s", [600.0, 210.0])
def test_who_is_overtaken_waits_for_us_until_it_starts(until_s: float) -> None:
    stage = stage_of(OVERTAKEN, 3, until_s=until_s, method=Method.SLURM)
    made = play(stage, [trainer()], WITH_LEASES_AS_JOBS)
    # It starts when the third ends, at 280 s, whether the broker is there still or not.
    assert (made.harm.met, made.harm.waited_most_s) == (1, 100.0)
    assert made.harm.waited_longer == 1


EARLY = [replace(OVERTAKEN[0], run_s=172.0), *OVERTAKEN[1:]]
"""Here the first ends before backfill looks."""


@pytest.mark.parametrize(
    ("loop", "waits_s"),
    [
        # Leases leave at 175 s, and backfill looks at 180 s.
        (replace(WITH_LEASES_AS_JOBS, tick_s=30.0, lead_s=5.0), 3.0),
        # The look at 165 s sees nothing to do.
        (replace(WITH_LEASES_AS_JOBS, tick_s=30.0, lead_s=15.0), 108.0),
        # The last look at 178 s does: leases leave, and backfill looks at 180 s.
        (replace(WITH_LEASES_AS_JOBS, tick_s=30.0, lead_s=15.0, last_s=2.0), 6.0),
        (replace(WITH_LEASES_AS_JOBS, tick_s=30.0, lead_s=15.0, last_s=15.0), 108.0),
        (WITH_LEASES_AS_JOBS, 108.0),
    ],
)
def test_nobody_is_overtaken_whom_a_look_before_backfill_sees(
    loop: LoopSettings, waits_s: float
) -> None:
    stage = stage_of(EARLY, 3, until_s=600.0, method=Method.SLURM)
    made = play(stage, [trainer()], loop)
    assert (made.harm.met, made.harm.waited_most_s) == (1, waits_s)


@pytest.mark.parametrize(
    ("start_s", "until_s", "lead_s", "used_s"),
    [
        (0.0, 130.0, None, 10.0),  # 60 and 120 s
        (0.0, 130.0, 5.0, 15.0),  # 55 and 115 s
        (50.0, 80.0, None, 20.0),  # 110 s
        (50.0, 80.0, 5.0, 15.0),  # 55 and 115 s
        (50.0, 80.0, 10.0, 20.0),  # 110 s: 50 s is where it begins
    ],
)
def test_looks_are_early_by_the_clock_of_the_log(
    start_s: float, until_s: float, lead_s: float | None, used_s: float
) -> None:
    loop = replace(WITH_LEASES_AS_JOBS, lead_s=lead_s)
    stage = stage_of([J(0.0, 100.0, 2)], 2, until_s=until_s, start_s=start_s)
    made = play(stage, [trainer()], loop)
    assert made.replay.used_node_s == 2 * used_s


def test_there_is_a_last_look_where_somebody_waits_and_something_happened() -> None:
    loop = replace(WITH_LEASES_AS_JOBS, tick_s=30.0, lead_s=15.0, last_s=2.0)
    made = play(
        stage_of(EARLY, 3, until_s=300.0, method=Method.SLURM), [trainer()], loop
    )
    times_s = {step.time_s for step in made.replay.steps}
    # Jobs come at 10 and 20 s; who waits then waits until 180 s.
    assert {t for t in range(28, 180, 30) if t in times_s} == {28, 178}


def test_looks_come_in_order_however_early_they_are() -> None:
    # Two cycles ahead is just before the last look of the one in between.
    loop = replace(WITH_LEASES_AS_JOBS, tick_s=30.0, lead_s=45.0, last_s=2.0)
    made = play(stage_of(EARLY, 3, until_s=600.0), [trainer()], loop)
    times_s = [step.time_s for step in made.replay.steps]
    assert times_s == sorted(times_s)


def test_under_yield_a_look_comes_before_each_cycle_of_backfill() -> None:
    usual = usual_settings(Mode.YIELD)
    assert usual.tick_s == SlurmParameters().bf_interval_s
    assert 0.0 < (usual.last_s or 0.0) < (usual.lead_s or 0.0) < usual.tick_s
    assert usual_settings(Mode.PREEMPT).lead_s is None


def test_nobody_waits_for_us_before_the_scheduler_looks() -> None:
    jobs = [J(0.0, 1000.0, 2, 1000.0), J(5.0, 50.0, 3, 100.0), J(121.0, 9.0, 1, 60.0)]
    stage = stage_of(jobs, 3, until_s=300.0, method=Method.SLURM)
    made = play(stage, [trainer()], WITH_LEASES_AS_JOBS)
    # The third is behind the second, so that backfill would start it, at 150 s; the
    # tick at 180 s gives the node up, which is leased from 120 s on.
    assert (made.harm.met, made.harm.waited_most_s) == (1, 30.0)
