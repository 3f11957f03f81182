"""EASY backfill on cases worked out with pencil and paper.

Jobs are written (submit, units, run, request); "0: A(3)" means A starts at 0 on
three units.
"""

from collections.abc import Iterable, Iterator

import pytest

from logs.schedule import schedule
from logs.simulation import Method, Passes, Reason, ScheduleMoment, Simulation
from logs.timeline import UnitSet
from logs.trace import Job, JobTrace
from tests.schedule.instances import job, jobs_of, trace_of


def starts_s(jobs: list[Job], units: int) -> list[float | None]:
    """When each job starts under EASY, in the order given; None for never."""
    result = schedule(trace_of(jobs, units), Method.EASY)
    by_job = {placed.job: placed.start_s for placed in result.placed}
    return [by_job.get(number) for number in range(len(jobs))]


CASES = """
A short job fills the gap before the head:
  0: A(3) until 10. 1: B needs 4 > 1 free: shadow 10, extra 4 - 4 = 0.
  2: C(1) would end at 2 + 8 = 10 <= 10: starts at 2. 10: B.
4 units | 0 3 10, 1 4 5, 2 1 8 | 0 10 2
A job that would end one second past the shadow waits:
  As above, but C would end at 2 + 9 = 11 > 10, and nothing is extra.
  10: B until 15. 15: C.
4 units | 0 3 10, 1 4 5, 2 1 9 | 0 10 15
A long job may use the extra units until they are gone:
  0: A(3) until 10. 1: B needs 4 > 2 free: shadow 10, 2 + 3 = 5 free
  then, extra 5 - 4 = 1. 2: C(1), 100 s, takes the extra unit; extra 0, 1 free.
  3: D(1), 100 s, finds shadow 10, 1 + 3 = 4 free then, extra 0: it waits.
  10: B(4) until 15, with C no unit is left. 15: D.
5 units | 0 3 10, 1 4 5, 2 1 100, 3 1 100 | 0 10 2 15
Extra units shrink within one pass:
  As above, but C and D come together at 2, in this order: C takes the extra.
5 units | 0 3 10, 1 4 5, 2 1 100, 2 1 100 | 0 10 2 15
A job that ends by the shadow leaves the extra units alone:
  0: A(3) until 10. 1: B needs 5 > 3 free: shadow 10, extra 6 - 5 = 1.
  2: C(1) would end at 2 + 8 = 10: by the shadow, extra stays 1. D(1), 100 s, in
  the same pass takes it. 10: B.
6 units | 0 3 10, 1 5 5, 2 1 8, 2 1 100 | 0 10 2 2
Every job expected to end at the shadow counts as extra:
  0: A(2) and B(1), both until 10, 1 free. 1: C needs 3: after A (or
  both) at 10 there are 4, extra 4 - 3 = 1. 2: D(1), 100 s, takes the extra unit.
4 units | 0 2 10, 0 1 10, 1 3 5, 2 1 100 | 0 0 10 2
Completions come before submissions of the same second:
  0: A(2) until 10. 10: A ends, B(2) arrives and starts at once.
2 units | 0 2 10, 10 2 5 | 0 10
All submissions of one second are seen by one pass:
  0: A(2) until 10. At 5 arrive B(3) and C(1, 5 s), B first in the
  log. One pass: B does not fit, shadow 10; C would end at 10 <= 10: starts.
3 units | 0 2 10, 5 3 1, 5 1 5 | 0 10 5
Jobs of one second queue in the logs order:
  1 unit: 0: A until 3, then B, then C.
1 units | 0 1 3, 0 1 2, 0 1 1 | 0 3 5
A job past its request is expected to end at any moment:
  0: A(2) asks for 5, runs 20. 1: B needs 3: shadow 5. At 7 A is
  overdue: its end is expected now, so the shadow is 7. C(1, 1 s) would end at
  8 > 7 and 3 - 3 = 0 are extra: it waits. 20: B until 22. 22: C.
3 units | 0 2 20 5, 1 3 2, 7 1 1 | 0 20 22
All overdue jobs are expected to end together:
  0: A(2) asks for 5, B(1) for 7, both run 20. 1: C needs 4 > 2 free:
  shadow 5, 2 + 2 = 4 free then, extra 0. 10: both are overdue and expected
  now: 2 + 2 + 1 = 5 free, extra 5 - 4 = 1, so D(1), 30 s, starts. 20: A and B
  end, 5 - 1 = 4 free: C.
5 units | 0 2 20 5, 0 1 20 7, 1 4 5, 10 1 30 | 0 0 20 10
A request that runs out is not an event:
  0: A asks for 1, B for 0, both run 2 on one unit. C needs 3: B is
  overdue at once, so the shadow is 0, extra 2 + 1 - 3 = 0, and D(1, 1 s) waits.
  At 1 A is overdue too and one unit would be extra, but nobody looks. 2: A and
  B end: C starts until 7, and D beside it.
4 units | 0 1 2 1, 0 1 2 0, 0 3 5, 0 1 1 | 0 0 2 2
An early end does not move the head past a job that was backfilled:
  0: A(3), asks for 20, really ends at 6. 1: B needs 4: shadow 20. 2: C(1) would end
  at 20 <= 20: starts, really runs 18. 6: A ends, 3 free < 4, shadow now 20 (C). 20: B.
4 units | 0 3 6 20, 1 4 5, 2 1 18 | 0 20 2
An early end moves the head forward:
  As above, but without C.
4 units | 0 3 6 20, 1 4 5 | 0 6
A job of zero run time takes its turn and ends at once:
  0: A(2) until 10, B(2) waits: 10: B, over at 10; 10: C.
2 units | 0 2 10, 1 2 0 60, 2 2 5 | 0 10 10
"""


