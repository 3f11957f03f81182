"""The log's own schedule."""

import pytest

from logs.schedule import Schedule, schedule
from logs.simulation import Method
from logs.timeline import members
from logs.trace import Job, JobTrace, UnusableLogError, natural_key


def ran(
    start_s: float | None, run_s: float, units: int, nodes: tuple[str, ...] = ()
) -> Job:
    return Job("", 0, start_s, run_s, units, None, nodes=nodes)


def recorded(jobs: list[Job], units: int) -> Schedule:
    return schedule(JobTrace("log", "sacct", tuple(jobs), units), Method.RECORDED)


def held(result: Schedule) -> dict[int, tuple[float, tuple[int, ...]]]:
    return {each.job: (each.start_s, members(each.units)) for each in result.placed}


def test_jobs_start_when_the_log_says_on_the_lowest_free_units() -> None:
    # 0: A on 0, 1. 5: B on 2. 10: A ends, C takes 0, 1 and the next free, 3.
    result = recorded([ran(0, 10, 2), ran(5, 10, 1), ran(10, 5, 3)], 4)
    assert held(result) == {0: (0, (0, 1)), 1: (5, (2,)), 2: (10, (0, 1, 3))}
    assert result.over_commitment.jobs == 0
    assert result.over_commitment.worst_s is None


def test_jobs_run_where_the_log_says() -> None:
    result = recorded([ran(0, 10, 2, ("n10", "n2")), ran(0, 10, 1, ("n1",))], 3)
    assert result.layout.names == ("n1", "n2", "n10")
    assert held(result) == {0: (0, (1, 2)), 1: (0, (0,))}


def test_units_beyond_the_named_nodes_are_the_lowest_free_ones() -> None:
    result = recorded([ran(0, 10, 3, ("n2",)), ran(0, 10, 1, ("n1",))], 4)
    assert result.layout.names == ("n1", "n2", "2", "3")
    assert held(result) == {0: (0, (0, 1, 2)), 1: (0, ())}


def test_what_the_machine_lacks_is_counted_and_the_rest_placed() -> None:
    # 4 units. 0: A has 3. 2: B wants 3, gets 1: 2 missing for 4 s. 3: C wants 1,
    # gets none for 5 s: 3 are missing from 3 on, the worst.
    result = recorded([ran(0, 10, 3), ran(2, 4, 3), ran(3, 5, 1)], 4)
    assert held(result) == {0: (0, (0, 1, 2)), 1: (2, (3,)), 2: (3, ())}
    over = result.over_commitment
    assert (over.jobs, over.unit_s, over.worst_s, over.worst_units) == (2, 13, 3, 3)


def test_a_named_node_that_is_taken_is_over_committed() -> None:
    result = recorded([ran(0, 10, 1, ("n1",)), ran(5, 10, 1, ("n1",))], 3)
    assert held(result) == {0: (0, (0,)), 1: (5, ())}
    over = result.over_commitment
    assert (over.jobs, over.unit_s, over.worst_s, over.worst_units) == (1, 10, 5, 1)


def test_a_job_wider_than_the_machine_gets_all_of_it() -> None:
    result = recorded([ran(0, 10, 5)], 4)
    assert held(result) == {0: (0, (0, 1, 2, 3))}
    assert result.over_commitment.unit_s == 10
    assert not result.refused


def test_an_end_frees_units_for_a_start_of_the_same_second() -> None:
    result = recorded([ran(0, 10, 4), ran(10, 10, 4)], 4)
    assert result.over_commitment.jobs == 0


def test_a_job_of_zero_run_time_takes_nothing_from_others() -> None:
    result = recorded([ran(0, 0, 4), ran(0, 10, 4)], 4)
    assert held(result) == {1: (0, (0, 1, 2, 3)), 0: (0, ())}
    assert result.over_commitment.jobs == 0


def test_jobs_without_a_recorded_start_are_refused_saying_why() -> None:
    result = recorded([ran(None, 10, 1), ran(None, 0, 1), ran(0, 1, 0)], 4)
    assert [why.name for why in result.refused.values()] == [
        "NO_START",
        "NEVER_RAN",
        "NO_UNITS",
    ]
    assert result.placed == ()
    assert result.end_s == 0


def test_a_log_that_names_more_nodes_than_were_busy_at_once_makes_them_all() -> None:
    result = recorded([ran(0, 1, 1, ("a",)), ran(5, 1, 1, ("b",))], 1)
    assert result.layout.names == ("a", "b")


def test_a_machine_smaller_than_the_named_nodes_is_refused_for_recorded() -> None:
    jobs = (ran(0, 1, 1, ("a",)), ran(5, 1, 1, ("b",)))
    trace = JobTrace("log", "sacct", jobs, 2)
    with pytest.raises(UnusableLogError, match="name 2 nodes, and the machine has 1"):
        schedule(trace, Method.RECORDED, units=1)
    assert schedule(trace, Method.EASY, units=1).layout.names == ("0",)


def test_a_machine_without_units_is_refused() -> None:
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
