"""The simulated Slurm against a second, deliberately slow implementation."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from logs.schedule import Schedule, schedule
from logs.simulation import Method, Simulation, SlurmParameters
from logs.timeline import members
from logs.trace import JobTrace
from tests.schedule import naive
from tests.schedule.instances import traces


def places(result: Schedule) -> dict[int, naive.Place]:
    return {
        job.job: (job.start_s, frozenset(members(job.units))) for job in result.placed
    }


parameters = st.builds(
    SlurmParameters,
    bf_interval_s=st.sampled_from([1.0, 3.0, 5.0]),
    bf_resolution_s=st.sampled_from([1.0, 4.0, 7.0]),
    bf_window_min=st.sampled_from([0.25, 24.0]),
    bf_max_job_test=st.sampled_from([1, 3, 100]),
)


@settings(max_examples=300, deadline=None)
@given(traces(priorities=True), parameters)
def test_slurm_places_and_plans_every_job_as_the_naive_one_does(
    trace: JobTrace, slurm: SlurmParameters
) -> None:
    naive_places, naive_plans = naive.slurm(trace, slurm)
    assert places(schedule(trace, Method.SLURM, slurm=slurm)) == naive_places

    moments = list(Simulation(trace, Method.SLURM, slurm=slurm))
    for cycle_s, expected in naive_plans.items():
        past = [moment for moment in moments if moment.time_s <= cycle_s]
        plan = past[-1].plan if past else ()
        standing = {
            each.job: (each.start_s, frozenset(members(each.units))) for each in plan
        }
        assert standing == expected


@settings(max_examples=300, deadline=None)
@given(traces(priorities=True), parameters)
def test_jobs_start_alike_whether_or_not_those_that_cannot_are_planned(
    trace: JobTrace, slurm: SlurmParameters
) -> None:
    planning_all = [
        started
        for moment in Simulation(trace, Method.SLURM, slurm=slurm)
        for started in moment.started
    ]
    planning_few = [
        started
        for moment in Simulation(trace, Method.SLURM, slurm=slurm, plans_all=False)
        for started in moment.started
    ]

    assert planning_few == planning_all


@given(traces())
def test_fractions_of_a_second_change_nothing_but_the_clock(trace: JobTrace) -> None:
    # Halves are exact in binary, so that starts must be exactly half as late.
    halved = replace(
        trace,
        jobs=tuple(
            replace(
                job,
                submit_s=job.submit_s / 2,
                run_s=job.run_s / 2,
                requested_s=(job.requested_s or 0) / 2,
            )
            for job in trace.jobs
        ),
    )
    whole = places(schedule(trace, Method.EASY))

    assert places(schedule(halved, Method.EASY)) == {
        job: (start_s / 2, units) for job, (start_s, units) in whole.items()
    }
