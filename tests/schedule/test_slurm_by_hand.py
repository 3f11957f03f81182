"""Slurm's schedulers on cases worked out with pencil and paper.

Jobs are written (submit, units, run, request). Defaults: cycles at multiples of
30 s, slots of 60 s.
"""

import math

import pytest

from logs.schedule import schedule
from logs.simulation import Method, Simulation, SlurmParameters
from logs.timeline import members
from logs.trace import Job
from tests.schedule.instances import job, jobs_of, trace_of

DEFAULTS = SlurmParameters()


def starts_s(
    jobs: list[Job], units: int, slurm: SlurmParameters = DEFAULTS
) -> list[float]:
    """When each job starts, in the order given."""
    placed = schedule(trace_of(jobs, units), Method.SLURM, slurm=slurm).placed
    by_job = {each.job: each.start_s for each in placed}
    return [by_job[number] for number in range(len(jobs))]


def plans(
    jobs: list[Job], units: int, slurm: SlurmParameters = DEFAULTS
) -> dict[float, list[tuple[int, float, tuple[int, ...]]]]:
    """The plan after each moment: job, start, units."""
    simulation = Simulation(trace_of(jobs, units), Method.SLURM, slurm=slurm)
    return {
        moment.time_s: [
            (each.job, each.start_s, members(each.units)) for each in moment.plan
        ]
        for moment in simulation
    }


def test_the_main_scheduler_stops_at_the_first_job_that_does_not_fit() -> None:
    # 4 units. 0: A(3) until 100. 1: B needs 4: stop. 2: C(1, 50 s) would fit, but
    # B is before it. Cycle at 30: A's request ends in slot 1 (100 <= 120), so B is
    # planned for 120 on 0-3; C from 30 to 80, that is slots 0-1: starts now.
    # 80: C ends. 100: A ends, the main scheduler starts B at once.
    jobs = jobs_of("0 3 100, 1 4 5, 2 1 50")
    assert starts_s(jobs, 4) == [0, 100, 30]
    assert plans(jobs, 4)[30] == [(1, 120, (0, 1, 2, 3))]


def test_a_job_is_not_backfilled_into_the_slot_of_a_planned_one() -> None:
    # As above, but C takes 91 s: at 30 it would hold slots 0, 1 and, until 121,
    # slot 2, which is B's from 120. After B (5 s: slot 2) C is planned for 180.
    # 100: A ends, B starts; the main scheduler stops at C: no unit is free.
    # 105: B ends, the main scheduler starts C.
    jobs = jobs_of("0 3 100, 1 4 5, 2 1 91")
    assert plans(jobs, 4)[30] == [(1, 120, (0, 1, 2, 3)), (2, 180, (0,))]
    assert starts_s(jobs, 4) == [0, 100, 105]


def test_plans_move_forward_at_the_next_cycle_after_an_early_end() -> None:
    # 4 units. 0: A(2) asks for 600, ends at 70; B(2) runs 300. 1: C needs 3, D 4,
    # 60 s each. Cycle at 30: A free at 600, B at 300: C needs both, so C at 600 on
    # 0-2, D after it at 660. 70: A ends, 2 free < 3: the plan stands until the cycle
    # at 90: B frees at 300: C at 300, D at 360.
    jobs = jobs_of("0 2 70 600, 0 2 300, 1 3 60, 1 4 60")
    seen = plans(jobs, 4)
    assert seen[30] == [(2, 600, (0, 1, 2)), (3, 660, (0, 1, 2, 3))]
    assert seen[70] == seen[30]
    assert seen[90] == [(2, 300, (0, 1, 2)), (3, 360, (0, 1, 2, 3))]
    assert starts_s(jobs, 4) == [0, 0, 300, 360]


def test_nodes_are_planned_by_identity() -> None:
    # 3 units. 0: A(1) on 0 until 60, B(1) on 1 until 180, C(1) on 2 until 120.
    # 1: D(1, 30 s) is planned for slot 1 on 0; E(2, 30 s) for slot 2, when 0 is free
    # of D again (60 + 30 = 90, slot 1) and C has left 2: on 0 and 2.
    jobs = jobs_of("0 1 60, 0 1 180, 0 1 120, 1 1 30, 1 2 30")
    assert plans(jobs, 3)[30] == [(3, 60, (0,)), (4, 120, (0, 2))]


