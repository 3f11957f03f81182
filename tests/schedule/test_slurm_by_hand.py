"""Slurm's schedulers on cases worked out with pencil and paper.

Jobs are written (submit, units, run, request); plans: job, start, units. Defaults:
cycles at multiples of 30 s, slots of 60 s.
"""

import math
from collections.abc import Iterator

import pytest

from logs.schedule import schedule
from logs.simulation import Method, Simulation, SlurmParameters
from logs.timeline import members
from logs.trace import JobTrace
from tests.schedule.instances import job, jobs_of, trace_of

CASES = """
the main scheduler stops at the first job that does not fit
  0: A(3) until 100. 1: B needs 4: stop. 2: C(1, 50 s) would fit, but B is before it.
  Cycle at 30: A's request ends in slot 1 (100 <= 120), so B is planned for 120 on
  0-3; C from 30 to 80, that is slots 0-1: starts now. 80: C ends. 100: A ends, the
  main scheduler starts B at once.
4 units: 0 3 100, 1 4 5, 2 1 50
starts: 0 100 30
30: 1 120 0123

a job is not backfilled into the slot of a planned one
  As above, but C takes 91 s: at 30 it would hold slots 0, 1 and, until 121, slot 2,
  which is B's from 120. After B (5 s: slot 2) C is planned for 180. 100: A ends, B
  starts; the main scheduler stops at C: no unit is free. 105: B ends, the main
  scheduler starts C.
4 units: 0 3 100, 1 4 5, 2 1 91
starts: 0 100 105
30: 1 120 0123, 2 180 0

plans move forward at the next cycle after an early end
  0: A(2) asks for 600, ends at 70; B(2) runs 300. 1: C needs 3, D 4, 60 s each. Cycle
  at 30: A free at 600, B at 300: C needs both, so C at 600 on 0-2, D after it at 660.
  70: A ends, 2 free < 3: the plan stands until the cycle at 90: B frees at 300: C at
  300, D at 360.
4 units: 0 2 70 600, 0 2 300, 1 3 60, 1 4 60
starts: 0 0 300 360
30: 2 600 012, 3 660 0123
70: 2 600 012, 3 660 0123
90: 2 300 012, 3 360 0123

nodes are planned by identity
  0: A(1) on 0 until 60, B(1) on 1 until 180, C(1) on 2 until 120. 1: D(1, 30 s) is
  planned for slot 1 on 0; E(2, 30 s) for slot 2, when 0 is free of D again (60 + 30 =
  90, slot 1) and C has left 2: on 0 and 2.
3 units: 0 1 60, 0 1 180, 0 1 120, 1 1 30, 1 2 30
30: 3 60 0, 4 120 02

a later start may find a unit that an earlier one does not
  0: A on 0 until 10, B, C, D on 1-3 until 120, E on 4 until 60. 1: F needs 4: planned
  for 120 on 0-3. G(1), 100 s: from 30 it would need one unit in slots 0 {0}, 1 {0, 4}
  and 2 {4}: none; from 60, in slots 1 and 2: unit 4.
5 units: 0 1 10, 0 1 120, 0 1 120, 0 1 120, 0 1 60, 1 4 60, 1 1 100
30: 5 120 0123, 6 60 4

a longer job is planned no earlier than a shorter one of its size
  0: A until 60. 1: B 30 s: slot 1. C 100 s: slots 2-3. D 30 s: slot 4, since
  everything before is taken.
1 units: 0 1 60, 1 1 30, 1 1 100, 1 1 30
30: 1 60 0, 2 120 0, 3 240 0

a short job may go before a longer one that found no gap
  0: A(1) until 120. 1: B(2) is planned for 120. C(1), 200 s, would run from 30 into
  B: planned for 180. D(1), 60 s, ends at 90 < 120: starts at 30. 120: B until 180.
2 units: 0 1 120, 1 2 60, 1 1 200, 1 1 60
starts: 0 120 180 30
30: 1 120 01, 2 180 0

a job past its request is expected to end within the slot
  0: A asks for 60, runs 200. 1: B. Cycle at 30: B at 60. At 60 A is still there: the
  plan of the cycle at 60 says 120, that at 120 says 180, that at 180 says 240. 200: A
  ends, B starts.
1 units: 0 1 200 60, 1 1 10
30: 1 60 0
60: 1 120 0
120: 1 180 0
180: 1 240 0
200: none

a start beyond the window is not planned until the window reaches it
  Window 1 min. 0: A until 150, so in slots until 180. 1: B. At 30 the window ends at
  90 < 180; at 120 it ends at 180: planned.
1 units, bf_window_min=1: 0 1 150, 1 1 10
30: none
120: 1 180 0

jobs beyond bf_max_job_test get no plan
2 units, bf_max_job_test=1: 0 2 100, 1 2 10, 2 1 10
30: 1 120 01

the next cycle tests jobs that came into reach
  Depth 2. 0: A(2) until 100. 1: B needs 4; C, 80 s, and D, 5 s, need 1. The cycle at
  30 tests B (planned for 120) and C (until 110, slot 1: starts). D comes into reach
  only now: it starts in the cycle at 60, though nothing else happened since. 110: C
  ends, B starts.
4 units, bf_max_job_test=2: 0 2 100, 1 4 10, 1 1 80, 1 1 5
starts: 0 110 30 60
"""


