"""Limits of accounts and users on a real Slurm: leases that use them up make room.

How long it took is printed; ``pytest -s`` shows it.
"""

import os
import pwd
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from freetrain.broker.limits import Brake, EndReason
from freetrain.state.database import read_store
from freetrain.state.tables import EventKind, intents
from freetrain.tick.status_report import StatusReport
from slurm.associations import associations_argv, parse_associations
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


@pytest.fixture
def cluster(cluster_of: Callable[..., Cluster]) -> Iterator[Cluster]:
    missing = accounting.why_not()
    if missing:
        pytest.skip(missing)
    cluster = cluster_of(Variant.SHARED, Variant.LIMITS)
    yield cluster
    cluster.clear()
    limit(cluster, "account", accounting.ACCOUNT, f"GrpTRES=node={NO_LIMIT}")
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


def room_is_made_for(broker: LiveBroker, site: Site, job_id: int) -> StatusReport:
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
    assert said >= {str(EndReason.LIMITED)}
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
    assert any("AssocGrpNodeLimit" in line for line in page.problems)
    assert broker.tick().brake == Brake.LIMIT_HELD


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


def test_an_array_that_slurm_refuses_for_a_limit_is_halved(
    cluster: Cluster, folder: Path
) -> None:
    limit(cluster, "user", US, "MaxSubmitJobs=6")
    broker = LiveBroker(cluster, folder, partition="main")
    broker.submit_a_sleeper(8)

    argv = associations_argv(US)
    said = parse_associations(cluster.run(*argv))
    assert 6 in {found.most_leases for found in said}

    first = broker.tick()
    broker.until_leased(4)

    assert any("accounting/QOS policy" in line for line in first.problems)
    assert broker.tick().brake == Brake.SUBMIT_LIMIT
