"""Leases that are pieces of nodes make room on a real cluster whose nodes jobs share.

How long each job waited is printed; ``pytest -s`` shows it.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from freetrain.broker.lease import LeaseComment, is_lease, job_name, render_comment
from freetrain.config.site import LeaseMode, LeaseSettings
from freetrain.config.site import Site as SiteSettings
from freetrain.tick.environment import real_environment
from freetrain.tick.room import Room, make_room
from slurm.records import JobState
from tests.cluster.cluster import Cluster
from tests.cluster.settings import NODES, Variant
from tests.cluster.site import Site
from tests.cluster.waiting import wait_for

pytestmark = pytest.mark.slurm

_BUSY_S = 30.0
"""What a machine that does everything at once may add to some seconds."""

ONE_GPU = ("--gres=gpu:a100:1", "--cpus-per-task=2", "--mem=500")
LEASE = 'trap "exit 0" TERM\nsleep 3600 & wait'


@dataclass(frozen=True, slots=True)
class Pieces:
    """Leases of one GPU each, which leave when they get the notice."""

    site: Site

    def lease(self, node: str, count: int) -> None:
        """Submit so many to *node*, and wait until they run."""
        site = self.site
        before = len(self.left())
        for _ in range(count):
            uuid = str(uuid4())
            now_s = time.time()  # noqa: TID251 -- the real one
            said = LeaseComment(uuid=uuid, is_pooled=True, want=8, beat_s=now_s)
            names = (
                f"--job-name={job_name(uuid)}",
                f"--comment={render_comment(said)}",
            )
            where = ("--partition=main", f"--nodelist={node}", "--nice=10000")
            script = site.script(f"srun --overlap sh -c '{LEASE}' & wait")
            site.cluster.run(
                *("sbatch", "--chdir=/", "--output=/dev/null", "--time=20"),
                *(*names, *where, *ONE_GPU, script),
            )
        wait_for("leases", lambda: len(self.left()) == before + count)

    def left(self) -> list[str]:
        """Return the node of each lease that runs."""
        jobs = self.site.backend().jobs()
        return sorted(
            job.nodes
            for job in jobs
            if is_lease(job) and job.states == {JobState.RUNNING}
        )

    def starts(self, nodes: int, *options: str) -> str:
        """Let somebody's job come, make room once; return where it runs."""
        site, before = self.site, len(self.left())
        job_id = site.others_job(nodes, 5, *options)
        wait_for("its first wait", lambda: self._waits(job_id))
        began_s = time.monotonic()
        room = self.make_room()
        job = site.wait_for_running(job_id)
        waited_s = time.monotonic() - began_s
        wait_for("leases gone", lambda: len(self.left()) <= before - len(room.notified))
        gone = before - len(self.left())
        words = " ".join((f"{nodes} nodes", *options))
        said = f"{words}: {waited_s:.2f} s from the look to running, {gone} leases gone"
        sys.stdout.write(f"\n{said}\n")
        assert waited_s < _BUSY_S
        return job.nodes

    def make_room(self) -> Room:
        """Do what a tick does first."""
        site = self.site
        settings = SiteSettings(
            state_directory=site.folder,
            lease=LeaseSettings(partition="main", mode=LeaseMode.YIELD),
        )
        environment = real_environment(site.cluster.environ)
        room = make_room(
            settings, environment, site.backend(), is_dry=False, notified_before={}
        )
        assert room.is_made, room.problems
        return room

    def _waits(self, job_id: int) -> bool:
        jobs = {job.job_id: job for job in self.site.backend().jobs()}
        return jobs[job_id].is_pending and jobs[job_id].reason != "None"


@pytest.fixture
def pieces(cluster_of: Callable[..., Cluster], tmp_path: Path) -> Iterator[Pieces]:
    cluster = cluster_of(Variant.PARTS, Variant.SHARED)
    site = Site(cluster, tmp_path, "main")
    for node in NODES[2:]:  # only n1 and n2 are left to leases
        site.others_job(1, 30, "--exclusive", f"--nodelist={node}", "--mem=100")
    wait_for(
        "others' jobs",
        lambda: sum(job.holds_nodes for job in site.backend().jobs()) == len(NODES) - 2,
    )
    yield Pieces(site)
    cluster.clear()


def test_jobs_of_one_gpu_half_a_node_and_a_node_start_and_only_as_many_leases_go(
    pieces: Pieces,
) -> None:
    pieces.lease("n1", 4)
    pieces.lease("n2", 4)

    node = pieces.starts(1, *ONE_GPU)
    assert len(pieces.left()) == 7
    pieces.starts(1, "--gres=gpu:a100:2", "--cpus-per-task=4", "--mem=500")
    assert len(pieces.left()) == 5

    other = pieces.starts(1, "--exclusive", "--gres=gpu:a100:4", "--mem=100")
    assert other != node
    assert pieces.left() == [node]


def test_leases_beside_others_make_room_and_end_before_a_job_that_needs_the_node(
    pieces: Pieces,
) -> None:
    site = pieces.site
    site.others_running_job(1, 30, "--exclusive", "--nodelist=n2", "--mem=100")
    two = ("--gres=gpu:a100:2", "--cpus-per-task=4", "--mem=500")
    beside = site.others_running_job(1, 5, *two)
    pieces.lease("n1", 2)

    assert pieces.starts(1, *ONE_GPU) == "n1"
    assert pieces.left() == ["n1"]

    whole = site.others_job(1, 5, "--exclusive", "--nodelist=n1", "--mem=100")
    site.whole_look_with_plan(whole)
    room = pieces.make_room()
    assert (room.notified, len(room.new_ends_s)) == ({}, 1)
    (end_s,) = room.new_ends_s.values()
    last = max(job.end_s or 0.0 for job in site.backend().jobs() if job.nodes == "n1")
    assert beside.end_s is not None
    assert beside.end_s - 60.0 < end_s <= last