def cases() -> Iterator[object]:
    name = ""
    for line in CASES.splitlines():
        if line.endswith(":"):
            name = line[:-1]
        elif " | " in line:
            units, jobs, starts = line.split(" | ")
            expected = [int(start) for start in starts.split()]
            yield pytest.param(jobs_of(jobs), int(units[0]), expected, id=name)


@pytest.mark.parametrize(("jobs", "units", "expected"), list(cases()))
def test_jobs_start_as_worked_out(
    jobs: list[Job], units: int, expected: list[float]
) -> None:
    assert starts_s(jobs, units) == expected


def test_a_job_without_a_request_is_planned_with_its_run_time() -> None:
    # As the first case, C without a request: 2 + 8 = 10 <= 10.
    short = Job("", 2, None, 8, 1, None)
    assert starts_s([job(0, 3, 10), job(1, 4, 5), short], 4) == [0, 10, 2]
    long = Job("", 2, None, 9, 1, None)
    assert starts_s([job(0, 3, 10), job(1, 4, 5), long], 4) == [0, 10, 15]


def test_a_job_wider_than_the_machine_is_refused_and_delays_no_other() -> None:
    jobs = jobs_of("0 5 10, 1 4 5")
    result = schedule(trace_of(jobs, 4), Method.EASY)
    assert starts_s(jobs, 4) == [None, 1]
    assert result.refused == {0: Reason.TOO_WIDE}


def test_jobs_without_units_or_that_never_ran_are_refused() -> None:
    jobs = [job(0, 0, 10), Job("", 0, None, 0, 2, 60), job(0, 2, 5)]
    result = schedule(trace_of(jobs, 4), Method.EASY)
    assert result.refused == {0: Reason.NO_UNITS, 1: Reason.NEVER_RAN}
    assert starts_s(jobs, 4) == [None, None, 0]


