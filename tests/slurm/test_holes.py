"""Snapshots and their holes: which nodes, until when, and why not longer."""

import math
from dataclasses import replace
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.errors import SlurmRefusedError, UnreadableOutputError
from slurm.holes import (
    BackfillPlans,
    HiddenPlan,
    IdleNodes,
    PlannedStart,
    Snapshot,
    carry_plans,
    find_holes,
    find_idle,
    is_torn,
    plans_of,
)
from slurm.records import (
    Gres,
    JobRecord,
    JobState,
    Node,
    NodeState,
    Requirement,
    Reservation,
    Sdiag,
    expand,
)
from tests.slurm.clusters import (
    HOUR_S,
    NOW_S,
    SCENARIOS,
    cluster,
    node,
    recorded_snapshot,
    running,
    snapshot_of,
    statistics,
    waiting,
)

ANY = Requirement(partition="freetrain")


def is_ours(job: JobRecord) -> bool:
    return job.name.startswith("ft-")


def ours(job: JobRecord) -> JobRecord:
    return replace(job, name="ft-1")


def holes(
    snapshot: Snapshot,
    requirement: Requirement = ANY,
    *,
    margin_s: float = 0.0,
    window_s: float = math.inf,
) -> dict[str, str]:
    """The holes as ``END REASON BLOCKER of LEASE``, END in seconds from now."""
    found = find_holes(
        snapshot, requirement, is_ours=is_ours, margin_s=margin_s, window_s=window_s
    )
    shown = {}
    for hole in found:
        assert hole.start_s == snapshot.time_s
        end = "?" if hole.end_s is None else f"{hole.end_s - snapshot.time_s:g}"
        words = (end, hole.ends_by, hole.blocker, *(f"of {n}" for n in hole.held_by))
        shown[hole.node] = " ".join(filter(None, words))
    assert len(shown) == len(found)
    return shown


UNTIL_LIMIT = "86400 partition limit"


def reservation(begin_s: float, end_s: float | None, *flags: str) -> Reservation:
    """From and until, in seconds from now."""
    end_s = None if end_s is None else NOW_S + end_s
    return Reservation("r", NOW_S + begin_s, end_s, nodes="n1", flags=frozenset(flags))


def job(text: str) -> JobRecord:
    """``6@n1`` runs on n1, ``7+60>n1`` is planned there in 60 s; ``!``: ours."""
    if text.startswith("!"):
        return ours(job(text[1:]))
    if "@" in text:
        number, _, nodes = text.partition("@")
        return running(int(number), nodes)
    when, _, nodes = text.partition(">")
    return waiting(int(when[0]), nodes, float(when[1:]))


HOLES = """
# our own lease leaves a node open, and so does a slurmctld that has just started
n1:ALLOCATED n2:MIXED | !5@n[1-2] 7+9>n1 | n1 9 planned job 7 of 5, n2 limit of 5
n1:UNKNOWN n2:UNKNOWN | !5@n1 | n1 limit of 5
n1:ALLOCATED+NOT_RESPONDING n2:ALLOCATED+NOT_RESPONDING | !5@n1 | n1 limit of 5
# shared with another job, draining, completing, failing, just taken
n1:MIXED | !5@n1 6@n1 |
n1:ALLOCATED+DRAIN | !5@n1 |
n1:ALLOCATED+COMPLETING | !5@n1 |
n1:ALLOCATED+FAIL | !5@n1 |
n1 | 6@n1 |
# a plan that is due or overdue; a start without nodes is no plan
n1 | 7+0>n1 |
n1 | 7-1>n1 |
n1 | 7-900>n1 |
n1 | 7+60> | n1 limit
# planned for our own waiting lease, and for no job that we see
n1 | !7+60>n1 | n1 limit
n1:IDLE+PLANNED | !7+60>n1 | n1 limit
n1:IDLE+PLANNED | | n1 ? unknown planner
"""


@pytest.mark.parametrize("case", [c for c in HOLES.splitlines() if "|" in c])
def test_a_hole_is_an_idle_node_until_slurm_needs_it(case: str) -> None:
    nodes, jobs, found = case.split("|")
    words = found.replace("limit", UNTIL_LIMIT).split(",")

    snapshot = cluster(nodes, *map(job, jobs.split()))
    shown = [f"{name} {end}" for name, end in holes(snapshot).items()]
    assert shown == [word.strip() for word in words if word.strip()]


def test_a_job_that_has_ended_takes_no_node_and_one_that_cleans_up_does() -> None:
    ended = replace(job("6@n1"), states=frozenset({JobState.COMPLETED}))
    cleaning = replace(ended, states=ended.states | {JobState.COMPLETING})

    assert holes(cluster("n1", ended)) == {"n1": UNTIL_LIMIT}
    assert holes(cluster("n1", cleaning)) == {}


