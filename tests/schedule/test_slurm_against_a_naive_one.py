"""The simulated Slurm against a second, deliberately slow implementation."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logs.schedule import Schedule, schedule
from logs.simulation import Method, Running, Simulation, SlurmParameters
from logs.timeline import members
from logs.trace import JobTrace
from tests.schedule import naive
from tests.schedule.instances import gpu_traces, job, trace_of, traces


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


@settings(max_examples=500, deadline=None)
@given(st.one_of(traces(priorities=True), gpu_traces()), parameters)
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
@given(st.one_of(traces(priorities=True, most_jobs=40), gpu_traces(40)), parameters)
def test_jobs_start_alike_whether_or_not_those_that_cannot_are_planned(
    trace: JobTrace, slurm: SlurmParameters
) -> None:
    few = Simulation(trace, Method.SLURM, slurm=slurm, plans_all=False)

    assert started(few) == started(Simulation(trace, Method.SLURM, slurm=slurm))


@pytest.mark.parametrize("seed", [6, 16, 17, 24, 40])
def test_jobs_start_alike_where_each_in_the_way_has_another_in_its_way(
    seed: int,
) -> None:
    # Of a hundred such logs, these go wrong if that is looked at for one job only.
    trace = crowded(seed)
    slurm = SlurmParameters(bf_interval_s=1, bf_resolution_s=4, bf_window_min=24)
    few = Simulation(trace, Method.SLURM, slurm=slurm, plans_all=False)

    assert started(few) == started(Simulation(trace, Method.SLURM, slurm=slurm))


def test_a_whole_plan_has_the_jobs_in_the_order_of_the_queue() -> None:
    for moment in Simulation(crowded(6), Method.SLURM):
        planned = [place.job for place in moment.plan]
        assert planned == sorted(planned)


def crowded(seed: int) -> JobTrace:
    """A hundred jobs on 32 units, short and long, that all come within 100 s."""
    chance = random.Random(seed)  # noqa: S311 -- load, not secrets
    jobs = []
    for _ in range(100):
        units = chance.choice((chance.randint(1, 32), chance.randint(1, 4)))
        run_s = chance.randint(1, 100)
        submit_s = chance.randint(0, 100)
        request_s = run_s + chance.choice((0, chance.randint(0, 300)))
        jobs.append(job(submit_s, units, run_s, request_s))
    return trace_of(jobs, 32)


def started(simulation: Simulation) -> list[Running]:
    return [job for moment in simulation for job in moment.started]


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
