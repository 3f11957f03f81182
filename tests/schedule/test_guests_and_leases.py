"""Somebody on the machine who does not stand in the queue, worked out by hand."""

from logs.simulation import Method, Simulation
from logs.timeline import UnitSet
from logs.trace import Job, JobTrace


class Slow:
    """Takes 7 s to leave unit 0, and no time to leave any other."""

    def leave(self, job: int, units: UnitSet, now_s: float) -> float:
        del job, now_s
        return 7.0 if units & 1 else 0.0


def simulation_of(*jobs: tuple[float, float, int], units: int) -> Simulation:
    made = tuple(
        Job(str(k), submit_s, None, run_s, size, run_s)
        for k, (submit_s, run_s, size) in enumerate(jobs)
    )
    trace = JobTrace(source="by hand", log_format="swf", jobs=made, units=units)
    return Simulation(trace, Method.EASY)


def starts_s(simulation: Simulation) -> dict[int, float]:
    return {job.job: job.start_s for moment in simulation for job in moment.started}


def test_a_job_starts_when_guests_have_left_and_ends_so_much_later() -> None:
    jobs = ((0.0, 10.0, 1), (0.0, 10.0, 1), (1.0, 10.0, 2))
    branch = simulation_of(*jobs, units=2).branch(Slow())

    # The first gets unit 0 and runs from 7 to 17 s; the third needs both units.
    assert starts_s(branch) == {0: 7.0, 1: 0.0, 2: 24.0}


def test_a_branch_leaves_the_simulation_as_it_was() -> None:
    simulation = simulation_of((0.0, 10.0, 1), (5.0, 10.0, 1), units=1)
    simulation.step()
    branch = simulation.branch(Slow())

    assert starts_s(branch) == {1: 17.0}
    assert starts_s(simulation) == {1: 10.0}


def test_jobs_wait_for_units_that_are_leased_until_they_are_released() -> None:
    simulation = simulation_of((0.0, 10.0, 1), (5.0, 10.0, 2), units=2)
    simulation.step()
    leased = simulation.lease(0b10, until_s=100.0, now_s=2.0)
    assert leased.free == 0

    came = simulation.step()
    assert came is not None
    # The head is planned for when the lease is to end.
    assert [(job.job, job.start_s) for job in came.plan] == [(1, 100.0)]
    assert came.put_off == ()
    ended = simulation.step()
    assert ended is not None
    assert ended.time_s == 10.0
    assert ended.started == ()
    assert ended.put_off == (1,)
    given = simulation.release(0b10, now_s=12.0)
    assert [(job.job, job.start_s) for job in given.started] == [(1, 12.0)]


def test_part_of_a_lease_can_be_released() -> None:
    simulation = simulation_of((0.0, 10.0, 1), (5.0, 10.0, 1), units=3)
    simulation.step()
    simulation.lease(0b110, until_s=100.0, now_s=2.0)
    assert simulation.release(0b010, now_s=3.0).free == 0b010
    came = simulation.step()

    assert came is not None
    assert [job.units for job in came.started] == [0b010]
    assert simulation.release(0b100, now_s=6.0).free == 0b100
