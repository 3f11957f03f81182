"""What jobs ask for, on a real Slurm: exactly the leases go that let a job start.

How long each waited is printed; ``pytest -s`` shows it.
"""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm.records import JobRecord, expand
from tests.cluster.broker import LiveBroker
from tests.cluster.cluster import Cluster
from tests.cluster.settings import GPU_NODES, IB_NODES, NODES, RACKS, Variant
from tests.cluster.site import OTHER_USER, Site
from tests.cluster.waiting import wait_for

pytestmark = pytest.mark.slurm


@pytest.fixture
def site(cluster_of: Callable[..., Cluster], folder: Path) -> Iterator[Site]:
    cluster = cluster_of(Variant.SHARED, Variant.GRES)
    yield Site(cluster, folder.parent, "main")
    cluster.clear()


@pytest.fixture
def broker(site: Site, folder: Path) -> LiveBroker:
    """Eight leases that are heard."""
    broker = LiveBroker(site.cluster, folder, partition="main")
    broker.submit_a_sleeper(8)
    broker.until_leased(8)
    return broker


def started(broker: LiveBroker, site: Site, job_id: int) -> set[str]:
    """Tick once, and return the nodes of the job once it runs."""
    began_s = time.monotonic()
    broker.tick()
    job = site.wait_for_running(job_id)
    waited_s = time.monotonic() - began_s
    sys.stdout.write(f"\njob {job_id}: {waited_s:.2f} s from the tick to running\n")
    return set(expand(job.nodes))


def leases(site: Site) -> int:
    """Return how many leases hold nodes and are not just ending."""

    def is_settled() -> list[JobRecord]:
        jobs = [job for job in site.backend().jobs() if job.user != OTHER_USER]
        return [job for job in jobs if job.holds_nodes] or jobs

    return len([job for job in wait_for("leases", is_settled) if job.holds_nodes])


def test_exactly_the_leases_go_on_whose_nodes_a_job_could_start(
    broker: LiveBroker, site: Site
) -> None:
    gpus, ib, rack1 = set(GPU_NODES), set(IB_NODES), set(RACKS["rack1"])

    both = started(broker, site, site.others_job(1, 5, "--constraint=gpu&ib"))
    assert both == gpus & ib
    again = site.others_job(1, 5, "--constraint=gpu&ib")
    broker.tick()
    assert leases(site) == 7, "leases went for a job that cannot use their nodes"
    site.cluster.run("scancel", str(again))

    assert (
        started(broker, site, site.others_job(1, 5, "--gres=gpu:a100:2")) == gpus - ib
    )
    assert leases(site) == 6

    excluding = ("--constraint=rack1", "--exclude=n[1-2,4]")
    assert started(broker, site, site.others_job(1, 5, *excluding)) == {"n3"}
    assert leases(site) == 5

    same = started(broker, site, site.others_job(2, 5, "--constraint=[rack1|rack2]"))
    assert same <= rack1 or not same & rack1
    assert leases(site) == 3

    left = set(NODES) - both - (gpus - ib) - {"n3"} - same
    counts = site.others_job(2, 5, "--constraint=ib*1")
    assert started(broker, site, counts) & ib
    assert len(left) == 3
    assert leases(site) == 1


def test_components_of_a_heterogeneous_job_get_nodes_together(
    broker: LiveBroker, site: Site
) -> None:
    words = (f"--uid={OTHER_USER}", "--partition=main", "--chdir=/", "--parsable")
    first = (*words, "--output=/dev/null", "--time=5", "--nodes=2")
    second = ("--partition=main", "--nodes=1", "--constraint=gpu&ib")
    script = site.script("exec sleep 3600")
    job_id = int(site.cluster.run("sbatch", *first, ":", *second, script))

    started(broker, site, job_id)

    assert started(broker, site, job_id + 1) == {"n8"}
    assert leases(site) == 5