def test_a_later_start_may_find_a_unit_that_an_earlier_one_does_not() -> None:
    # 5 units. 0: A on 0 until 10, B, C, D on 1-3 until 120, E on 4 until 60. 1: F
    # needs 4: planned for 120 on 0-3. G(1), 100 s: from 30 it would need one unit
    # in slots 0 {0}, 1 {0, 4} and 2 {4}: none; from 60, in slots 1 and 2: unit 4.
    running = [job(0, 1, 10), *jobs_of("0 1 120") * 3, job(0, 1, 60)]
    jobs = [*running, job(1, 4, 60), job(1, 1, 100)]
    assert plans(jobs, 5)[30] == [(5, 120, (0, 1, 2, 3)), (6, 60, (4,))]


def test_a_longer_job_is_planned_no_earlier_than_a_shorter_one_of_its_size() -> None:
    # 1 unit. 0: A until 60. 1: B 30 s: slot 1. C 100 s: slots 2-3. D 30 s: slot 4,
    # since everything before is taken.
    jobs = jobs_of("0 1 60, 1 1 30, 1 1 100, 1 1 30")
    seen = plans(jobs, 1)[30]
    assert [start_s for _, start_s, _ in seen] == [60, 120, 240]


def test_a_short_job_may_go_before_a_longer_one_that_found_no_gap() -> None:
    # 2 units. 0: A(1) until 120. 1: B(2) is planned for 120. C(1), 200 s, would run
    # from 30 into B: planned for 180. D(1), 60 s, ends at 90 < 120: starts at 30.
    jobs = jobs_of("0 1 120, 1 2 60, 1 1 200, 1 1 60")
    assert plans(jobs, 2)[30] == [(1, 120, (0, 1)), (2, 180, (0,))]
    assert starts_s(jobs, 2)[3] == 30


def test_a_job_past_its_request_is_expected_to_end_within_the_slot() -> None:
    # 1 unit. 0: A asks for 60, runs 200. 1: B. Cycle at 30: B at 60. At 60 A is
    # still there: the plan of the cycle at 60 says 120, that at 120 says 180, that at
    # 180 says 240. 200: A ends, B starts.
    seen = plans(jobs_of("0 1 200 60, 1 1 10"), 1)
    assert [(t, seen[t][0][1]) for t in (30, 60, 120, 180)] == [
        (30, 60),
        (60, 120),
        (120, 180),
        (180, 240),
    ]
    assert seen[200] == []


def test_a_start_beyond_the_window_is_not_planned_until_the_window_reaches_it() -> None:
    # 1 unit, window 1 min. 0: A until 150, so in slots until 180. 1: B. At 30 the
    # window ends at 90 < 180; at 120 it ends at 180: planned.
    near = SlurmParameters(bf_window_min=1)
    seen = plans(jobs_of("0 1 150, 1 1 10"), 1, near)
    assert seen[30] == []
    assert seen[120] == [(1, 180, (0,))]


def test_jobs_beyond_bf_max_job_test_get_no_plan() -> None:
    one = SlurmParameters(bf_max_job_test=1)
    jobs = jobs_of("0 2 100, 1 2 10, 2 1 10")
    assert plans(jobs, 2, one)[30] == [(1, 120, (0, 1))]


def test_the_next_cycle_tests_jobs_that_came_into_reach() -> None:
    # 4 units, depth 2. 0: A(2) until 100. 1: B needs 4; C, 80 s, and D, 5 s, need 1.
    # The cycle at 30 tests B (planned for 120) and C (until 110, slot 1: starts). D
    # comes into reach only now: it starts in the cycle at 60, though nothing else
    # happened since. 110: C ends, B starts.
    two = SlurmParameters(bf_max_job_test=2)
    assert starts_s(jobs_of("0 2 100, 1 4 10, 1 1 80, 1 1 5"), 4, two) == [
        0,
        110,
        30,
        60,
    ]


def test_higher_priority_goes_first_and_among_equals_the_earlier() -> None:
    # 1 unit. 0: A until 10. Then by priority: D (5), B and C (2), E (none, 0).
    jobs = [
        job(0, 1, 10),
        job(1, 1, 10, priority=2),
        job(2, 1, 10, priority=2),
        job(3, 1, 10, priority=5),
        job(3, 1, 10),
    ]
    assert starts_s(jobs, 1) == [0, 20, 30, 10, 40]


@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan])
@pytest.mark.parametrize("name", SlurmParameters.__slots__)
def test_parameters_that_would_never_get_anywhere_are_refused(
    name: str, value: float
) -> None:
    with pytest.raises(ValueError, match=f"{name} must be above 0"):
        SlurmParameters(**{name: value})  # type: ignore[arg-type]  # names vary
