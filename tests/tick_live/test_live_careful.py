"""A job that ends right before a cycle of backfill's, seen by no tick, on a real Slurm.

How long who is first in line waits from then on is printed; ``pytest -s`` shows it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from slurm.records import expand
from tests.cli.commands import at_home, run
from tests.cluster.settings import Variant
from tests.cluster.waiting import wait_for
from tests.slurm_live.sites import Site
from tests.tick_live.live_broker import LiveBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from freetrain.tick.status_report import StatusReport
    from slurm.records import JobRecord
    from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.slurm

_LONG_MIN, _SHORT_MIN = 10, 1
_GRAIN_S = 30.0  # backfill plans in steps of that


@dataclass(frozen=True, slots=True)
class Scene:
    """Five nodes that others hold, three idle ones, and two jobs that wait.

    Attributes:
        broker: Ours; it leases what it can of the idle nodes.
        site: The others'.
        ends: A job on four nodes that is to end far before its limit.
        first: Who is first in line: for these four, and some of the idle ones.
        second: Who comes after that: for four, and over before leases are.
    """

    broker: LiveBroker
    site: Site
    ends: int
    first: int
    second: int

    def leased(self, *, careful: bool) -> StatusReport:
        """Lease what can be, and return the page of the last tick."""
        self.submit(careful=careful)

        def are_up(page: StatusReport) -> bool:
            heard = [
                one.state == "running" and not one.is_silent for one in page.leases
            ]
            return bool(heard) and all(heard)

        return self.broker.ticks_until("leases that are heard", are_up)

    def submit(self, *, careful: bool) -> None:
        site = self.broker.site
        lease = structs.replace(site.lease, careful=careful)
        self.broker.site = structs.replace(site, lease=lease)
        self.broker.submit_a_sleeper("a", 8)

    def who_starts_once_one_ends(self) -> tuple[JobRecord, float]:
        """End the job that is to end; return who starts first, and when it ended.

        No tick comes in between, but a cycle of backfill's does if need be.
        """
        ended_s = self.broker.environment.now_s()
        self.site.cluster.run("scancel", str(self.ends))
        started = wait_for("either to run", self._started)
        assert started is not None
        return started, ended_s

    def _started(self) -> JobRecord | None:
        jobs = self.site.backend().snapshot().jobs
        asked = (job for job in jobs if job.job_id in {self.first, self.second})
        return next((job for job in asked if job.holds_nodes), None)

    def planned_s(self, *, until_s: float) -> float:
        """Return when the first in line is to start, once that is by *until_s*."""

        def look() -> float | None:
            _, job = self.site.whole_look_with_plan(self.first)
            in_time = job.start_s is not None and job.start_s <= until_s
            return job.start_s if in_time else None

        found = wait_for("a plan without the leases", look)
        assert found is not None
        return found


@pytest.fixture
def scene_of(
    cluster_of: Callable[..., Cluster], folder: Path
) -> Iterator[Callable[[int], Scene]]:
    """Return a function that sets the scene; who is first asks for so many nodes."""
    cluster = cluster_of(Variant.SHARED)
    site = Site(cluster, folder.parent, "main")

    def set_up(first_nodes: int) -> Scene:
        ends, _ = (site.others_running_job(n, _LONG_MIN).job_id for n in (4, 1))
        first = site.others_job(first_nodes, _SHORT_MIN)
        second = site.others_job(4, _SHORT_MIN)
        site.whole_look_with_plan(first)
        broker = LiveBroker(cluster, folder, partition="main")
        return Scene(broker, site, ends, first, second)

    yield set_up
    cluster.clear()


def test_without_care_another_job_starts_first(
    scene_of: Callable[[int], Scene],
) -> None:
    scene = scene_of(6)
    page = scene.leased(careful=False)
    assert nodes_of(page) == {"n6", "n7", "n8"}

    second, ended_s = scene.who_starts_once_one_ends()

    assert second.job_id == scene.second
    assert second.end_s is not None
    # The next tick gives up what the first in line needs, which is of no use any more.
    scene.broker.ticks_until("two leases gone", lambda p: len(nodes_of(p)) == 1)
    planned_s = scene.planned_s(until_s=second.end_s + 2 * _GRAIN_S)
    tell("without", planned_s - ended_s, page)
    assert planned_s >= second.end_s


def test_with_care_the_first_in_line_starts_at_once(
    scene_of: Callable[[int], Scene],
) -> None:
    scene = scene_of(6)
    page = scene.leased(careful=True)
    assert nodes_of(page) == {"n8"}
    first, ended_s = scene.who_starts_once_one_ends()
    tell("with", scene.broker.environment.now_s() - ended_s, page)
    assert first.job_id == scene.first
    assert set(expand(first.nodes)) == {"n1", "n2", "n3", "n4", "n6", "n7"}
    assert nodes_of(scene.broker.tick()) == {"n8"}


def test_people_are_told_for_whom_idle_nodes_are_kept_free(
    scene_of: Callable[[int], Scene], folder: Path
) -> None:
    scene = scene_of(7)
    scene.submit(careful=True)
    at_home(folder=folder.parent)

    page = scene.broker.tick()

    assert page.leases == ()
    why = "another user's job would need it if a running job ended"
    assert {hole.node: hole.refusal for hole in page.holes} == dict.fromkeys(
        ("n6", "n7", "n8"), f"{why}: {scene.first}"
    )
    told = f"no hole that meets its requirement can be used: {why}."
    assert f"a: {told}" in shown("status", folder.parent)
    explained = shown("explain", folder.parent)
    assert f"Why: {told}" in explained
    assert f"another ended: {scene.first})" in explained  # a table that folds its text


def nodes_of(page: StatusReport) -> set[str]:
    """Return the nodes that leases hold."""
    return {lease.node for lease in page.leases}


def shown(verb: str, cwd: Path) -> str:
    return " ".join(run(verb, cwd=cwd).stdout.split())


def tell(how: str, waited_s: float, page: StatusReport) -> None:
    """Print how long the first in line waits, and how long a tick took."""
    said = f"{how} care: the first in line waits {waited_s:.2f} s"
    sys.stdout.write(f"\n{said}, tick {page.took_s:.2f} s\n")
