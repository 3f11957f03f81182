"""What a schedule leaves idle."""

import math
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logs.schedule import Schedule, holes, mask, schedule
from logs.simulation import MachineUnits, Method, SlurmParameters
from logs.timeline import members, unit_set
from logs.trace import Job, JobTrace
from tests.schedule.instances import job, trace_of, traces

QUICK = SlurmParameters(bf_interval_s=3, bf_resolution_s=4)


def intervals(result: Schedule) -> list[tuple[int, float, float]]:
    idle = holes(result)
    rows = zip(idle.node, idle.start_s, idle.end_s, strict=True)
    return [(int(node), float(start), float(end)) for node, start, end in rows]


def test_a_node_is_idle_from_zero_between_jobs_and_to_the_last_end() -> None:
    # 0 runs 2-5 and 5-9; 1 runs 5-6.
    jobs = [job(2, 1, 3), job(5, 1, 4), job(5, 1, 1)]
    result = schedule(trace_of(jobs, 2), Method.EASY)
    assert intervals(result) == [(0, 0, 2), (1, 0, 5), (1, 6, 9)]


def test_a_node_of_several_units_is_idle_while_all_of_them_are() -> None:
    # Nodes of two units, the last of one. 0-4: units 0-2. 6-8: unit 0.
    jobs = [job(0, 3, 4), job(6, 1, 2)]
    result = schedule(trace_of(jobs, 5, units_per_node=2), Method.EASY)
    assert result.layout.names == ("0", "1", "2")
    assert intervals(result) == [(2, 0, 8), (0, 4, 6), (1, 4, 8)]


def test_a_job_of_zero_run_time_leaves_no_trace() -> None:
    result = schedule(trace_of([job(0, 1, 4), job(1, 1, 0)], 2), Method.EASY)
    assert intervals(result) == [(1, 0, 4)]


def test_a_schedule_without_jobs_has_no_holes() -> None:
    result = schedule(trace_of([], 2), Method.EASY)
    assert intervals(result) == []


def test_holes_carry_the_log_s_names_and_times() -> None:
    ran = Job("", 0, 5, 5, 1, None, nodes=("n7",))
    trace = JobTrace("my.log", "sacct", (ran,), 2, unix_start_s=7.0, comments=("c",))
    idle = holes(schedule(trace, Method.RECORDED))
    assert idle.node_names == ("n7", "1")
    assert (idle.source, idle.unix_start_s, idle.comments) == ("my.log", 7.0, ("c",))


@pytest.mark.parametrize("method", list(Method))
@given(trace=traces())
def test_every_second_of_every_node_is_idle_or_held(
    method: Method, trace: JobTrace
) -> None:
    result = schedule(trace, method, slurm=QUICK)
    idle = [set[int]() for _ in range(math.ceil(result.end_s))]
    for node, start_s, end_s in intervals(result):
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


@pytest.mark.parametrize("method", list(Method))
@given(trace=traces())
def test_holes_of_a_node_never_touch(method: Method, trace: JobTrace) -> None:
    rows = intervals(schedule(trace, method, slurm=QUICK))
    assert rows == sorted(rows, key=lambda row: (row[1], row[0]))
    ends = {(node, end_s) for node, _, end_s in rows}
    assert not ends & {(node, start_s) for node, start_s, _ in rows}


@given(st.sets(st.integers(0, 70)), st.integers(0, 80))
def test_the_lowest_units_are_the_lowest(among: set[int], count: int) -> None:
    lowest = MachineUnits(71).lowest(unit_set(among), count)
    assert list(members(lowest)) == sorted(among)[:count]
    assert mask(lowest, 71).nonzero()[0].tolist() == sorted(among)[:count]


def test_the_units_of_a_large_machine_take_little_memory() -> None:
    tracemalloc.start()
    units = MachineUnits(20_000)
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert units.lowest(units.every, 3) == 0b111
    assert held_bytes < 100_000
