"""Pieces of nodes that jobs share, on a real cluster: what starts beside what."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slurm.batch import gres_argument
from slurm.holes import HoleEnd
from slurm.records import Gres, Requirement
from tests.cluster.cluster import Cluster
from tests.cluster.settings import Variant
from tests.cluster.site import Site, whole_look

pytestmark = pytest.mark.slurm

ONE = Requirement(
    partition="freetrain",
    gres=(Gres("gpu", "a100", 1),),
    cpus=2,
    memory_mib=2000,
    exclusive=False,
)
SLEEP = "exec sleep 3600"


@pytest.fixture
def site(cluster_of: Callable[..., Cluster], tmp_path: Path) -> Iterator[Site]:
    cluster = cluster_of(Variant.PARTS)
    yield Site(cluster, tmp_path, "freetrain")
    cluster.clear()


def rooms(site: Site, asked: Requirement = ONE) -> dict[str, int]:
    holes = site.holes(whole_look(site.backend()), asked)
    return {hole.node: hole.room for hole in holes}


def submit(site: Site, node: str, *, minutes: int) -> int:
    """Submit a lease of one piece that only *node* may run."""
    request = replace(
        site.lease(site.script(SLEEP), minutes=minutes),
        exclusive=False,
        cpus=ONE.cpus,
        memory_mib=ONE.memory_mib,
        gres=gres_argument(ONE.gres[0]),
        excluded=",".join(f"n{k}" for k in range(1, 9) if f"n{k}" != node),
    )
    return site.backend().submit(request).job_id


def test_what_jobs_leave_free_of_a_node_is_a_hole(site: Site) -> None:
    site.others_running_job(1, 10, "--gres=gpu:a100:3", "--mem=1000", "--nodelist=n1")
    site.others_running_job(1, 10, "--exclusive=user", "--mem=100", "--nodelist=n2")
    site.others_running_job(1, 10, "--exclusive", "--nodelist=n3")

    assert rooms(site) == {"n1": 1, "n4": 4}
    assert rooms(site, replace(ONE, gres=(Gres("gpu", "", 2),))) == {
        "n4": 2, "n5": 1, "n6": 1, "n7": 2,
    }  # fmt: skip
    lease = submit(site, "n1", minutes=2)
    site.wait_for_running(lease)
    assert rooms(site) == {"n1": 0, "n4": 4}


def test_waiting_jobs_are_known_to_share_nodes_or_not_on_every_release(
    site: Site,
) -> None:
    options = {
        "--exclusive": {"NO"},
        "--exclusive=user": {"USER"},
        "--oversubscribe": {"OK", "YES"},
        "--gres=gpu:1": {"OK"},
    }
    jobs = {site.others_job(1, 10, "--hold", word): word for word in options}

    seen = {job.job_id: job.oversubscribe for job in site.backend().snapshot().jobs}

    assert all(seen[job] in options[word] for job, word in jobs.items()), seen


def test_a_planned_job_ends_all_pieces_of_its_node_though_both_would_fit(
    site: Site,
) -> None:
    """Backfill plans by whole nodes: what runs into a plan does not start beside it."""
    site.others_running_job(1, 10, "--gres=gpu:a100:3", "--mem=100", "--nodelist=n1")
    waits = site.others_job(
        1, 10, "--gres=gpu:a100:2", "--mem=100", "--nodelist=n1", "--cpus-per-task=1"
    )
    look, planned = site.whole_look_with_plan(waits)

    (hole,) = [hole for hole in site.holes(look, ONE) if hole.node == "n1"]
    assert (hole.room, hole.ends_by, hole.blocker) == (
        1,
        HoleEnd.PLANNED_JOB,
        str(waits),
    )
    assert hole.end_s == planned.start_s
    long = submit(site, "n1", minutes=30)
    short = submit(site, "n1", minutes=2)
    site.wait_for_running(short)
    jobs = {job.job_id: job for job in site.backend().snapshot().jobs}
    assert jobs[long].is_pending
