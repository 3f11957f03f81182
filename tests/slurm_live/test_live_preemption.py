"""What a lease hears when the main partition takes its node, and what survives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurm.errors import SlurmError
from slurm.holes import is_torn
from slurm.records import JobState
from tests.cluster.cluster import restart_controller
from tests.cluster.waiting import wait_for
from tests.slurm_live.sites import LEASES

if TYPE_CHECKING:
    from slurm.holes import Snapshot
    from slurm.records import JobRecord
    from tests.slurm_live.sites import Site

pytestmark = pytest.mark.slurm

# A lease is submitted with --export=NONE, and its srun would pass that on: without
# PATH a step finds no program.
LISTENER = """
cd '{folder}'
cat >step <<'END'
trap '[ -e step-heard ] || touch step-heard' TERM
touch ready
while :; do sleep 0.1; done
END
trap 'touch batch-heard; exit 0' TERM
srun --export=ALL --overlap --ntasks=1 sh ./step &
while :; do sleep 0.1; done
"""

OBEDIENT = """
cd '{folder}'
cat >step <<'END'
trap 'scancel --signal=KILL $SLURM_JOB_ID; exit 0' TERM
touch ready
while :; do sleep 0.1; done
END
srun --export=ALL --overlap --ntasks=1 sh ./step &
wait
"""


def test_a_step_hears_of_preemption_first_and_the_batch_script_at_the_end_of_grace(
    site: Site,
) -> None:
    _start_lease(site, LISTENER)

    job_id = site.others_job(8, minutes=5)

    wait_for("the step to hear", (site.folder / "step-heard").exists)
    assert not (site.folder / "batch-heard").exists()
    wait_for("the batch script to hear", (site.folder / "batch-heard").exists)
    assert _heard_s(site, "step") < _heard_s(site, "batch")
    wait_for("the other's job to run", lambda: _runs(site, job_id))
    assert _lease(site).states == {JobState.PREEMPTED}


def test_a_lease_that_ends_itself_on_notice_gives_its_node_up_within_the_grace_time(
    site: Site,
) -> None:
    _start_lease(site, OBEDIENT)

    job_id = site.others_job(8, minutes=5)
    wait_for("the other's job to run", lambda: _runs(site, job_id))

    job = _job(site.backend().snapshot(), job_id)
    assert job is not None
    assert job.start_s is not None
    ended_s = _lease(site).end_s
    assert ended_s is not None
    assert ended_s <= job.start_s


def test_the_main_partition_takes_idle_nodes_before_it_preempts(site: Site) -> None:
    _start_lease(site, LISTENER)

    job_id = site.others_job(7, minutes=5)
    wait_for("the other's job to run", lambda: _runs(site, job_id))

    assert _lease(site).states == {JobState.RUNNING}
    assert not (site.folder / "step-heard").exists()


def test_a_restarted_controller_knows_the_leases_and_tears_the_look(site: Site) -> None:
    _start_lease(site, LISTENER)
    before, lease = site.backend().snapshot(), _lease(site)

    restart_controller(site.cluster)
    after = wait_for("the controller to answer again", lambda: _look(site))

    assert after is not None
    assert is_torn(before.before, after.after)
    wait_for("the lease to be known", lambda: _lease(site).states == lease.states)
    assert _lease(site).key == lease.key


def _start_lease(site: Site, script: str) -> None:
    body = script.format(folder=site.folder)
    submitted = site.backend().submit(site.lease(site.script(body), minutes=30))
    assert submitted.job_id
    wait_for("the lease's step to run", (site.folder / "ready").exists)


def _lease(site: Site) -> JobRecord:
    """Return the lease submitted last."""
    return max(site.backend().find_by_name(LEASES), key=lambda job: job.job_id)


def _heard_s(site: Site, who: str) -> float:
    return (site.folder / f"{who}-heard").stat().st_mtime


def _runs(site: Site, job_id: int) -> bool:
    job = _job(site.backend().snapshot(), job_id)
    return job is not None and job.holds_nodes


def _look(site: Site) -> Snapshot | None:
    try:
        return site.backend().snapshot()
    except SlurmError:
        return None


def _job(look: Snapshot, job_id: int) -> JobRecord | None:
    return next((job for job in look.jobs if job.job_id == job_id), None)