@pytest.mark.parametrize(
    ("reserved", "end"),
    [
        *((reservation(9, 99, f), "9 reservation r") for f in ("MAINT", "MAGNETIC")),
        *(
            (reservation(9, 99, f), "9 reservation r")
            for f in ("TIME_FLOAT", "SPEC_NODES")
        ),
        (reservation(-HOUR_S, 1), None),
        (reservation(-HOUR_S, None), None),
        (reservation(-HOUR_S, 0), "inf open"),
        (reservation(-35_100, -33_300, "HOURLY"), "900 reservation r"),
        (reservation(-35_100, -33_300, "DAILY"), "51300 reservation r"),
        (reservation(-35_100, -33_300, "WEEKDAY"), "51300 reservation r"),
        (reservation(-35_100, -33_300, "WEEKEND"), "51300 reservation r"),
        (reservation(-35_100, -33_300, "WEEKLY"), "569700 reservation r"),
    ],
)
def test_a_hole_ends_where_a_reservation_begins_or_comes_again(
    reserved: Reservation, end: str | None
) -> None:
    found = holes(cluster("n1 n2", reserved=reserved, max_time_s=math.inf))

    assert found.pop("n2") == "inf open"
    assert found.get("n1") == end


@pytest.mark.parametrize(
    "closed",
    [
        replace(node("n1"), unknown_states=frozenset({"BEWITCHED"})),
        replace(node("n1"), partitions=("main",)),
    ],
)
def test_an_unknown_state_or_another_partition_closes_a_node(closed: Node) -> None:
    assert holes(snapshot_of(nodes=[closed])) == {}


@pytest.mark.parametrize(
    "state",
    sorted(
        set(NodeState)
        - {NodeState.IDLE, NodeState.PLANNED, NodeState.CLOUD, NodeState.DYNAMIC_NORM}
    ),
)
def test_every_state_but_the_harmless_ones_closes_a_node(state: NodeState) -> None:
    assert holes(cluster(f"n1:IDLE+{state}")) == {}


@pytest.mark.parametrize(
    ("demand", "names"),
    [
        (ANY, ["n1", "n2"]),
        (replace(ANY, features=frozenset({"ib"})), ["n2"]),
        (replace(ANY, memory_mib=2000, cpus=2), ["n1", "n2"]),
        (replace(ANY, memory_mib=2001), ["n2"]),
        (replace(ANY, cpus=3), ["n2"]),
        (replace(ANY, gres=(Gres("gpu", "", 3),)), ["n2"]),
        (replace(ANY, gres=(Gres("gpu", "a100", 2),)), ["n2"]),
        (replace(ANY, gres=(Gres("gpu", "a100", 3),)), []),
        (replace(ANY, gres=(Gres("nic", "", 1),)), []),
    ],
)
def test_nodes_that_lack_what_a_lease_asks_for_are_no_holes(
    demand: Requirement, names: list[str]
) -> None:
    rich = replace(
        node("n2"),
        features=frozenset({"ib", "a100"}),
        gres=(Gres("gpu", "a100", 2), Gres("gpu", "v100", 1)),
        cpus=4,
        memory_mib=4000,
    )

    assert list(holes(snapshot_of(nodes=[node("n1"), rich]), demand)) == names


def test_a_partition_that_is_not_there_is_refused_and_the_others_named() -> None:
    with pytest.raises(SlurmRefusedError, match=r"no partition 'gone'.*freetrain"):
        holes(cluster("n1"), Requirement(partition="gone"))


def test_a_partition_that_is_down_has_no_holes() -> None:
    snapshot = cluster("n1")
    (partition,) = snapshot.partitions

    assert holes(snapshot).keys() == {"n1"}
    assert not holes(replace(snapshot, partitions=(replace(partition, is_up=False),)))


def test_a_hole_ends_where_the_earliest_planned_job_starts_less_the_margin() -> None:
    jobs = [waiting(8, "n[1-2]", 2 * HOUR_S), waiting(7, "n1", HOUR_S)]
    coming = cluster("n1 n2", reserved=reservation(HOUR_S, 2 * HOUR_S))

    assert holes(cluster("n1 n2", *jobs), margin_s=60) == {
        "n1": "3540 planned job 7",
        "n2": "7140 planned job 8",
    }
    assert holes(coming, margin_s=9)["n1"] == "3591 reservation r"


def test_a_plan_within_the_margin_leaves_no_hole() -> None:
    snapshot = cluster("n1", waiting(7, "n1", 60))

    assert holes(snapshot, margin_s=60) == {}
    assert holes(snapshot, margin_s=59) == {"n1": "1 planned job 7"}


