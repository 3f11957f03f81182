"""Until when a node stays idle, and why not longer."""

import math
from dataclasses import replace

import pytest

from slurm.errors import UnreadableOutputError
from slurm.holes import Hole, HoleEnd
from slurm.records import (
    NodeState,
    Reservation,
)
from slurm.snapshot import carry_plans, plans_of
from tests.slurm_library.clusters import (
    HOUR_S,
    NOW_S,
    look,
    node,
    statistics,
    waiting,
)
from tests.slurm_library.holes_found import holes, ours


def reservation(start_s: float, end_s: float | None, *flags: str) -> Reservation:
    return Reservation("r", start_s, end_s, nodes="n1", flags=frozenset(flags))


def test_a_hole_ends_where_the_earliest_planned_job_starts_less_the_margin() -> None:
    jobs = [
        waiting(8, "n[1-2]", NOW_S + 2 * HOUR_S),
        waiting(7, "n1", NOW_S + HOUR_S),
    ]
    found = holes(look(nodes=[node("n1"), node("n2")], jobs=jobs), margin_s=60)

    assert found["n1"] == Hole(
        "n1", NOW_S, NOW_S + HOUR_S - 60, HoleEnd.PLANNED_JOB, "7"
    )
    assert found["n2"].end_s == NOW_S + 2 * HOUR_S - 60
    assert found["n2"].blocker == "8"


def test_a_start_without_planned_nodes_ends_no_hole() -> None:
    found = holes(look(nodes=[node("n1")], jobs=[waiting(7, "", NOW_S + 60)]))

    assert found["n1"].ends_by is HoleEnd.PARTITION_LIMIT


@pytest.mark.parametrize("late_s", [0.0, 1.0, 900.0])
def test_a_plan_that_is_due_or_overdue_leaves_no_hole(late_s: float) -> None:
    jobs = [waiting(7, "n1", NOW_S - late_s)]

    assert holes(look(nodes=[node("n1")], jobs=jobs)) == {}


def test_a_plan_within_the_margin_leaves_no_hole() -> None:
    snapshot = look(nodes=[node("n1")], jobs=[waiting(7, "n1", NOW_S + 60)])

    assert holes(snapshot, margin_s=60) == {}
    assert holes(snapshot, margin_s=59)["n1"].end_s == NOW_S + 1


def test_our_own_waiting_leases_hold_no_plan_against_us() -> None:
    jobs = [ours(waiting(7, "n1", NOW_S + 60))]

    assert holes(look(nodes=[node("n1")], jobs=jobs))["n1"].blocker == ""


def test_a_node_planned_for_our_own_lease_is_not_planned_for_somebody_hidden() -> None:
    nodes = [node("n1", NodeState.IDLE, NodeState.PLANNED)]
    jobs = [ours(waiting(7, "n1", NOW_S + 60))]

    found = holes(look(nodes=nodes, jobs=jobs))

    assert found["n1"].ends_by is HoleEnd.PARTITION_LIMIT


def test_a_node_planned_for_nobody_we_see_is_a_hole_of_unknown_length() -> None:
    found = holes(look(nodes=[node("n1", NodeState.IDLE, NodeState.PLANNED)]))

    assert found["n1"].end_s is None
    assert found["n1"].ends_by is HoleEnd.UNKNOWN_PLANNER


def test_jobs_without_told_plans_are_refused() -> None:
    job = replace(waiting(7, "", None), planned_nodes=None)

    with pytest.raises(UnreadableOutputError, match="without planned nodes"):
        holes(look(nodes=[node("n1")], jobs=[job]))


@pytest.mark.parametrize(
    ("max_time_s", "window_s", "end_s", "ends_by"),
    [
        (HOUR_S, math.inf, NOW_S + HOUR_S, HoleEnd.PARTITION_LIMIT),
        (HOUR_S, 2 * HOUR_S, NOW_S + HOUR_S, HoleEnd.PARTITION_LIMIT),
        (3 * HOUR_S, 2 * HOUR_S, NOW_S + 2 * HOUR_S, HoleEnd.BACKFILL_WINDOW),
        (math.inf, 2 * HOUR_S, NOW_S + 2 * HOUR_S, HoleEnd.BACKFILL_WINDOW),
        (math.inf, math.inf, math.inf, HoleEnd.OPEN),
    ],
)
def test_a_hole_that_nobody_waits_for_ends_with_the_limit_or_the_window(
    max_time_s: float, window_s: float, end_s: float, ends_by: HoleEnd
) -> None:
    snapshot = look(nodes=[node("n1")], max_time_s=max_time_s)

    found = holes(snapshot, margin_s=60, window_s=window_s)

    assert (found["n1"].end_s, found["n1"].ends_by) == (end_s, ends_by)


@pytest.mark.parametrize("flag", ["MAINT", "MAGNETIC", "TIME_FLOAT", "SPEC_NODES"])
def test_a_hole_ends_where_any_kind_of_reservation_begins(flag: str) -> None:
    coming = reservation(NOW_S + HOUR_S, NOW_S + 2 * HOUR_S, flag)

    found = holes(
        look(nodes=[node("n1"), node("n2")], reservations=[coming]), margin_s=9
    )

    assert (found["n1"].end_s, found["n1"].blocker) == (NOW_S + HOUR_S - 9, "r")
    assert found["n2"].ends_by is HoleEnd.PARTITION_LIMIT


@pytest.mark.parametrize("end_s", [NOW_S + 1, None])
def test_a_reservation_that_lasts_leaves_no_hole(end_s: float | None) -> None:
    lasting = reservation(NOW_S - HOUR_S, end_s)

    assert holes(look(nodes=[node("n1")], reservations=[lasting])) == {}


def test_a_reservation_that_is_over_ends_no_hole() -> None:
    over = reservation(NOW_S - HOUR_S, NOW_S)

    found = holes(look(nodes=[node("n1")], reservations=[over]))

    assert found["n1"].ends_by is HoleEnd.PARTITION_LIMIT


@pytest.mark.parametrize(
    ("flag", "next_s"),
    [
        ("HOURLY", NOW_S + 0.25 * HOUR_S),
        ("DAILY", NOW_S + 14.25 * HOUR_S),
        ("WEEKDAY", NOW_S + 14.25 * HOUR_S),
        ("WEEKEND", NOW_S + 14.25 * HOUR_S),
        ("WEEKLY", NOW_S + 158.25 * HOUR_S),
    ],
)
def test_a_recurring_reservation_that_is_over_comes_again(
    flag: str, next_s: float
) -> None:
    over = reservation(NOW_S - 9.75 * HOUR_S, NOW_S - 9.25 * HOUR_S, flag)
    snapshot = look(nodes=[node("n1")], reservations=[over], max_time_s=math.inf)

    found = holes(snapshot)

    assert (found["n1"].end_s, found["n1"].ends_by) == (next_s, HoleEnd.RESERVATION)


def test_no_phantom_hole_opens_while_backfill_makes_its_plans_anew() -> None:
    planned = waiting(7, "n1", NOW_S + HOUR_S)
    before = look(nodes=[node("n1")], jobs=[planned])
    cleared = replace(planned, start_s=None, planned_nodes="")
    torn = look(
        nodes=[node("n1")], jobs=[cleared], statistic=statistics(is_active=True)
    )

    found = holes(carry_plans(plans_of(before), torn, max_age_s=60))

    assert found == holes(before)
    assert holes(torn) != found
