"""Looks at the cluster that backfill overlapped, and plans carried over them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.holes import (
    BackfillPlans,
    HiddenPlan,
    PlannedStart,
    carry_plans,
    is_torn,
    plans_of,
)
from slurm.records import JobRecord, NodeState, Sdiag
from tests.slurm_library.clusters import (
    HOUR_S,
    NOW_S,
    SCENARIOS,
    node,
    recorded_snapshot,
    running,
    snapshot_of,
    statistics,
    waiting,
)

TORN = statistics(is_active=True)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_only_the_snapshot_that_backfill_overlapped_is_torn(scenario: str) -> None:
    assert recorded_snapshot(scenario).is_torn == (scenario == "torn")


def test_a_recorded_torn_snapshot_shows_no_plan_of_its_jobs() -> None:
    torn = recorded_snapshot("torn")

    assert sum(job.is_pending for job in torn.jobs) == 31
    assert plans_of(torn) == BackfillPlans()


@pytest.mark.parametrize(
    "after",
    [
        replace(statistics(), bf_active=True),
        replace(statistics(), bf_last_cycle_s=NOW_S),
        replace(statistics(), bf_cycles=7),
        replace(statistics(), since_s=1.0),
        replace(statistics(), bf_last_cycle_s=None),
    ],
)
def test_any_trace_of_a_cycle_in_between_tears_a_look(after: Sdiag) -> None:
    assert is_torn(statistics(), after)
    assert is_torn(after, statistics())


def test_time_alone_tears_nothing() -> None:
    assert not is_torn(statistics(), replace(statistics(), taken_s=NOW_S + 9))


def test_a_node_planned_for_no_job_we_see_is_a_hidden_plan() -> None:
    private = recorded_snapshot("private")

    plans = plans_of(private)

    (own,) = private.jobs
    assert [plan.job_id for plan in plans.starts] == [own.job_id]
    assert [plan.node for plan in plans.hidden] == ["n4", "n5", "n6", "n7"]


def test_a_torn_snapshot_keeps_the_plan_of_a_job_that_still_waits() -> None:
    before = snapshot_of(nodes=[node("n1")], jobs=[waiting(7, "n1", NOW_S + HOUR_S)])
    torn = snapshot_of(nodes=[node("n1")], jobs=[waiting(7, "", None)], statistic=TORN)

    carried = carry_plans(plans_of(before), torn, max_age_s=60)

    assert plans_of(carried).starts == (PlannedStart(7, NOW_S + HOUR_S, "n1", NOW_S),)


def test_a_torn_snapshot_keeps_a_node_planned_for_a_hidden_job() -> None:
    before = snapshot_of(nodes=[node("n1", NodeState.IDLE, NodeState.PLANNED)])
    torn = snapshot_of(nodes=[node("n1")], statistic=TORN)

    carried = carry_plans(plans_of(before), torn, max_age_s=60)

    assert plans_of(carried).hidden == (HiddenPlan("n1", NOW_S),)


def test_a_node_marked_for_a_carried_plan_is_not_for_a_hidden_job() -> None:
    """Nodes read before the cycle began, jobs after: seen on 22.05.8."""
    marked = node("n1", NodeState.IDLE, NodeState.PLANNED)
    old = BackfillPlans((PlannedStart(7, NOW_S + HOUR_S, "n1", NOW_S),))
    torn = snapshot_of(nodes=[marked], jobs=[waiting(7, "", None)], statistic=TORN)

    assert plans_of(carry_plans(old, torn, max_age_s=60)) == old
    assert plans_of(torn).hidden == (HiddenPlan("n1", NOW_S),)


def test_a_whole_snapshot_needs_no_carried_plan() -> None:
    before = snapshot_of(nodes=[node("n1")], jobs=[waiting(7, "n1", NOW_S + HOUR_S)])
    now = snapshot_of(nodes=[node("n1")], jobs=[waiting(7, "", None)])

    assert carry_plans(plans_of(before), now, max_age_s=60) is now


def test_a_new_plan_counts_instead_of_the_old_one() -> None:
    old = BackfillPlans((PlannedStart(7, NOW_S + HOUR_S, "n1", NOW_S),))
    torn = snapshot_of(
        nodes=[node("n2")], jobs=[waiting(7, "n2", NOW_S + 60)], statistic=TORN
    )

    plans = plans_of(carry_plans(old, torn, max_age_s=60))

    assert [(plan.nodes, plan.start_s) for plan in plans.starts] == [("n2", NOW_S + 60)]


@pytest.mark.parametrize("jobs", [[], [running(7, "n1")]])
def test_the_plan_of_a_job_that_waits_no_more_is_dropped(jobs: list[JobRecord]) -> None:
    old = BackfillPlans((PlannedStart(7, NOW_S + HOUR_S, "n1", NOW_S),))
    torn = replace(snapshot_of(nodes=[node("n1")], statistic=TORN), jobs=tuple(jobs))

    assert plans_of(carry_plans(old, torn, max_age_s=60)) == BackfillPlans()


@given(st.lists(st.integers(min_value=1, max_value=100), min_size=1, max_size=20))
def test_a_plan_is_carried_as_long_as_it_is_young_and_no_longer(
    steps_s: list[int],
) -> None:
    plans = BackfillPlans(
        (PlannedStart(7, NOW_S + HOUR_S, "n1", NOW_S),), (HiddenPlan("n2", NOW_S),)
    )
    at_s = NOW_S
    for step_s in steps_s:
        at_s += step_s
        torn = snapshot_of(
            nodes=[node("n1"), node("n2")],
            jobs=[waiting(7, "", None)],
            statistic=statistics(taken_s=at_s, is_active=True),
        )
        plans = plans_of(carry_plans(plans, torn, max_age_s=300))
        is_young = at_s - NOW_S <= 300
        assert (len(plans.starts), len(plans.hidden)) == (is_young, is_young)