def cases() -> Iterator[object]:
    for block in CASES.strip().split("\n\n"):
        name, *lines = (line for line in block.splitlines() if line[0] != " ")
        (machine, jobs), *expected = (line.split(": ") for line in lines)
        units, *changed = machine.replace(" units", "").split(", ")
        values = dict(word.split("=") for word in changed)
        slurm = SlurmParameters(**{own: int(value) for own, value in values.items()})
        trace = trace_of(jobs_of(jobs), int(units))
        yield pytest.param(trace, slurm, dict(expected), id=name)


def starts(trace: JobTrace, slurm: SlurmParameters) -> str:
    """When each job starts, in the order given."""
    placed = schedule(trace, Method.SLURM, slurm=slurm).placed
    in_order = sorted(placed, key=lambda each: each.job)
    return " ".join(f"{each.start_s:g}" for each in in_order)


def plans(trace: JobTrace, slurm: SlurmParameters) -> dict[str, str]:
    """The plan after each moment."""
    return {
        f"{moment.time_s:g}": ", ".join(
            f"{each.job} {each.start_s:g} {''.join(map(str, members(each.units)))}"
            for each in moment.plan
        )
        or "none"
        for moment in Simulation(trace, Method.SLURM, slurm=slurm)
    }


@pytest.mark.parametrize(("trace", "slurm", "expected"), list(cases()))
def test_jobs_start_and_are_planned_as_worked_out(
    trace: JobTrace, slurm: SlurmParameters, expected: dict[str, str]
) -> None:
    found = {"starts": starts(trace, slurm), **plans(trace, slurm)}

    assert {when: found[when] for when in expected} == expected


def test_higher_priority_goes_first_and_among_equals_the_earlier() -> None:
    # 1 unit. 0: A until 10. Then by priority: D (5), B and C (2), E (none, 0).
    ranks = [None, 2, 2, 5, None]
    jobs = [job(min(k, 3), 1, 10, priority=rank) for k, rank in enumerate(ranks)]
    assert starts(trace_of(jobs, 1), SlurmParameters()) == "0 20 30 10 40"


@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan])
@pytest.mark.parametrize("name", SlurmParameters.__slots__)
def test_parameters_that_would_never_get_anywhere_are_refused(
    name: str, value: float
) -> None:
    with pytest.raises(ValueError, match=f"{name} must be above 0"):
        SlurmParameters(**{name: value})  # type: ignore[arg-type]  # names vary


@pytest.mark.parametrize(
    ("plans_all", "planned"), [(True, [1, 2, 3, 5, 6]), (False, [1])]
)
def test_a_schedule_plans_only_jobs_in_the_way_of_one_that_could_start_at_once(
    *, plans_all: bool, planned: list[int]
) -> None:
    # 4 units. 0: A has three of them until 100, so in slots until 120. The next cycle:
    # B needs four of them, and C three. D, on the fourth unit until 140, could start
    # were it not for B at 120. E ends by then: it starts, whatever becomes of C and D.
    jobs = jobs_of("0 3 100, 1 4 100, 1 3 10, 1 1 110, 1 1 50, 1 1 10, 1 1 10")
    simulation = Simulation(
        trace_of(jobs, 4), Method.SLURM, slurm=SlurmParameters(), plans_all=plans_all
    )

    moments = [next(iter(simulation)) for _ in range(3)]

    assert [job.job for job in moments[-1].started] == [4]
    assert [job.job for job in moments[-1].plan] == planned