def test_jobs_from_a_source_without_plans_are_refused() -> None:
    job = replace(waiting(7, "", None), planned_nodes=None)

    with pytest.raises(UnreadableOutputError, match="without planned nodes"):
        holes(cluster("n1", job))


@pytest.mark.parametrize(
    ("max_time_s", "window_s", "end"),
    [
        (HOUR_S, math.inf, "3600 partition limit"),
        (HOUR_S, 2 * HOUR_S, "3600 partition limit"),
        (3 * HOUR_S, 2 * HOUR_S, "7200 backfill window"),
        (math.inf, 2 * HOUR_S, "7200 backfill window"),
        (math.inf, math.inf, "inf open"),
    ],
)
def test_a_hole_for_which_no_job_waits_ends_with_the_limit_or_the_window(
    max_time_s: float, window_s: float, end: str
) -> None:
    snapshot = cluster("n1", max_time_s=max_time_s)

    assert holes(snapshot, margin_s=60, window_s=window_s) == {"n1": end}


def test_no_phantom_hole_opens_while_backfill_makes_its_plans_anew() -> None:
    before = cluster("n1", waiting(7, "n1", HOUR_S))
    torn = cluster("n1", waiting(7, "", None), statistic=TORN)

    found = holes(carry_plans(plans_of(before), torn, max_age_s=60))

    assert found == holes(before)
    assert holes(torn) != found


