"""Limits of accounts and users on a real Slurm: leases that use them up make room.

So do leases that Slurm should have preempted, as another reason for which jobs wait
whatever nodes there are. How long it took is printed; ``pytest -s`` shows it.
"""

import os
import pwd
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from freetrain.broker.reasons import Brake, EndReason
from freetrain.state.database import read_store
from freetrain.state.tables import EventKind, intents
from freetrain.tick.status_report import StatusReport
from tests.cluster import accounting
from tests.cluster.broker import LiveBroker
from tests.cluster.cluster import Cluster
from tests.cluster.settings import Variant
from tests.cluster.site import Site
from tests.cluster.waiting import wait_for
from tests.state.events import events_of

pytestmark = pytest.mark.slurm

US = pwd.getpwuid(os.getuid()).pw_name
NO_LIMIT = "-1"

SOMETIMES_NONE = (24, 11)
"""From this release on, as far as is known, backfill clears the reason of a job that
waits for a limit while no node is idle: docs/notes/slurm.md."""


@pytest.fixture
def cluster(cluster_of: Callable[..., Cluster], folder: Path) -> Iterator[Cluster]:
    """Limits that are lifted, and jobs that are ended before *folder* is removed."""
    del folder
    missing = accounting.why_not()
    if missing:
        pytest.skip(missing)
    cluster = cluster_of(Variant.SHARED, Variant.LIMITS)
    yield cluster
    cluster.clear()
    for account in (accounting.ACCOUNT, accounting.SISTER, accounting.ABOVE):
        limit(cluster, "account", account, f"GrpTRES=node={NO_LIMIT}")
    for what in ("MaxJobs", "MaxSubmitJobs"):
        limit(cluster, "user", US, f"{what}={NO_LIMIT}")


def limit(cluster: Cluster, what: str, name: str, value: str) -> None:
    accounting.sacctmgr(cluster.folder, "modify", what, name, "set", value)


def leased(cluster: Cluster, folder: Path, count: int) -> LiveBroker:
    """Return a broker with so many leases that are heard."""
    broker = LiveBroker(cluster, folder, partition="main")
    broker.submit_a_sleeper(8)
    broker.until_leased(count)
    return broker


def waits_for(site: Site, job_id: int, reason: str) -> None:
    def is_held() -> bool:
        jobs = site.backend().jobs()
        return any((job.job_id, job.reason) == (job_id, reason) for job in jobs)

    wait_for(f"job {job_id} to wait: {reason}", is_held)


def room_is_made_for(
    broker: LiveBroker, site: Site, job_id: int, why: EndReason = EndReason.LIMITED
) -> StatusReport:
    """Tick once, and return the report once the job runs."""
    began_s = time.monotonic()
    page = broker.tick()
    site.wait_for_running(job_id)
    waited_s = time.monotonic() - began_s
    sys.stdout.write(f"\n{waited_s:.2f} s from the tick to running\n")
    with read_store(broker.folder.path, uid=os.getuid()) as state:
        uuids = [intent.uuid for intent in intents(state, ending_after_s=0.0)]
        events = [event for uuid in uuids for event in events_of(state, uuid)]
    said = {event.detail for event in events if event.kind is EventKind.YIELDED}
    assert said >= {str(why)}
    return page


def test_leases_that_use_up_an_accounts_nodes_leave_for_a_colleague(
    cluster: Cluster, folder: Path
) -> None:
    limit(cluster, "account", accounting.ACCOUNT, "GrpTRES=node=6")
    broker, site = leased(cluster, folder, 6), Site(cluster, folder.parent, "main")
    job_id = site.others_job(1, 5)
    waits_for(site, job_id, "AssocGrpNodeLimit")

    page = room_is_made_for(broker, site, job_id)

    assert page.done["leases ended"] >= 6
    limit_said = "AssocGrpNodeLimit: GrpTRES=node=6 of account physics"
    assert any(limit_said in line for line in page.problems)
    assert broker.tick().brake == Brake.LIMIT_BLOCKS


