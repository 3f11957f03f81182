"""Loops small enough to work out on paper.

One trainer does 10 samples/s a node and changes nodes for nothing; the broker ticks
every 60 s, unless a test says otherwise, and holds all nodes that are idle at a tick.
"""

from dataclasses import replace
from typing import Any

import pytest

from freetrain.broker.limits import Mode
from freetrain.config.site import LeaseSettings
from freetrain.errors import UsageError
from freetrain.replay.loop import Stage
from freetrain.replay.settings import Accounting, LoopSettings, usual_settings
from freetrain.replay.trainers import Costs
from freetrain.text import DAY_S
from logs.simulation import Method, SlurmParameters
from tests.replay.loop.worlds_loop import (
    PAIR,
    PLANNED,
    UNBOUND,
    J,
    gpu_stage_of,
    play,
    stage_of,
    trace_of,
)
from tests.replay.worlds import cases, check, linear, trainer

AT_ONCE = UNBOUND | {"notice_s": 0.0}

BEHIND = [*PAIR, J(170.0, 10.0, 2)]

SHORT = [J(0.0, 200.0, 1, 200.0), J(0.0, 50.0, 1, 50.0), J(10.0, 50.0, 2, 50.0)]
HOLES = [J(0.0, 30.0, 2), J(100.0, 50.0, 1), J(800.0, 100.0, 2)]
UNMET = "harm.met=0 harm.later=0 "


HELD = "replay.samples=800 replay.used_node_s=80 replay.preemptions=1 harm.met=1 "
PLAN_BOUND = {"margin_s": 30.0, "shortest_s": 0.0}


@pytest.mark.parametrize(
    ("jobs", "until_s", "loop", "figures"),
    cases(
        # Idle from 100 s, held from the tick at 120 s, taken at 160 s; no job waits.
        (
            "nodes are held from the next tick until a job takes them",
            *(PAIR, 240.0, AT_ONCE, f"{HELD} replay.pool_node_s=180"),
        ),
        (
            "no job waits where there is no notice",
            *(PAIR, 240.0, AT_ONCE),
            "harm.later=0 harm.sooner=0 harm.most_s=0 harm.waited_most_s=0",
        ),
        # The nodes are not idle while the trainer commits, and it trains no more then.
        *[
            (
                f"a job waits for a commit, and a notice of {notice_s:g} s at most",
                *(PAIR, 240.0, UNBOUND | {"notice_s": notice_s, "commit_s": 5.0}),
                (
                    f"{HELD} harm.jobs=1 harm.later=1 harm.most_s={waits_s} "
                    f"harm.met_later_most_s={waits_s} harm.waited_most_s={waits_s} "
                    f"replay.pool_node_s={180 - 2 * waits_s}"
                ),
            )
            for notice_s, waits_s in ((30.0, 5), (5.0, 5), (3.0, 3))
        ],
        # It comes at 110 s: the nodes are idle, and the broker has not polled yet.
        (
            "a job that meets no lease does not wait",
            *([PAIR[0], J(110.0, 50.0, 2)], 200.0, UNBOUND, UNMET),
        ),
        # The third needs both nodes and waits for the second, which waits 5 s for us.
        (
            "a delay of one job delays those behind it",
            *(BEHIND, 240.0, UNBOUND),
            "harm.met=1 harm.later=2 harm.most_s=5 harm.mean_s=5 harm.median_s=5",
        ),
        (
            "a job that starts after the broker has gone is compared too",
            *(BEHIND, 180.0, UNBOUND, "harm.jobs=2 harm.later=2"),
        ),
        # Node 1 is idle from 0 and held at once; by the tick at 60 s the plan is known.
        (
            "a lease ends its margin before the planned start",
            *(PLANNED, 240.0, PLAN_BOUND),
            f"{UNMET} replay.used_node_s=170 replay.preemptions=0",
        ),
        (
            "a broker that is blind to plans is met by the planned job",
            *(PLANNED, 240.0, PLAN_BOUND | {"knows_plans": False}),
            "replay.used_node_s=200 replay.preemptions=1 harm.met=1 harm.most_s=5",
        ),
        (
            "a lease that ends just as its job starts is not met",
            *(PLANNED, 240.0, PLAN_BOUND | {"margin_s": 0.0}),
            f"{UNMET} replay.used_node_s=200 replay.preemptions=0",
        ),
        # Node 1 is taken at 0 s before anything is planned; given back, it is not taken
        # again: at 60 s and later less than 150 s are left.
        (
            "a hole too short for a lease is left alone",
            *(SHORT, 240.0, PLAN_BOUND | {"shortest_s": 120.0}, "replay.used_node_s=0"),
        ),
        # Node 0: 30 to 100 s, and 150 to 800 s, held from 180 s. Node 1: 30 to 800 s,
        # held from 60 s.
        (
            "long holes are counted by their length and use",
            *(HOLES, 880.0, AT_ONCE),
            (
                "holes.holes=3 holes.node_s=1490 holes.long_holes=2 "
                "holes.long_node_s=1420 holes.long_used_node_s=1360 "
                "holes.long_use=1360/1420"
            ),
        ),
    ),
)
def test_under_preempt(
    jobs: list[J], until_s: float, loop: dict[str, Any], figures: str
) -> None:
    stage = stage_of(jobs, 2, until_s=until_s)
    check(play(stage, [trainer()], LoopSettings(**loop)), figures)


