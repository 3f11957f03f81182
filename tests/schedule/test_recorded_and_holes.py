"""The log's own schedule, and the holes that schedules leave."""

import math

import pytest
from hypothesis import given

from logs.schedule import Schedule, holes, schedule
from logs.simulation import Method, SlurmParameters
from logs.timeline import members
from logs.trace import Job, JobTrace, UnusableLogError, natural_key
from tests.schedule.instances import jobs_of, trace_of, traces

QUICK = SlurmParameters(bf_interval_s=3, bf_resolution_s=4)


def ran(start_s: float | None, run_s: float, units: int, *nodes: str) -> Job:
    return Job("", 0, start_s, run_s, units, None, nodes=nodes)


def recorded(jobs: list[Job], units: int) -> Schedule:
    return schedule(JobTrace("log", "sacct", tuple(jobs), units), Method.RECORDED)


# Units | jobs as start, run time, units, nodes | start:units of each | jobs that got
# too few units, units missing x seconds, the worst moment and the units missing then.
RECORDED = {
    # 0: A on 0, 1. 5: B on 2. 10: A ends, C takes 0, 1 and the next free, 3.
    "on the lowest free units": (
        "4 | 0 10 2, 5 10 1, 10 5 3 | 0:01 5:2 10:013 | 0 0 None 0"
    ),
    "on the nodes that the log names": (
        "3 | 0 10 2 n10 n2, 0 10 1 n1 | 0:12 0:0 | 0 0 None 0"
    ),
    # 2: B wants 3, gets 1: 2 missing for 4 s. 3: C wants 1, gets none for 5 s: 3 are
    # missing from 3 on, the worst.
    "units that the machine lacks are counted": (
        "4 | 0 10 3, 2 4 3, 3 5 1 | 0:012 2:3 3: | 2 13 3 3"
    ),
    "jobs that name a node share it, and lack nothing": (
        "2 | 0 10 1 n1, 5 10 2 n1 n2 | 0:0 5:01 | 0 0 None 0"
    ),
    "a job wider than the machine gets all of it": "4 | 0 10 5 | 0:0123 | 1 10 0 1",
    "an end frees units for a start of the same second": (
        "4 | 0 10 4, 10 10 4 | 0:0123 10:0123 | 0 0 None 0"
    ),
    "a job of zero run time takes nothing from others": (
        "4 | 0 0 4, 0 10 4 | 0: 0:0123 | 0 0 None 0"
    ),
}


@pytest.mark.parametrize("case", RECORDED.values(), ids=RECORDED)
def test_jobs_start_when_and_where_the_log_says(case: str) -> None:
    units, jobs, held, over = case.split(" | ")
    rows = [words.split() for words in jobs.split(",")]

    made = [ran(int(a), int(b), int(c), *nodes) for a, b, c, *nodes in rows]
    result = recorded(made, int(units))

    by_job = sorted(result.placed, key=lambda each: each.job)
    found = [
        f"{each.start_s:g}:{''.join(map(str, members(each.units)))}" for each in by_job
    ]
    assert found == held.split()
    lacks = result.over_commitment
    worst_s = None if lacks.worst_s is None else f"{lacks.worst_s:g}"
    assert f"{lacks.jobs} {lacks.unit_s:g} {worst_s} {lacks.worst_units}" == over
    assert not result.refused


def test_jobs_without_a_recorded_start_are_refused_saying_why() -> None:
    result = recorded([ran(None, 10, 1), ran(None, 0, 1), ran(0, 1, 0)], 4)

    reasons = [why.name for why in result.refused.values()]
    assert reasons == ["NO_START", "NEVER_RAN", "NO_UNITS"]
    assert result.placed == ()
    assert result.end_s == 0


