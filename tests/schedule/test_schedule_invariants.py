"""What holds for every schedule, whatever the jobs."""

import math
import tracemalloc
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logs.schedule import mask, schedule
from logs.simulation import (
    MachineUnits,
    Method,
    PlannedJob,
    ScheduleMoment,
    Simulation,
    SlurmParameters,
)
from logs.timeline import members, unit_set
from logs.trace import JobTrace
from tests.schedule.instances import traces

QUICK = SlurmParameters(bf_interval_s=3, bf_resolution_s=4)
SIMULATED = pytest.mark.parametrize("method", [Method.EASY, Method.SLURM])


def moments(trace: JobTrace, method: Method) -> list[ScheduleMoment]:
    return list(Simulation(trace, method, slurm=QUICK))


def overlap(a_s: tuple[float, float], b_s: tuple[float, float]) -> bool:
    return max(a_s[0], b_s[0]) < min(a_s[1], b_s[1])


@pytest.mark.parametrize("method", list(Method))
@given(trace=traces(priorities=True))
def test_no_unit_is_held_twice_at_once_and_the_same_trace_gives_the_same_schedule(
    method: Method, trace: JobTrace
) -> None:
    seen = moments(trace, method)
    assert seen == moments(trace, method)
    assert [m.time_s for m in seen] == sorted(m.time_s for m in seen)
    placed = [started for moment in seen for started in moment.started]
    for one, other in combinations(placed, 2):
        if overlap((one.start_s, one.end_s), (other.start_s, other.end_s)):
            assert one.units & other.units == 0


@SIMULATED
@given(trace=traces(priorities=True))
def test_every_job_runs_once_after_its_submission_for_its_time_on_its_units(
    method: Method, trace: JobTrace
) -> None:
    placed = schedule(trace, method, slurm=QUICK).placed
    assert sorted(each.job for each in placed) == list(range(len(trace.jobs)))
    for each in placed:
        job = trace.jobs[each.job]
        assert each.start_s >= job.submit_s
        assert each.end_s == each.start_s + job.run_s
        assert each.units.bit_count() == job.units
        assert each.units < 1 << trace.units


@settings(max_examples=150)
@given(trace=traces())
def test_easy_starts_each_job_on_the_lowest_free_units(trace: JobTrace) -> None:
    held: dict[int, int] = {}
    for moment in moments(trace, Method.EASY):
        for job in moment.ended:
            del held[job]
        for started in moment.started:
            free = [k for k in range(trace.units) if not sum(held.values()) >> k & 1]
            lowest = tuple(free[: trace.jobs[started.job].units])
            assert members(started.units) == lowest
            held[started.job] = started.units


@SIMULATED
@settings(max_examples=150)
@given(trace=traces(overruns=False))
def test_the_head_starts_no_later_than_it_was_ever_promised(
    method: Method, trace: JobTrace
) -> None:
    # Requests that are kept, and a queue that nobody jumps: then early ends can
    # only move the first in line forward. What Slurm had planned for a job while
    # another was first is no promise: that one may start early, in its way.
    promised_s: dict[int, float] = {}
    waiting = set(range(len(trace.jobs)))
    for moment in moments(trace, method):
        for started in moment.started:
            waiting.discard(started.job)
            assert started.start_s <= promised_s.get(started.job, math.inf)
        head = min(waiting, default=None)
        plan_is_new = method is Method.EASY or moment.time_s % QUICK.bf_interval_s == 0
        for planned in moment.plan[:1]:
            if plan_is_new and planned.job == head:
                assert planned.start_s <= promised_s.get(head, math.inf)
                promised_s[head] = planned.start_s


@SIMULATED
@given(trace=traces(priorities=True))
def test_the_first_in_line_never_fits_what_is_free(
    method: Method, trace: JobTrace
) -> None:
    started: set[int] = set()
    arrived: set[int] = set()
    for moment in moments(trace, method):
        arrived |= set(moment.arrived)
        started |= {each.job for each in moment.started}
        queue = sorted(arrived - started, key=lambda job: _rank(trace, method, job))
        assert len(queue) == moment.waiting
        if queue:
            assert trace.jobs[queue[0]].units > moment.free.bit_count()


def _rank(trace: JobTrace, method: Method, job: int) -> tuple[int, int]:
    priority = trace.jobs[job].priority or 0
    return (-priority if method is Method.SLURM else 0, job)


@given(trace=traces())
def test_an_empty_machine_has_no_queue_under_easy(
    trace: JobTrace,
) -> None:
    for moment in moments(trace, Method.EASY):
        if moment.free.bit_count() == trace.units:
            assert moment.waiting == 0
        assert len(moment.plan) == min(moment.waiting, 1)


@SIMULATED
@given(trace=traces(overruns=False, priorities=True))
def test_a_plan_never_gives_a_unit_to_two_jobs_at_once(
    method: Method, trace: JobTrace
) -> None:
    for moment in moments(trace, method):
        for one, other in combinations(moment.plan, 2):
            if overlap(_planned_s(trace, one), _planned_s(trace, other)):
                assert one.units & other.units == 0


def _planned_s(trace: JobTrace, planned: PlannedJob) -> tuple[float, float]:
    request_s = trace.jobs[planned.job].requested_s
    assert request_s is not None
    return (planned.start_s, planned.start_s + request_s)


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