# Nodes of four GPUs, which jobs and leases share; figures count leases as nodes.

ALL = J(0.0, 10.0, 4)


@pytest.mark.parametrize(
    ("jobs", "lease_gpus", "most", "loop", "figures"),
    cases(
        # Two leases from 0 s, four from the tick at 120 s; the last goes at 160 s, and
        # the other job has run for 50 s from 165 s on when it comes free.
        (
            "a job takes as many leases as it has GPUs, and waits for them",
            *([J(0.0, 100.0, 2), J(160.0, 50.0, 1)], 1, 4),
            *(UNBOUND, "replay.samples=6400 harm.met=1 harm.most_s=5"),
        ),
        # One trainer on the last two of four: the first two are free.
        (
            "what no lease has is taken first",
            *([J(160.0, 50.0, 2)], 1, 2),
            *(UNBOUND, f"{UNMET} replay.samples=4800 replay.preemptions=0"),
        ),
        (
            "jobs that meet the same lease wait for it together",
            *([ALL, J(160.0, 50.0, 1), J(160.0, 50.0, 1)], 4, 4),
            *(UNBOUND, "harm.met=2 harm.later=2 harm.most_s=5 harm.total_s=10"),
        ),
        # Three of four GPUs are room for one lease of two; all four, from 120 s, for
        # two, and from 160 s three again.
        (
            "a lease goes where too few GPUs are left for it",
            *([J(0.0, 100.0, 1), J(160.0, 90.0, 1)], 2, 4),
            *(UNBOUND, "replay.samples=2800 harm.met=1"),
        ),
        # A job of 1 GPU comes as another of 1 ends: the leases keep theirs.
        (
            "what a job leaves is free for the next one at once",
            *([J(0.0, 100.0, 2), J(100.0, 100.0, 2)], 1, 4),
            *(UNBOUND, f"{UNMET} replay.samples=4800 replay.preemptions=0"),
        ),
        # The second is planned for 200 s and leaves two GPUs of the node: yet the lease
        # of the one that is free before ends 30 s early.
        (
            "a planned start ends all leases of its node",
            *([J(0.0, 200.0, 3, 200.0), J(10.0, 50.0, 2, 50.0)], 1, 4),
            *(PLAN_BOUND, f"{UNMET} replay.used_node_s=170"),
        ),
    ),
)
def test_under_preempt_with_gpus(
    jobs: list[J], lease_gpus: int, most: int, loop: dict[str, Any], figures: str
) -> None:
    stage = gpu_stage_of(jobs, 1, lease_gpus, until_s=240.0)
    team = [trainer(scaling=linear(most=most))]
    check(play(stage, team, LoopSettings(**loop)), figures)


def test_a_trainer_that_finished_before_the_job_came_has_nothing_to_commit() -> None:
    # 20 samples/s from 120 s on: 600 samples are done at 150 s, ten before the job.
    stage, team = stage_of(PAIR, 2, until_s=240.0), [trainer(samples=600.0)]
    made = play(stage, team, LoopSettings(**UNBOUND))
    check(made, UNMET + "replay.finished=1")


@pytest.mark.parametrize(("notice_s", "kept"), [(30.0, 800.0), (4.0, 0.0)])
def test_a_trainer_that_cannot_commit_in_time_goes_back_to_the_last_commit(
    notice_s: float, kept: float
) -> None:
    # It trains from 120 to 160 s and commits every 60 s.
    costs = Costs(grow_s=0.0, shrink_s=0.0, checkpoint_every_s=60.0)
    loop = LoopSettings(notice_s=notice_s, commit_s=5.0, **UNBOUND)
    made = play(stage_of(PAIR, 2, until_s=200.0), [trainer(costs=costs)], loop)
    assert made.replay.samples == kept


def test_nodes_of_several_units_are_held_whole_and_left_for_any_unit() -> None:
    jobs = [J(0.0, 100.0, 4), J(160.0, 200.0, 1)]
    stage = Stage(trace_of(jobs, 4, 2), Method.EASY, days=240.0 / DAY_S)
    made = play(stage, [trainer()], LoopSettings(**AT_ONCE))
    # Two nodes from 120 s; one unit of the first is taken at 160 s.
    assert made.replay.samples == 10 * (2 * 40 + 80)


