"""Loops under ``yield`` that are small enough to work out on paper.

One trainer does 10 samples/s a node and changes nodes for nothing; the broker ticks
every 60 s, unless a test says otherwise.
"""

from dataclasses import replace

import pytest

from freetrain.broker.limits import Mode
from freetrain.config.site import LeaseSettings
from freetrain.replay.settings import LoopSettings, usual_settings
from logs.simulation import Method, SlurmParameters
from tests.replay.loop.worlds_loop import PAIR, PLANNED, J, play, stage_of
from tests.replay.worlds import trainer

WITH_LEASES_AS_JOBS = replace(
    usual_settings(Mode.YIELD),
    tick_s=60.0,
    lead_s=None,
    last_s=None,
    is_careful=False,
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


@pytest.mark.parametrize("until_s", [600.0, 210.0])
def test_nobody_is_overtaken_where_leases_are_careful(until_s: float) -> None:
    stage = stage_of(OVERTAKEN, 3, until_s=until_s, method=Method.SLURM)
    made = play(stage, [trainer()], replace(WITH_LEASES_AS_JOBS, is_careful=True))
    # The third node is left alone, as the second would need it if the first ended.
    assert made.harm.met == 0


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


def test_under_yield_the_usual_loop_is_as_careful_as_the_usual_site() -> None:
    assert usual_settings(Mode.YIELD).is_careful == LeaseSettings().careful


def test_nobody_waits_for_us_before_the_scheduler_looks() -> None:
    jobs = [J(0.0, 1000.0, 2, 1000.0), J(5.0, 50.0, 3, 100.0), J(121.0, 9.0, 1, 60.0)]
    stage = stage_of(jobs, 3, until_s=300.0, method=Method.SLURM)
    made = play(stage, [trainer()], WITH_LEASES_AS_JOBS)
    # The third is behind the second, so that backfill would start it, at 150 s; the
    # tick at 180 s gives the node up, which is leased from 120 s on.
    assert (made.harm.met, made.harm.waited_most_s) == (1, 30.0)