def test_the_recorded_clusters_have_the_holes_that_they_had() -> None:
    leases, quiet = recorded_snapshot("leases"), recorded_snapshot("quiet")
    big = next(job for job in leases.jobs if job.name == "big")
    assert big.start_s is not None
    end = f"{big.start_s - leases.time_s:g} planned job {big.job_id}"

    busy = holes(recorded_snapshot("busy"))
    private = holes(recorded_snapshot("private"))

    assert list(busy) == ["n6"]
    assert busy["n6"].endswith(" reservation daily1")
    assert holes(leases) == {"n7": f"{end} of 32", "n8": f"{end} of 33"}
    assert list(holes(recorded_snapshot("broken"))) == ["n4", "n6", "n7", "n8"]
    hidden = [name for name, end in private.items() if end == "? unknown planner"]
    assert hidden == ["n4", "n5", "n6", "n7"]
    assert private["n8"].endswith(" partition limit")
    assert holes(quiet, window_s=86_400.0) == dict.fromkeys(
        (f"n{k}" for k in range(1, 9)), f"{4 * HOUR_S:g} partition limit"
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    states = st.sets(st.sampled_from(NodeState), max_size=2).map(tuple)
    nodes = [node(f"n{k}", *draw(states)) for k in range(draw(st.integers(1, 6)))]
    hostlists = st.sampled_from(["n0", "n[0-2]", "n[1,3]", "n[2-5]"])
    starts = st.one_of(st.none(), st.floats(-HOUR_S, 9 * HOUR_S))
    plans = draw(st.lists(st.tuples(hostlists, starts, st.booleans()), max_size=5))
    holders = draw(st.lists(st.tuples(hostlists, st.booleans()), max_size=2))
    jobs = [
        *(
            (waiting(k, names, in_s), mine)
            for k, (names, in_s, mine) in enumerate(plans)
        ),
        *((running(100 + k, names), mine) for k, (names, mine) in enumerate(holders)),
    ]
    return snapshot_of(nodes=nodes, jobs=[ours(j) if mine else j for j, mine in jobs])


@given(snapshots(), st.floats(0, HOUR_S))
def test_no_hole_reaches_into_a_plan_or_onto_a_node_of_others(
    snapshot: Snapshot, margin_s: float
) -> None:
    found = find_holes(snapshot, ANY, is_ours=is_ours, margin_s=margin_s)

    ends = {hole.node: hole.end_s for hole in found}
    others = [job for job in snapshot.jobs if not is_ours(job)]
    held = chain.from_iterable(expand(j.nodes) for j in others if j.holds_nodes)
    assert not ends.keys() & set(held)
    for job in others:
        if job.is_planned and job.start_s is not None:
            for name in ends.keys() & set(expand(job.planned_nodes or "")):
                end_s = ends[name]
                assert end_s is None or end_s <= job.start_s - margin_s


@given(snapshots(), st.floats(0, HOUR_S))
def test_a_hole_is_open_now_and_a_larger_margin_makes_none_longer(
    snapshot: Snapshot, margin_s: float
) -> None:
    wide = find_holes(snapshot, ANY, is_ours=is_ours, margin_s=0)
    narrow = find_holes(snapshot, ANY, is_ours=is_ours, margin_s=margin_s)

    ends = {hole.node: hole.end_s for hole in wide}
    assert len(ends) == len(wide)
    nodes = {n.name: n for n in snapshot.nodes}
    for hole in wide:
        assert hole.end_s is None or hole.start_s < hole.end_s
        assert hole.held_by or NodeState.IDLE in nodes[hole.node].states
    for hole in narrow:
        assert (hole.end_s or math.inf) <= (ends[hole.node] or math.inf)


# Torn snapshots, and the plans that are carried over them.

TORN = statistics(is_active=True)
OLD = BackfillPlans((PlannedStart(7, NOW_S + HOUR_S, "n1", NOW_S),))


def carried(old: BackfillPlans, torn: Snapshot) -> BackfillPlans:
    return plans_of(carry_plans(old, torn, max_age_s=60))


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
def test_any_trace_of_a_cycle_in_between_tears_a_snapshot(after: Sdiag) -> None:
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


def test_a_torn_snapshot_keeps_the_plans_of_jobs_that_still_wait() -> None:
    waits, starts = waiting(7, "", None), waiting(7, "n2", 60)
    hidden = BackfillPlans(hidden=(HiddenPlan("n1", NOW_S),))
    new = BackfillPlans((PlannedStart(7, NOW_S + 60, "n2", NOW_S),))

    assert plans_of(cluster("n1", waiting(7, "n1", HOUR_S))) == OLD
    assert plans_of(cluster("n1:IDLE+PLANNED")) == hidden
    assert carried(OLD, cluster("n1", waits, statistic=TORN)) == OLD
    assert carried(hidden, cluster("n1", statistic=TORN)) == hidden
    # Nodes read before the cycle began, jobs after: seen on 22.05.8.
    assert carried(OLD, cluster("n1:IDLE+PLANNED", waits, statistic=TORN)) == OLD
    assert carried(OLD, cluster("n2", starts, statistic=TORN)) == new


@pytest.mark.parametrize("jobs", [[], [running(7, "n1")]])
def test_the_plan_of_a_job_that_waits_no_more_is_dropped(jobs: list[JobRecord]) -> None:
    assert carried(OLD, cluster("n1", *jobs, statistic=TORN)) == BackfillPlans()


def test_a_node_marked_for_a_lost_plan_is_taken_for_a_hidden_jobs() -> None:
    torn = cluster("n1:IDLE+PLANNED", waiting(7, "", None), statistic=TORN)

    assert plans_of(torn).hidden == (HiddenPlan("n1", NOW_S),)


def test_a_whole_snapshot_needs_no_carried_plan() -> None:
    now = cluster("n1", waiting(7, "", None))

    assert carry_plans(OLD, now, max_age_s=60) is now


@given(st.lists(st.integers(min_value=1, max_value=100), min_size=1, max_size=20))
def test_a_plan_is_carried_as_long_as_it_is_young_and_no_longer(
    steps_s: list[int],
) -> None:
    plans = replace(OLD, hidden=(HiddenPlan("n2", NOW_S),))
    at_s = NOW_S
    for step_s in steps_s:
        at_s += step_s
        torn = cluster(
            "n1 n2",
            waiting(7, "", None),
            statistic=statistics(taken_s=at_s, is_active=True),
        )
        plans = plans_of(carry_plans(plans, torn, max_age_s=300))
        is_young = at_s - NOW_S <= 300
        assert (len(plans.starts), len(plans.hidden)) == (is_young, is_young)


# Idle nodes, whatever a lease asks for; job 7 is ours.


def idle(nodes: str, *jobs: str) -> IdleNodes:
    snapshot = cluster(nodes, *map(job, jobs))
    return find_idle(snapshot, is_ours=lambda job: job.job_id == 7)


def test_a_node_is_unclear_while_its_state_passes() -> None:
    leased = idle("n1 n2:UNKNOWN n3:MIXED", "7@n2", "8@n3")
    passing = idle(
        "n1:IDLE+COMPLETING n2:UNKNOWN n3:MIXED+COMPLETING n4:IDLE+DRAIN", "8@n3"
    )
    # Slurm writes DOWN* for days of a node that died, and IDLE* for minutes before.
    dead = idle(
        "n1:DOWN+NOT_RESPONDING n2:IDLE+DRAIN+NOT_RESPONDING "
        "n3:IDLE+DRAIN+COMPLETING n4:IDLE+NOT_RESPONDING"
    )

    assert leased.nodes == {"n1", "n2"}
    assert passing.unclear == {"n1", "n2"}
    assert dead.unclear == {"n4"}
    assert not leased.unclear | passing.nodes | dead.nodes


def test_the_first_start_that_others_plan_on_an_idle_node_counts() -> None:
    planned = idle("n1:IDLE+PLANNED n2", "3+900>n[1-2]", "4+60>n1", "7+1>n2").planned

    assert {name: plan.job_id for name, plan in planned.items()} == {"n1": 4, "n2": 3}