@pytest.mark.parametrize("accounting", Accounting)
def test_idle_time_counts_up_to_the_end_of_the_loop(accounting: Accounting) -> None:
    stage = stage_of([J(0.0, 100.0, 2)], 2, until_s=230.0)

    result = play(stage, [trainer()], LoopSettings(**AT_ONCE), accounting=accounting)

    assert result.replay.pool_node_s == 2 * 130.0


def test_a_loop_begins_at_its_start_with_the_jobs_that_run_then() -> None:
    stage = stage_of(PAIR, 2, until_s=140.0, start_s=50.0)
    made = play(stage, [trainer()], LoopSettings(**AT_ONCE))
    # Ticks at 50, 110 and 170 s of the log: held from 110 to 160 s.
    check(made, "replay.samples=1000 harm.jobs=1")


@pytest.mark.parametrize("policy", ["scavenger", "static"])
def test_policies_that_cannot_wait_for_a_tick_are_refused(policy: str) -> None:
    with pytest.raises(UsageError, match="cannot be in the loop"):
        play(stage_of(PAIR, 2, until_s=9.0), [trainer()], LoopSettings(), policy=policy)


@pytest.mark.parametrize(
    "wrong",
    [
        {"tick_s": 0.0},
        *[{name: -1.0} for name in ("lead_s", "last_s", "notice_s", "margin_s")],
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="Nothing was replayed"):
        LoopSettings(**wrong)


# Under yield: leases are jobs

YIELD = replace(
    usual_settings(Mode.YIELD),
    tick_s=60.0,
    lead_s=None,
    last_s=None,
    is_careful=False,
)

OVERTAKEN = [
    J(0.0, 180.0, 2, 1000.0),
    J(10.0, 50.0, 3, 100.0),
    J(20.0, 100.0, 2, 100.0),
]
"""The first ends early, just as backfill looks. The second could have all three nodes
then, but for a lease of 120 s that is to end before 1,020 s: the third goes ahead."""

EARLY = [replace(OVERTAKEN[0], run_s=172.0), *OVERTAKEN[1:]]
"""Here the first ends before backfill looks."""


@pytest.mark.parametrize(
    ("jobs", "until_s", "changes", "figures"),
    cases(
        # Held from 120 s; the job of 160 s gets the nodes at the tick of 180 s, and
        # they are free again at 230 s and held from 240 s on.
        (
            "others wait for the next tick",
            *(PAIR, 300.0, {}),
            (
                "replay.samples=2400 harm.met=1 harm.waited_most_s=20 harm.later=1 "
                "harm.most_s=20"
            ),
        ),
        # Held from 0 s for four hours, behind which the second job is planned. The tick
        # at 60 s lets the lease end at 120 s, by whole minutes; the next one ends 30 s
        # before the job could start.
        (
            "a lease that puts a start off ends before it",
            *(PLANNED, 240.0, PLAN_BOUND, f"{UNMET} replay.used_node_s=170"),
        ),
        # It could start at 200 s; the broker polls at 240 s.
        (
            "a blind broker delays a planned job to the next tick",
            *(PLANNED, 300.0, {"knows_plans": False}),
            "harm.met=1 harm.waited_most_s=40 harm.most_s=40",
        ),
        # Node 1 comes free at 50 s, and node 0 by 180 s; planned starts are not known.
        (
            "a lease that begins while a job waits ends before that could start",
            *([J(0.0, 180.0, 1, 180.0), *SHORT[1:]], 230.0),
            {"knows_plans": False, "shortest_s": 0.0},
            f"{UNMET} replay.used_node_s=90",
        ),
        # The broker leaves at 170 s: the job of 160 s has the nodes then.
        (
            "leases are given back when the broker goes",
            *(PAIR, 170.0, {}, "harm.most_s=10"),
        ),
    ),
)
def test_under_yield(
    jobs: list[J], until_s: float, changes: dict[str, Any], figures: str
) -> None:
    stage = stage_of(jobs, 2, until_s=until_s)
    check(play(stage, [trainer()], replace(YIELD, **changes)), figures)


@pytest.mark.parametrize(
    ("gpus", "samples", "waits_s"),
    [
        # Four leases from 0 s. At the tick of 120 s two go, for 50 s.
        (2, 10 * (4 * 120 + 2 * 60), 50),
        (4, 10 * 4 * 120, 50),
    ],
)
@pytest.mark.parametrize("method", [Method.EASY, Method.SLURM])
def test_under_yield_as_many_leases_go_as_a_job_needs_gpus(
    gpus: int, samples: float, waits_s: float, method: Method
) -> None:
    jobs = [J(70.0, 50.0, gpus, 60.0)]
    stage = gpu_stage_of(jobs, 1, 1, until_s=180.0, method=method)

    made = play(stage, [trainer()], YIELD)

    check(made, f"replay.samples={samples} harm.met=1 harm.waited_most_s={waits_s}")


def test_under_yield_a_job_that_fits_beside_leases_waits_for_none() -> None:
    # Two leases of the trainer, and two GPUs free.
    stage = gpu_stage_of([J(70.0, 50.0, 2, 60.0)], 1, 1, until_s=180.0)
    made = play(stage, [trainer(scaling=linear(most=2))], YIELD)
    check(made, f"{UNMET} replay.samples=3600")


@pytest.mark.parametrize(
    ("jobs", "until_s", "changes", "waits_s"),
    [
        # The third waits for a backfill cycle, as the second needs all nodes.
        (
            [J(0.0, 95.0, 1), J(0.0, 900.0, 3), J(59.0, 10.0, 1, 10.0)],
            120.0,
            {},
            None,
        ),
        # The third is behind the second, so that backfill would start it, at 150 s; the
        # tick at 180 s gives the node up, which is leased from 120 s on.
        (
            [J(0.0, 1000.0, 2, 1000.0), J(5.0, 50.0, 3, 100.0), J(121.0, 9.0, 1, 60.0)],
            300.0,
            {},
            30.0,
        ),
        # It starts when the third ends, at 280 s, whether the broker is there or not.
        (OVERTAKEN, 600.0, {}, 100.0),
        (OVERTAKEN, 210.0, {}, 100.0),
        # The third node is left alone, as the second needs it if the first ends.
        (OVERTAKEN, 600.0, {"is_careful": True}, None),
        (OVERTAKEN, 210.0, {"is_careful": True}, None),
        # Leases leave at 175 s, and backfill looks at 180 s.
        (EARLY, 600.0, {"tick_s": 30.0, "lead_s": 5.0}, 3.0),
        # The poll at 165 s sees nothing to do.
        (EARLY, 600.0, {"tick_s": 30.0, "lead_s": 15.0}, 108.0),
        # The last poll at 178 s does: leases leave, and backfill looks at 180 s.
        (EARLY, 600.0, {"tick_s": 30.0, "lead_s": 15.0, "last_s": 2.0}, 6.0),
        (EARLY, 600.0, {"tick_s": 30.0, "lead_s": 15.0, "last_s": 15.0}, 108.0),
        (EARLY, 600.0, {}, 108.0),
    ],
)
def test_waits_for_leases_under_backfill(
    jobs: list[J], until_s: float, changes: dict[str, Any], waits_s: float | None
) -> None:
    stage = stage_of(jobs, 3, until_s=until_s, method=Method.SLURM)
    harm = play(stage, [trainer()], replace(YIELD, **changes)).harm
    found = (harm.met, harm.waited_most_s, harm.waited_longer)
    if waits_s is None:
        assert found == (0, 0.0, 0)
    else:
        bound_s = changes.get("tick_s", 60.0)
        assert found == (1, waits_s, int(waits_s > bound_s))


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
def test_polls_are_early_by_the_clock_of_the_log(
    start_s: float, until_s: float, lead_s: float | None, used_s: float
) -> None:
    stage = stage_of([J(0.0, 100.0, 2)], 2, until_s=until_s, start_s=start_s)
    made = play(stage, [trainer()], replace(YIELD, lead_s=lead_s))
    assert made.replay.used_node_s == 2 * used_s


def test_there_is_a_last_poll_where_a_job_waits_and_something_happened() -> None:
    loop = replace(YIELD, tick_s=30.0, lead_s=15.0, last_s=2.0)
    stage = stage_of(EARLY, 3, until_s=300.0, method=Method.SLURM)
    times_s = {s.time_s for s in play(stage, [trainer()], loop).replay.steps}
    # Jobs come at 10 and 20 s; the one that waits then waits until 180 s.
    assert {t for t in range(28, 180, 30) if t in times_s} == {28, 178}


def test_polls_come_in_order_however_early_they_are() -> None:
    # Two cycles ahead is just before the last poll of the one in between.
    loop = replace(YIELD, tick_s=30.0, lead_s=45.0, last_s=2.0)
    made = play(stage_of(EARLY, 3, until_s=600.0), [trainer()], loop)
    times_s = [step.time_s for step in made.replay.steps]
    assert times_s == sorted(times_s)


def test_under_yield_the_usual_loop_polls_before_backfill_and_is_careful() -> None:
    usual = usual_settings(Mode.YIELD)
    assert usual.tick_s == SlurmParameters().bf_interval_s
    assert 0.0 < (usual.last_s or 0.0) < (usual.lead_s or 0.0) < usual.tick_s
    assert usual_settings(Mode.PREEMPT).lead_s is None
    assert usual.is_careful == LeaseSettings().careful