def test_leases_leave_for_a_sister_account_below_the_same_limit(
    cluster: Cluster, folder: Path
) -> None:
    limit(cluster, "account", accounting.ABOVE, "GrpTRES=node=6")
    broker, site = leased(cluster, folder, 6), Site(cluster, folder.parent, "main")
    job_id = site.others_job(1, 5, f"--account={accounting.SISTER}")
    waits_for(site, job_id, "AssocGrpNodeLimit")

    page = room_is_made_for(broker, site, job_id)

    limit_said = "AssocGrpNodeLimit: GrpTRES=node=6 of account science"
    assert any(limit_said in line for line in page.problems)


def test_a_sister_account_at_its_own_limit_is_no_reason_to_leave(
    cluster: Cluster, folder: Path
) -> None:
    limit(cluster, "account", accounting.SISTER, "GrpTRES=node=1")
    site = Site(cluster, folder.parent, "main")
    first = site.others_job(1, 5, f"--account={accounting.SISTER}")
    site.wait_for_running(first)
    broker = leased(cluster, folder, 7)
    second = site.others_job(1, 5, f"--account={accounting.SISTER}")
    waits_for(site, second, "AssocGrpNodeLimit")

    pages = [broker.tick() for _ in range(3)]

    ended = sum(page.done["leases ended"] for page in pages)
    if site.backend().release().series >= SOMETIMES_NONE:
        assert ended <= 1
        return
    assert ended == 0
    assert {page.brake for page in pages} == {""}
    assert sum(lease.state == "running" for lease in pages[-1].leases) == 7


def test_leases_fit_beside_the_jobs_of_a_colleague(
    cluster: Cluster, folder: Path
) -> None:
    limit(cluster, "account", accounting.ACCOUNT, "GrpTRES=node=6")
    site = Site(cluster, folder.parent, "main")
    site.others_running_job(2, 5)
    broker = LiveBroker(cluster, folder, partition="main")
    broker.submit_a_sleeper(8)

    first = broker.tick()

    assert first.done["leases asked for"] == 4
    said = "GrpTRES=node=6 of account physics, 2 of them for other jobs"
    assert first.limit == said
    page = broker.until_leased(4)
    assert page.problems == ()


def test_leases_leave_for_a_job_of_their_own_user(
    cluster: Cluster, folder: Path
) -> None:
    limit(cluster, "user", US, "MaxJobs=3")
    broker, site = leased(cluster, folder, 3), Site(cluster, folder.parent, "main")
    script = site.script("exec sleep 3600")
    words = ("--partition=main", "--chdir=/", "--parsable", "--output=/dev/null")
    job_id = int(cluster.run("sbatch", *words, "--nodes=1", "--time=5", script))
    waits_for(site, job_id, "AssocMaxJobsLimit")

    room_is_made_for(broker, site, job_id)


def test_of_a_request_no_more_is_asked_for_than_a_submit_limit_takes(
    cluster: Cluster, folder: Path
) -> None:
    limit(cluster, "user", US, "MaxSubmitJobs=6")
    broker = LiveBroker(cluster, folder, partition="main")
    broker.submit_a_sleeper(8)

    first = broker.tick()

    assert first.done["leases asked for"] == 6
    assert first.problems == ()
    assert first.limit == f"MaxSubmitJobs=6 of user {US} in account physics"
    broker.until_leased(6)
    assert broker.tick().brake == Brake.SUBMIT_LIMIT


@pytest.fixture
def late(cluster_of: Callable[..., Cluster], folder: Path) -> Iterator[Cluster]:
    """A cluster that preempts no job in its first ten minutes."""
    del folder
    cluster = cluster_of(Variant.EXEMPT)
    yield cluster
    cluster.clear()


def test_a_lease_that_slurm_does_not_preempt_in_time_is_given_up(
    late: Cluster, folder: Path
) -> None:
    broker, site = LiveBroker(late, folder), Site(late, folder.parent, "main")
    broker.submit_a_sleeper(8)
    broker.until_leased(8)
    began_s = time.monotonic()
    job_id = site.others_job(1, 5)
    kept = broker.tick()

    def is_given_up() -> StatusReport | None:
        page = broker.tick()
        return page if page.done["leases ended"] else None

    page = wait_for("a lease to be given up", is_given_up)
    site.wait_for_running(job_id)
    sys.stdout.write(f"\n{time.monotonic() - began_s:.1f} s from submission to start\n")

    assert (kept.mode, kept.done["leases ended"]) == ("preempt", 0)
    assert page.done["leases ended"] == 1
    assert any("has not preempted 1 lease for job" in line for line in page.problems)