def test_the_machine_has_the_named_nodes_and_others_only_on_request() -> None:
    jobs = [ran(0, 1, 1, "n10"), ran(5, 1, 1, "n2")]

    assert recorded(jobs, 2).layout.names == ("n2", "n10")
    with pytest.raises(ValueError, match="2 named nodes make 3 units"):
        recorded(jobs, 3)
    trace = JobTrace("log", "sacct", tuple(jobs), 2)
    assert schedule(trace, Method.EASY, units=1).layout.names == ("0",)
    assert schedule(trace, Method.EASY, units=3).layout.names == ("n2", "n10", "2")
    with pytest.raises(UnusableLogError, match="name 2 nodes, and the machine has 1"):
        schedule(trace, Method.RECORDED, units=1)
    with pytest.raises(UnusableLogError, match="machine of 0 units"):
        recorded([], 0)


def test_names_sort_as_people_do() -> None:
    names = ["n10", "n9", "n1-2", "n1", "a", "10", "9"]
    ordered = ["9", "10", "a", "n1", "n1-2", "n9", "n10"]
    assert sorted(names, key=natural_key) == ordered


def test_progress_goes_from_nothing_to_everything() -> None:
    seen: list[float] = []
    jobs = tuple(ran(2 * number, 1, 1) for number in range(1000))
    trace = JobTrace("log", "sacct", jobs, 1)
    schedule(trace, Method.RECORDED, on_progress=seen.append)
    assert seen == sorted(seen)
    assert 0 < seen[0] < seen[-1] <= 1


# Holes.


def intervals(result: Schedule) -> list[tuple[int, float, float]]:
    return list(holes(result).rows())


@pytest.mark.parametrize(
    ("jobs", "units", "per_node", "idle"),
    [
        # 0 runs 2-5 and 5-9; 1 runs 5-6.
        ("2 1 3, 5 1 4, 5 1 1", 2, 1, [(0, 0, 2), (1, 0, 5), (1, 6, 9)]),
        # Nodes of two units, the last of one. 0-4: units 0-2. 6-8: unit 0.
        ("0 3 4, 6 1 2", 5, 2, [(2, 0, 8), (0, 4, 6), (1, 4, 8)]),
        # One unit of the only node runs 0-10, the other 1-3.
        ("0 1 10, 1 1 2", 2, 2, []),
        # A job of zero run time leaves no trace.
        ("0 1 4, 1 1 0", 2, 1, [(1, 0, 4)]),
        ("", 2, 1, []),
    ],
)
def test_a_node_is_idle_while_all_its_units_are_from_zero_to_the_last_end(
    jobs: str, units: int, per_node: int, idle: list[tuple[int, float, float]]
) -> None:
    trace = trace_of(jobs_of(jobs), units, units_per_node=per_node)

    assert intervals(schedule(trace, Method.EASY)) == idle


def test_holes_carry_the_log_s_names_and_times() -> None:
    trace = JobTrace(
        "my.log", "sacct", (ran(5, 5, 1, "n7"),), 1, unix_start_s=7.0, comments=("c",)
    )

    idle = holes(schedule(trace, Method.RECORDED))

    assert idle.node_names == ("n7",)
    assert idle.span_s == 10
    assert (idle.source, idle.unix_start_s, idle.comments) == ("my.log", 7.0, ("c",))


@pytest.mark.parametrize("method", list(Method))
@given(trace=traces())
def test_every_second_of_every_node_is_idle_or_held_and_holes_never_touch(
    method: Method, trace: JobTrace
) -> None:
    result = schedule(trace, method, slurm=QUICK)
    rows = intervals(result)
    idle = [set[int]() for _ in range(math.ceil(result.end_s))]
    for node, start_s, end_s in rows:
        for second in range(int(start_s), int(end_s)):
            assert node not in idle[second], "intervals overlap"
            idle[second].add(node)
    for second, nodes in enumerate(idle):
        held = {
            unit
            for each in result.placed
            if each.start_s <= second < each.end_s
            for unit in members(each.units)
        }
        assert nodes == set(range(trace.units)) - held
    assert rows == sorted(rows, key=lambda row: (row[1], row[0]))
    ends = {(node, end_s) for node, _, end_s in rows}
    assert not ends & {(node, start_s) for node, start_s, _ in rows}
