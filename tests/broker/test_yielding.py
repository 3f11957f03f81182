"""To which waiting jobs leases give nodes up, and when the queue is looked at again."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.broker.backfill import (
    Backfill,
    BackfillState,
    LeaseSpan,
    SoonerEnd,
    could_start,
)
from freetrain.broker.yielding import (
    LEAD_S,
    LEAST_LEAD_S,
    Claims,
    Cycles,
    DelayProtection,
    QueueDigest,
    cycles_of,
    digest_of,
    find_claims,
    keep_free,
    last_lead_s,
)
from slurm.holes import Hole, HoleEnd
from slurm.records import JobRecord, JobState
from tests.broker.broker_records import NOW_S, UID, hole, job
from tests.broker.waiting_jobs import NODES, state_of, waiting
from tests.slurm.clusters import statistics
from tests.tick.test_leases import CONFIG


def claims_of(state: BackfillState, *jobs: JobRecord) -> Claims:
    return find_claims(jobs, state, is_ours=lambda job: job.uid == UID, now_s=NOW_S)


def four(end_s: float = math.inf) -> BackfillState:
    """Return an idle and two leased nodes, and one with GPUs, until *end_s*."""
    holes = tuple(hole(name, end_s) for name in ("n0", "n1", "n2", "g0"))
    return state_of("", "n1 n2", lease_s=None, holes=holes)


SOON = NOW_S + 300

LEASE = "freetrain-0f8fad5b-d9cb-469f-a165-70867728950e"

CLAIMS: dict[str, tuple[list[JobRecord], str, str]] = {
    "the idle node first": ([waiting()], "", "n0"),
    "then leased ones": ([waiting(nodes=2)], "n1", "n0"),
    "each job its own": ([waiting(1), waiting(2)], "n1", "n0"),
    "too many nodes": ([waiting(nodes=4)], "", ""),
    "by priority": ([waiting(1, 3, priority=1), waiting(2, priority=9)], "", "n0"),
    "one that needs fewer": ([waiting(1, 4), waiting(2, 3)], "n1 n2", "n0"),
    "our own job": ([waiting(uid=UID)], "", ""),
    "another user's lease": ([waiting(name=LEASE)], "", ""),
    "no lease": ([waiting(name="freetrain-of-thoughts")], "", "n0"),
    "another partition": ([waiting(partitions=("gpu",))], "", "g0"),
    "an absent feature": ([waiting(features="slow")], "", ""),
    "unclear features": ([waiting(features="slow|fast")], "", "n0"),
    "GRES per node": ([waiting(gres_per_node="gres/gpu:1")], "", ""),
    "GRES per job": ([waiting(gres_per_job="gres/gpu:1")], "", ""),
    "on some node": ([waiting(1, 2, gres_per_job="gres/gpu:1")], "n1", "n0"),
    "--nodelist": ([waiting(requested_nodes="n2")], "n2", ""),
    "unclear nodes": ([waiting(requested_nodes="n[[")], "", "n0"),
    "and another node": ([waiting(1, 2, requested_nodes="n2")], "n2", "n0"),
    "both": ([waiting(1, 2, requested_nodes="n[1-2]")], "n1 n2", ""),
    "an unknown node": ([waiting(1, 3, requested_nodes="n[2,9]")], "", ""),
    "whole tasks only": ([waiting(1, 2, array_tasks="0-9")], "n1", "n0"),
}


@pytest.mark.parametrize("case", CLAIMS)
def test_a_job_claims_idle_nodes_before_leased_ones(case: str) -> None:
    jobs, leased, idle = CLAIMS[case]
    claims = claims_of(four(), *jobs)
    assert " ".join(sorted(claims.leased)) == leased
    assert " ".join(sorted(claims.idle)) == idle


@pytest.mark.parametrize(
    ("jobs", "idle"),
    [
        ([waiting()], set()),
        ([waiting(limit_s=200.0)], {"n0"}),
        ([waiting(99)], {"n0"}),
        ([waiting(1), waiting(2, limit_s=200.0)], {"n0"}),
    ],
    ids=["too long", "short", "the planned job", "a short one behind a long one"],
)
def test_only_the_planned_job_or_a_short_one_fits_before_a_planned_start(
    jobs: list[JobRecord], idle: set[str]
) -> None:
    assert set(claims_of(four(SOON), *jobs).nodes) == idle


@pytest.mark.parametrize(
    "reason",
    [
        *("Dependency", "DependencyNeverSatisfied", "Licenses", "JobHeldUser"),
        *("QOSMaxJobsPerUserLimit", "AssocGrpCpuLimit", "JobArrayTaskLimit"),
        *("PartitionTimeLimit", "BeginTime", "ReservationDeleted"),
    ],
)
def test_jobs_that_nodes_would_not_help_do_not_count(reason: str) -> None:
    assert not claims_of(four(), waiting(nodes=3, reason=reason)).nodes


@pytest.mark.parametrize("reason", ["Resources", "Priority", "", "None", "NewReason"])
def test_a_reason_that_is_unknown_counts(reason: str) -> None:
    assert could_start(waiting(reason=reason), NOW_S)


def test_held_and_later_jobs_do_not_count() -> None:
    assert not could_start(waiting(priority=0), NOW_S)
    assert not could_start(waiting(eligible_s=NOW_S + 1), NOW_S)


@pytest.mark.parametrize(
    ("tasks", "nodes"),
    [
        ("", 1),
        ("4", 1),
        ("0-1", 2),
        ("1,7", 2),
        ("0-9", 3),
        ("0-9%2", 2),
        ("0-1...", 3),
    ],
)
def test_every_task_that_could_start_gets_its_node(tasks: str, nodes: int) -> None:
    assert len(claims_of(four(), waiting(array_tasks=tasks)).nodes) == nodes


@pytest.mark.parametrize(
    ("job", "are_claimed"),
    [
        (waiting(nodes=4), True),
        (waiting(array_tasks="0-999999999"), True),
        (waiting(nodes=2, array_tasks="0-9"), True),
        (waiting(nodes=5, array_tasks="0-9"), False),
    ],
    ids=["a wide job", "a million tasks, at once", "the last wide task", "too wide"],
)
def test_nodes_that_others_share_help_a_job_to_start(
    job: JobRecord, *, are_claimed: bool
) -> None:
    beside = {**four().nodes, "n3": NODES["n3"]}
    shared = replace(four(), nodes=beside, partly=frozenset({"n3"}))
    claimed = {"n0", "n1", "n2"} if are_claimed else set()
    assert claims_of(shared, job).nodes == claimed


def planned(in_s: float, nodes: int = 3, **changes: object) -> JobRecord:
    return replace(
        waiting(nodes=nodes),
        submit_s=NOW_S - 300,
        start_s=NOW_S + in_s,
        planned_nodes="n[0-2]",
        **changes,  # type: ignore[arg-type]
    )


def behind(limit_s: float) -> JobRecord:
    return waiting(2, limit_s=limit_s, priority=1)


AN_HOUR = (-600.0, 3_600.0)

PUT_OFF: dict[str, tuple[list[JobRecord], tuple[float, float], dict[str, float]]] = {
    "put off": ([planned(3_600)], AN_HOUR, {"n1": 200.0, "n2": 200.0}),
    "by young leases": ([planned(3_600)], (-1, 3_600), {"n1": 200.0, "n2": 200.0}),
    "not by leases that end": ([planned(3_600)], (-600, 200), {}),
    "but for backfill's grain": ([planned(250)], AN_HOUR, {}),
    "without a plan": ([waiting(1, 3, submit_s=NOW_S - 300)], AN_HOUR, {}),
    "a job that never starts": ([planned(3_600, nodes=4)], AN_HOUR, {}),
    "held back": ([planned(3_600, reason="Dependency")], AN_HOUR, {}),
    "one beside n0": (
        [planned(3_600, 2, requested_nodes="n0")],
        AN_HOUR,
        {"n1": 200.0},
    ),
    "a longer one may not": ([planned(250), behind(201.0)], AN_HOUR, {}),
}


@pytest.mark.parametrize("case", PUT_OFF)
def test_leases_end_by_the_start_of_a_job_that_they_would_put_off(case: str) -> None:
    jobs, lease_s, ends_s = PUT_OFF[case]
    state = state_of("", "n1 n2", lease_s=lease_s, busy_s={"n0": 200})
    claims = claims_of(state, *jobs)
    assert (claims.leased, claims.idle) == ({}, {})
    ends = {name: SoonerEnd(NOW_S + s, 1) for name, s in ends_s.items()}
    assert claims.sooner_ends == ends


def test_leases_end_before_the_jobs_do_whose_nodes_another_waits_for() -> None:
    # Backfill plans by slots of a minute, and the start at 240 s; it may be at 201.
    state = state_of("", "n1 n2", busy_s={"n0": 201}, backfill=Backfill(grain_s=60.0))
    claims = claims_of(replace(state, margin_s=30.0), planned(3_600))
    ends_s = {end.end_s - NOW_S for end in claims.sooner_ends.values()}
    assert ends_s == {171.0}


def test_leases_stay_while_a_job_that_starts_now_holds_a_node_of_one_that_waits() -> (
    None
):
    state = state_of("n0", "n1 n2", backfill=Backfill(grain_s=300.0))
    short = waiting(5, priority=999, limit_s=120.0, requested_nodes="n0")
    claims = claims_of(state, short, planned(3_600, requested_nodes="n0,n1,n2"))
    assert claims.leased == {}
    assert set(claims.sooner_ends) == {"n1", "n2"}


def test_a_lease_that_puts_a_job_off_goes_where_less_than_a_minute_would_be_left() -> (
    None
):
    state = state_of("", "n1 n2", lease_s=AN_HOUR, busy_s={"n0": 59})
    claims = claims_of(state, planned(3_600))
    assert (set(claims.leased), claims.sooner_ends) == ({"n1", "n2"}, {})


def test_a_short_job_may_start_on_leases_ahead_of_a_job_that_must_wait() -> None:
    state = state_of("", "n1 n2", lease_s=AN_HOUR, busy_s={"n0": 200})
    claims = claims_of(state, planned(250), behind(200.0))
    assert (set(claims.leased), claims.sooner_ends) == ({"n1"}, {})


def test_new_leases_should_end_before_the_nodes_are_booked() -> None:
    wide, long = waiting(nodes=2, requested_nodes="n0"), waiting(2, limit_s=9_000.0)
    claims = claims_of(state_of("n1 n2", busy_s={"n0": 200}), wide, long)
    # No start is planned there yet: backfill looks later.
    assert claims.booked_s == {"n0": NOW_S + 200, "n1": NOW_S + 200}
    assert claims.idle == {"n2": 2}


def test_a_start_beyond_what_backfill_plans_books_nothing() -> None:
    busy = {"n0": 3_600.0}
    state = state_of("", "n1", busy_s=busy, backfill=Backfill(window_s=1_800.0))
    claims = claims_of(state, waiting(nodes=2), waiting(2, limit_s=9_000.0, priority=1))
    assert claims.leased == {"n1": 2}


def test_a_node_that_a_job_holds_past_its_limit_is_not_free_yet() -> None:
    short = waiting(2, limit_s=1.0, priority=1)
    claims = claims_of(state_of("", "n1", busy_s={"n0": -1}), waiting(nodes=2), short)
    assert claims.leased == {"n1": 2}


def test_leased_nodes_are_claimed_where_slurms_choice_lets_one_more_start() -> None:
    # Without leases the first has n0 and the third n2; the second has n0 again, as the
    # first of those that are free all the time. If the first had n2, which is idle, the
    # second would have n0, and the third would wait for it.
    state = state_of("n2", "n0", lease_s=None, busy_s={"n1": 600})
    claims = claims_of(
        state, waiting(1), waiting(2, nodes=2), waiting(3, limit_s=1_000.0)
    )
    assert (claims.leased, claims.idle) == ({"n0": 1}, {"n2": 3})


def test_leases_stay_where_slurms_choice_lets_no_other_job_start() -> None:
    claims = claims_of(state_of("n1", "n0", lease_s=None), waiting())
    assert (claims.leased, claims.idle) == ({}, {"n1": 1})


def test_idle_nodes_are_claimed_as_slurm_would_take_them() -> None:
    planned_hole = replace(hole("n0", NOW_S + 900), blocker="2")
    second = waiting(2, nodes=2, priority=1, start_s=NOW_S + 900, planned_nodes="n0")
    state = state_of("n1", holes=(planned_hole,))
    state = replace(state, nodes={name: NODES[name] for name in ("n1", "n0")})
    assert claims_of(state, waiting(1), second).idle == {"n1": 1}


def test_a_job_planned_around_leases_keeps_no_job_before_it_from_starting() -> None:
    # Backfill has planned a job of low priority after the lease of n1.
    second = waiting(2, priority=1, start_s=NOW_S + 300, planned_nodes="n1")
    planned_hole = replace(hole("n1", NOW_S + 300), blocker="2")
    state = state_of("", "n1", lease_s=None, holes=(planned_hole,))
    assert claims_of(state, waiting(1), second).leased == {"n1": 1}


@pytest.mark.parametrize(
    ("planned_s", "sooner_ends"),
    [(240.0, {"n2": SoonerEnd(NOW_S + 200.0, 2)}), (3_001.0, {})],
)
def test_leases_end_sooner_that_move_the_plan_of_a_job_before_one_that_could_start(
    planned_s: float, sooner_ends: dict[str, SoonerEnd]
) -> None:
    # Without the lease of n2 backfill would plan the first there, not on n1, where the
    # second could start.
    first = waiting(1, nodes=2, requested_nodes="n[0,2]", start_s=NOW_S + 240)
    second = waiting(2, limit_s=3_000.0, priority=1)
    there = replace(hole("n1", NOW_S + planned_s), blocker="1")
    state = state_of("", "n2", busy_s={"n0": 200}, holes=(there,))
    claims = claims_of(state, replace(first, planned_nodes="n[0-1]"), second)
    assert claims.nodes == {"n1"}
    assert claims.sooner_ends == sooner_ends


@pytest.mark.parametrize(("lease_s", "ends_s"), [(3_600.0, 200.0), (200.0, None)])
def test_leases_end_sooner_beside_which_backfill_would_not_start_a_job(
    lease_s: float, ends_s: float | None
) -> None:
    # Without the lease of n0 the first has n0, n1 and n2 in 200 s, and the second n3.
    # Beside it the first would have n1, n2 and n3 then, though no plan shows it yet.
    busy = {"n1": 200, "n2": 200}
    state = state_of("n3", "n0 g0", lease_s=(-600, lease_s), busy_s=busy)
    claims = claims_of(
        state, waiting(1, nodes=3), waiting(2, limit_s=1_000.0, priority=1)
    )
    assert (claims.leased, claims.idle) == ({}, {"n3": 2})
    sooner = {} if ends_s is None else {"n0": SoonerEnd(NOW_S + ends_s, 2)}
    assert claims.sooner_ends == sooner


def test_leases_go_on_nodes_that_slurm_would_take_where_fewer_have_to_go_so() -> None:
    # Without leases the first has all in 600 s, and the third n0 and n2 until 100 s.
    # On n0 and n3 the second would go ahead of both for 1,000 s, as the lease of n2
    # puts the first off; that of n4 ends as early as may be.
    spans = {
        name: LeaseSpan(NOW_S, NOW_S + s) for name, s in (("n2", 3_600), ("n4", 700))
    }
    state = state_of("n0 n3", "n2 n4", busy_s={"n1": 600}, spans=spans)

    claims = claims_of(
        state,
        waiting(1, nodes=5, priority=3),
        waiting(2, nodes=2, priority=2, limit_s=1_000.0),
        waiting(3, nodes=2, priority=1, limit_s=100.0),
    )

    assert (claims.leased, claims.idle) == ({"n2": 3}, {"n0": 3})


# Nodes kept free, lest the early end of one job makes another wait for long.

BUSY_S = {"n2": 2_300, "n3": 9_000}

STATE = state_of("n1", "n0", lease_s=(-600, 1_620), busy_s=BUSY_S)

ONE, OTHER = frozenset({"n2"}), frozenset({"n3"})

WIDE = waiting(1, nodes=3, priority=3)

SECOND = waiting(2, priority=2, limit_s=1_000.0, requested_nodes="n2")


def careful(
    *jobs: JobRecord,
    running: tuple[frozenset[str], ...] = (ONE, OTHER),
    most_ends: int = 100,
    is_late: Callable[[], bool] = bool,
    state: BackfillState = STATE,
) -> Claims:
    protection = DelayProtection(
        running, 30.0, 14_400.0, most_ends=most_ends, is_out_of_time=is_late
    )
    return find_claims(
        jobs,
        state,
        is_ours=lambda _: False,
        now_s=NOW_S,
        protect=partial(keep_free, protection=protection),
    )


def after(plans: int, second: JobRecord = SECOND) -> Claims:
    """Return the claims where there is time for so many plans."""
    answers = iter([False] * plans)
    return careful(WIDE, second, is_late=lambda: next(answers, True))


def test_nodes_are_kept_free_for_a_job_that_another_would_go_ahead_of() -> None:
    # n2 comes free early, a second before a cycle: three nodes for the first, were
    # none leased. Beside leases the second is over before the first can begin.
    claims = careful(WIDE, SECOND)
    assert claims.kept_free.nodes == {"n0": 1, "n1": 1}
    assert (claims.leased, claims.idle) == ({"n0": 1}, {"n1": 1})
    assert claims.kept_free.untried == 0


@pytest.mark.parametrize(
    ("jobs", "running"),
    [
        pytest.param([WIDE], (ONE, OTHER), id="it starts a cycle later"),
        pytest.param([], (ONE, OTHER), id="no job waits"),
        pytest.param([WIDE, SECOND], (ONE, OTHER | ONE), id="two jobs hold the node"),
    ],
)
def test_nothing_is_kept_free_where(
    jobs: list[JobRecord], running: tuple[frozenset[str], ...]
) -> None:
    assert careful(*jobs, running=running).nodes == set()


@pytest.mark.parametrize(
    ("limit_s", "nodes"),
    [(2_310.0, set()), (2_290.0, {"n1"}), (1_610.0, {"n0", "n1"})],
)
def test_only_nodes_whose_leases_let_the_other_go_ahead_are_kept_free(
    limit_s: float, nodes: set[str]
) -> None:
    # A lease that begins on n1 ends when n2 comes free by its limit, in 2,300 s; that
    # of n0 is over after 1,620 s, and no job can go ahead until then.
    assert careful(WIDE, replace(SECOND, limit_s=limit_s)).nodes == nodes


def test_nodes_planned_for_a_job_that_starts_elsewhere_are_free_for_others() -> None:
    # The first has n0 and n1 with n3 in 20 s. If n2, n4 and n5 come free it starts
    # there, beside leases, and the second a cycle later on what was planned for it.
    freed = frozenset({"n2", "n4", "n5"})
    state = state_of(
        "",
        "n0 n1",
        lease_s=(-600, 9_000),
        busy_s={"n3": 20, **dict.fromkeys(sorted(freed), 2e9)},
        holes=tuple(
            Hole(name, NOW_S, NOW_S + 35.0, HoleEnd.PLANNED_JOB, "1")
            for name in ("n0", "n1")
        ),
    )
    second = waiting(2, nodes=2, priority=2, limit_s=600.0)

    claims = careful(WIDE, second, running=(freed,), state=state)

    assert claims.kept_free.nodes == {}


def test_jobs_on_the_most_nodes_are_tried_and_the_others_are_counted() -> None:
    large = frozenset({"n3", "n4"})
    state = state_of("n1", "n0", lease_s=(-600, 1_620), busy_s={**BUSY_S, "n4": 2e5})
    jobs, running = (WIDE, SECOND), (ONE, large)
    largest = careful(*jobs, running=running, most_ends=1, state=state)
    both = careful(*jobs, running=running, state=state)
    assert (set(largest.nodes), largest.kept_free.untried) == (set(), 1)
    assert (set(both.nodes), both.kept_free.untried) == ({"n0", "n1"}, 0)


@pytest.mark.parametrize(
    ("plans", "untried", "kept"),
    [(0, 2, 0), (5, 2, 0), (6, 1, 2), (10, 1, 2), (11, 0, 2)],
)
def test_when_time_is_over_the_ends_not_tried_in_full_are_counted(
    plans: int, untried: int, kept: int
) -> None:
    late = after(plans).kept_free
    assert (late.untried, len(late.nodes)) == (untried, kept)


@pytest.mark.parametrize(
    ("plans", "kept"), [(5, set()), (6, {"n0", "n1"}), (8, {"n0", "n1"}), (9, {"n1"})]
)
def test_when_time_is_over_before_the_fewest_are_found_all_that_suffice_are_kept(
    plans: int, kept: set[str]
) -> None:
    # The idle node is enough: the lease is over before the second could go ahead.
    shorter = replace(SECOND, limit_s=2_290.0)
    assert set(after(plans, shorter).kept_free.nodes) == kept


@pytest.mark.parametrize(("jobs", "kept"), [(3, {"n0": 2}), (2, {})])
def test_leases_go_that_move_the_plan_of_another_onto_the_freed_node(
    jobs: int, kept: dict[str, int]
) -> None:
    # Without the lease of n0 the first has n0, n1 and n2 in 200 s, and the second n3,
    # which comes free now. Beside it the first has n3 then, and the third till then.
    slow = {
        name: replace(NODES[name], features=frozenset({"fast", "slow"}))
        for name in ("n1", "n2", "n3")
    }
    state = state_of(
        "",
        "n0",
        busy_s={"n1": 200, "n2": 200, "n3": 9_000},
        nodes={"n0": NODES["n0"], **slow},
    )
    queue = [
        waiting(1, nodes=3, priority=3),
        waiting(2, priority=2, limit_s=1_000.0, features="slow"),
        waiting(3, priority=1, limit_s=100.0, features="slow"),
    ]

    claims = careful(*queue[:jobs], running=(OTHER,), state=state)

    assert (claims.kept_free.nodes, set(claims.nodes)) == (kept, set(kept))


# When the queue is polled again before backfill's cycles, and what needs a tick.


@given(
    due_s=st.integers(-10_000, 600),
    interval_s=st.integers(1, 600),
    rest_s=st.integers(0, 100),
    lead_s=st.sampled_from([LEAD_S, 3.0, LEAST_LEAD_S]),
)
def test_a_poll_comes_after_its_rest_just_before_a_cycle_and_misses_none(
    due_s: int, interval_s: int, rest_s: int, lead_s: float
) -> None:
    cycles = Cycles(NOW_S, NOW_S + due_s, float(interval_s))
    poll_s = cycles.next_poll_s(rest_s=float(rest_s), lead_s=lead_s)
    is_due_s = float(due_s) if due_s > 0 else float(interval_s)
    assert poll_s >= rest_s
    assert (poll_s + lead_s - is_due_s) % interval_s == 0
    assert poll_s - interval_s < rest_s


@pytest.mark.parametrize(
    ("took_s", "lead_s"), [(0.0, 2.0), (0.5, 2.5), (2.9, 4.9), (3.0, None), (8.0, None)]
)
def test_a_last_poll_is_as_close_as_polls_are_quick_and_there_is_none_where_slow(
    took_s: float, lead_s: float | None
) -> None:
    assert last_lead_s(took_s) == lead_s


@pytest.mark.parametrize(
    ("changes", "scheduler"),
    [({}, "sched/builtin"), ({"bf_last_cycle_s": None}, "sched/backfill")],
)
def test_without_backfill_or_before_its_first_cycle_none_is_due(
    changes: dict[str, None], scheduler: str
) -> None:
    told = replace(statistics(), **changes)  # type: ignore[arg-type]
    assert cycles_of(told, replace(CONFIG, scheduler_type=scheduler)) is None


WAITS = JobRecord(
    job_id=1, display_id="1", states=frozenset({JobState.PENDING}), priority=10
)

RUNS = JobRecord(
    job_id=2, display_id="2", states=frozenset({JobState.RUNNING}), nodes="n1"
)


def test_leases_and_jobs_that_are_held_back_are_not_in_the_digest() -> None:
    held = replace(WAITS, job_id=3, display_id="3", priority=0)
    later = replace(WAITS, job_id=4, display_id="4", eligible_s=NOW_S + 60.0)
    digest = digest_of([WAITS, RUNS, held, later, job(0), job(1)], now_s=NOW_S)
    assert digest == QueueDigest(waiting=frozenset({"1"}), holding=frozenset({"2"}))


def test_a_job_that_becomes_eligible_needs_a_tick() -> None:
    later = replace(WAITS, eligible_s=NOW_S + 60.0)
    before = digest_of([later], now_s=NOW_S)
    assert not digest_of([later], now_s=NOW_S + 1.0).needs_tick_after(before)
    assert digest_of([later], now_s=NOW_S + 60.0).needs_tick_after(before)
