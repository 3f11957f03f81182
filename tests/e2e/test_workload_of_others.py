"""The workload, and what is made of what was seen of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.records import JobRecord, JobState
from tests.e2e.others import HOLE_S, JobSeen, busy, make_run, make_workload

RUNNING = JobRecord(
    job_id=7,
    display_id="7",
    states=frozenset({JobState.RUNNING}),
    name="other-0",
    submit_s=100.0,
    start_s=104.0,
    end_s=164.0,
    nodes="n[1-2]",
)


def test_the_same_seed_gives_the_same_workload() -> None:
    first, second = (make_workload(7, span_s=3_600) for _ in range(2))

    assert first == second != make_workload(8, span_s=3_600)


@given(st.integers(), st.floats(300, 20_000), st.sampled_from([0.1, 0.5, 1.0]))
def test_every_job_fits_the_cluster_and_its_limit_and_comes_in_time(
    seed: int, span_s: float, time_scale: float
) -> None:
    jobs = make_workload(seed, span_s=span_s, time_scale=time_scale)

    assert list(jobs) == sorted(jobs)
    assert all(0 <= job.at_s < span_s for job in jobs)
    assert all(1 <= job.nodes <= 8 for job in jobs)
    assert all(0 < job.run_s <= 60 * job.limit_min for job in jobs)


@pytest.mark.parametrize("seed", range(5))
def test_one_lane_alone_leaves_holes_of_both_kinds(seed: int) -> None:
    jobs = make_workload(seed, span_s=20_000)
    lane = [job for job in jobs if job.nodes == 3]

    gaps = [after.at_s - before.at_s - before.run_s for before, after in pairwise(lane)]

    assert any(gap < HOLE_S for gap in gaps)
    assert any(gap >= HOLE_S for gap in gaps)


def test_now_and_then_a_job_wants_every_node() -> None:
    assert any(job.nodes == 8 for job in make_workload(1, span_s=3_600))


def test_others_and_leases_are_told_apart_and_what_is_neither_is_left_out() -> None:
    lease = replace(RUNNING, job_id=8, name="freetrain-0b5e")
    stranger = replace(RUNNING, job_id=9, name="sleep")

    run = make_run((RUNNING, lease, stranger), {7: 104.25}, origin_s=99, end_s=120)

    assert run.others == (JobSeen("other-0", frozenset({"n1", "n2"}), 100.0, 104.25),)
    assert [job.started_s for job in run.leases] == [104.0]


def test_a_planned_start_is_no_start_and_a_limit_is_no_end() -> None:
    waiting = replace(RUNNING, job_id=6, states=frozenset({JobState.PENDING}), nodes="")

    run = make_run((waiting, RUNNING), {6: None, 7: None}, origin_s=99, end_s=120)

    assert [job.started_s for job in run.others] == [None, 104.0]
    assert [job.ended_s for job in run.others] == [None, None]


def test_what_several_jobs_held_without_a_break_is_one_span() -> None:
    def held(start_s: float, end_s: float | None, node: str = "n1") -> JobSeen:
        return JobSeen("x", frozenset({node}), 0.0, start_s, end_s)

    jobs = (held(20, 30), held(0, 10), held(10, 12), held(25, None), held(0, 99, "n2"))

    assert busy(jobs, "n1", until_s=40) == [(0, 12), (20, 40)]