def test_the_plan_is_the_head_s_reservation_with_its_units() -> None:
    # The first case at t = 2: B awaits 10 on units 0-3; C runs on unit 3.
    trace = trace_of(jobs_of("0 3 10, 1 4 5, 2 1 8"), 4)
    moments = list(Simulation(trace, Method.EASY))
    planned = [
        [(each.job, each.start_s, each.units) for each in moment.plan]
        for moment in moments
    ]
    assert planned[:4] == [[], [(1, 10, 0b1111)], [(1, 10, 0b1111)], []]


# Guests and leases: units used by others than the jobs of the queue.


class Slow:
    """Takes 7 s to leave unit 0, and no time to leave any other."""

    def leave(self, job: int, units: UnitSet, left: UnitSet, now_s: float) -> float:
        del job, left, now_s
        return 7.0 if units & 1 else 0.0


def simulation_of(jobs: str, units: int) -> Simulation:
    return Simulation(trace_of(jobs_of(jobs), units), Method.EASY)


def started(moments: Iterable[ScheduleMoment]) -> dict[int, float]:
    return {job.job: job.start_s for moment in moments for job in moment.started}


def step(simulation: Simulation) -> ScheduleMoment:
    moment = simulation.step()
    assert moment is not None
    return moment


def test_a_job_starts_when_guests_have_left_and_ends_so_much_later() -> None:
    branch = simulation_of("0 1 10, 0 1 10, 1 2 10", 2).branch(Slow())

    # The first gets unit 0 and runs from 7 to 17 s; the third needs both units.
    assert started(branch) == {0: 7.0, 1: 0.0, 2: 24.0}


def test_a_branch_leaves_the_simulation_as_it_was() -> None:
    simulation = simulation_of("0 1 10, 5 1 10", 1)
    step(simulation)
    branch = simulation.branch(Slow())

    assert started(branch) == {1: 17.0}
    assert started(simulation) == {1: 10.0}


def test_jobs_wait_for_units_that_are_leased_until_they_are_released() -> None:
    simulation = simulation_of("0 1 10, 5 2 10", 2)
    step(simulation)
    assert simulation.lease(0b10, until_s=100.0, now_s=2.0).free == 0

    came = step(simulation)
    # The head is planned for when the lease is to end.
    assert [(job.job, job.start_s) for job in came.plan] == [(1, 100.0)]
    assert came.put_off == ()
    ended = step(simulation)
    assert (ended.time_s, ended.started, ended.put_off) == (10.0, (), (1,))
    assert started([simulation.release(0b10, now_s=12.0)]) == {1: 12.0}


def test_part_of_a_lease_can_be_released() -> None:
    simulation = simulation_of("0 1 10, 5 1 10", 3)
    step(simulation)
    simulation.lease(0b110, until_s=100.0, now_s=2.0)
    assert simulation.release(0b010, now_s=3.0).free == 0b010

    assert [job.units for job in step(simulation).started] == [0b010]
    assert simulation.release(0b100, now_s=6.0).free == 0b100


def test_a_pass_at_each_event_fills_units_before_another_job_of_the_moment_ends() -> (
    None
):
    # At 10 the first two end, the second 40 s before its request. Looked at once, the
    # third fits. After the first end alone it has to wait until 50 by the requests, and
    # the fourth is done by then.
    rows = [(0, 10, 1, 10), (0, 10, 1, 50), (1, 5, 2, 5), (2, 40, 1, 40)]
    jobs = tuple(
        Job(str(k), submit_s, None, run_s, units, requested_s)
        for k, (submit_s, run_s, units, requested_s) in enumerate(rows)
    )
    trace = JobTrace("made", "made", jobs, 2)

    found = {
        passes: [
            each.start_s
            for each in sorted(
                schedule(trace, Method.EASY, passes=passes).placed,
                key=lambda each: each.job,
            )
        ]
        for passes in Passes
    }

    assert found == {
        Passes.MOMENT: [0, 0, 10, 15],
        Passes.EVENT: [0, 0, 50, 10],
    }
