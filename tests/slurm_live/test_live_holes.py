"""Plans, holes and leases on a real cluster."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from slurm.holes import HoleEnd, carry_plans, plans_of
from slurm.records import JobState, expand
from tests.cluster.settings import NODES
from tests.cluster.waiting import wait_for
from tests.slurm_live.sites import LEASES

if TYPE_CHECKING:
    from slurm.records import JobRecord
    from tests.slurm_live.sites import Site

pytestmark = pytest.mark.slurm

SLEEP = "exec sleep 3600"
PLAN_SLACK_S = 60.0  # bf_resolution rounds a planned start up, twice at most
MARGIN_S = 20.0
HOSTILE = '\'; touch pwned; "$(touch pwned)" `touch pwned`\n|x|\t\\n %j é漢 --uid=0'


def test_a_job_that_waits_for_every_node_shows_when_and_where_it_will_start(
    site: Site,
) -> None:
    running = site.others_running_job(6, minutes=10)

    _, job = site.whole_look_with_plan(site.others_job(8, minutes=10))

    assert tuple(expand(job.planned_nodes or "")) == NODES
    assert running.end_s is not None
    assert job.start_s is not None
    assert 0 <= job.start_s - running.end_s <= PLAN_SLACK_S


def test_the_idle_nodes_before_a_planned_start_are_holes_that_it_ends(
    site: Site,
) -> None:
    running = site.others_running_job(6, minutes=10)

    look, job = site.whole_look_with_plan(site.others_job(8, minutes=10))
    holes = site.holes(look, margin_s=MARGIN_S)

    assert {hole.node for hole in holes} == set(NODES) - set(expand(running.nodes))
    assert {hole.ends_by for hole in holes} == {HoleEnd.PLANNED_JOB}
    assert {hole.blocker for hole in holes} == {str(job.job_id)}
    assert job.start_s is not None
    assert {hole.end_s for hole in holes} == {job.start_s - MARGIN_S}


def test_idle_nodes_for_which_no_job_waits_end_with_the_partitions_limit(
    site: Site,
) -> None:
    holes = site.holes(site.backend().snapshot())

    assert {hole.node for hole in holes} == set(NODES)
    assert {hole.ends_by for hole in holes} == {HoleEnd.PARTITION_LIMIT}


def test_leases_fill_the_hole_and_those_too_many_remove_themselves(site: Site) -> None:
    site.others_running_job(6, minutes=10)
    look, waiting = site.whole_look_with_plan(site.others_job(8, minutes=10))
    hole_nodes = {hole.node for hole in site.holes(look)}
    backend = site.backend()
    request = site.lease(site.script(SLEEP), tasks=4, minutes=2)

    backend.submit(replace(request, deadline_s=look.time_s + 150))
    wait_for("two leases to run", lambda: len(_running(site)) == 2)
    wait_for("two to give up", lambda: _states(site)[JobState.DEADLINE] == 2)

    assert {job.nodes for job in _running(site)} == hole_nodes
    _, still = site.whole_look_with_plan(waiting.job_id)
    assert still.start_s == waiting.start_s


def test_holes_stay_open_under_our_own_leases(site: Site) -> None:
    site.others_running_job(6, minutes=10)
    job_id = site.others_job(8, minutes=10)
    look, _ = site.whole_look_with_plan(job_id)
    before = {hole.node: hole.end_s for hole in site.holes(look)}
    site.backend().submit(site.lease(site.script(SLEEP), tasks=4))
    wait_for("two leases to run", lambda: len(_running(site)) == 2)

    look, _ = site.whole_look_with_plan(job_id)
    after = site.holes(look)

    assert {hole.node: hole.end_s for hole in after} == before
    held = {number for hole in after for number in hole.held_by}
    assert held == {job.job_id for job in _running(site)}


def test_a_snapshot_without_plans_is_torn_and_the_plans_before_repair_it(
    yielding_site: Site,
) -> None:
    """Backfill clears all plans, then sleeps 0.3 s before each of thirty jobs.

    Such a look alone shows holes that are not there.
    """
    site = yielding_site
    site.others_running_job(6, minutes=10)
    first = site.others_job(8, minutes=10)
    look, _ = site.whole_look_with_plan(first)
    plans = plans_of(look)
    for _ in range(30):
        site.others_job(8, minutes=10)
    phantoms, wholes = 0, 0
    backend = site.backend()

    def both_were_seen() -> bool:
        nonlocal phantoms, wholes, plans
        seen = backend.snapshot()
        repaired = carry_plans(plans, seen, max_age_s=600)
        ends = {(hole.ends_by, hole.blocker) for hole in site.holes(repaired)}
        assert ends == {(HoleEnd.PLANNED_JOB, str(first))}, seen
        is_phantom = {hole.blocker for hole in site.holes(seen)} != {str(first)}
        assert seen.is_torn or not is_phantom
        phantoms += is_phantom
        wholes += not seen.is_torn
        plans = plans_of(repaired)
        return phantoms >= 1 and wholes >= 1

    wait_for("a torn look and a whole one", both_were_seen, limit_s=120)


def test_hostile_names_and_comments_of_others_are_read_and_not_run(site: Site) -> None:
    job_id = site.others_job(8, 10, f"--job-name={HOSTILE}", f"--comment={HOSTILE}")
    site.others_job(8, 10, "--job-name=a,b|c", "--begin=now+1hour")

    jobs = {job.job_id: job for job in site.backend().snapshot().jobs}

    assert (jobs[job_id].name, jobs[job_id].comment) == (HOSTILE, HOSTILE)
    assert jobs[job_id + 1].name == "a,b|c"
    assert not list(site.folder.rglob("pwned"))


@pytest.mark.parametrize(("nice", "delays_others"), [(10_000, False), (0, True)])
def test_only_leases_without_nice_move_a_later_users_planned_start(
    shared_site: Site,
    nice: int,
    delays_others: bool,  # noqa: FBT001 -- a parameter of the test
) -> None:
    site = shared_site
    running = site.others_running_job(8, minutes=10)
    request = site.lease(site.script(SLEEP), tasks=4, minutes=5, nice=nice)
    site.backend().submit(request)

    _, job = site.whole_look_with_plan(site.others_job(8, minutes=10))

    assert running.end_s is not None
    assert job.start_s is not None
    is_late = job.start_s - running.end_s > PLAN_SLACK_S
    assert is_late == delays_others
    assert _states(site) == Counter({JobState.PENDING: 4})


def test_with_nice_a_user_gets_the_nodes_that_leases_give_back(
    shared_site: Site,
) -> None:
    """Leases that wait are ended first, then one that runs."""
    site, backend = shared_site, shared_site.backend()
    backend.submit(site.lease(site.script(SLEEP), tasks=12, minutes=30))
    wait_for("eight leases to run", lambda: len(_running(site)) == 8)
    job_id = site.others_job(1, minutes=10)

    found = backend.find_by_name(LEASES)
    backend.cancel([job.key for job in found if job.is_pending])
    backend.cancel([_running(site)[0].key])

    def runs() -> bool:
        jobs = backend.snapshot().jobs
        return any(job.job_id == job_id and job.holds_nodes for job in jobs)

    wait_for("the user's job to run", runs)
    assert len(_running(site)) == 7


def _running(site: Site) -> list[JobRecord]:
    found = site.backend().find_by_name(LEASES)
    return [job for job in found if job.states == {JobState.RUNNING}]


def _states(site: Site) -> Counter[JobState]:
    """Count leases by state; those of earlier tests have been cancelled."""
    found = site.backend().find_by_name(LEASES)
    counted = Counter(state for job in found for state in job.states)
    del counted[JobState.CANCELLED]
    return counted
