"""Brokers of several users on one cluster: nobody waits for them, and they share.

How long things took is printed; ``pytest -s`` shows it.
"""

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from freetrain.broker.lease import is_lease
from freetrain.broker.sharing import LOOK_SLACK_S, OWNER_SILENT_S, SeenOwner
from freetrain.state.database import read_store
from freetrain.state.tables import call_memory
from slurm.records import JobRecord, JobState
from tests.cluster.cluster import Cluster
from tests.cluster.processes import remove_unused
from tests.cluster.settings import Variant
from tests.cluster.site import Site
from tests.cluster.waiting import wait_for
from tests.e2e.users import USERS, UserBroker, python_for_all

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users"),
]


@dataclass(slots=True)
class Crowd:
    """Several users' brokers, and somebody else's jobs, on eight nodes."""

    cluster: Cluster
    site: Site
    brokers: list[UserBroker]
    began_s: float = field(default_factory=time.monotonic)

    def leases(self) -> list[JobRecord]:
        jobs = self.site.backend().jobs()
        running = [job for job in jobs if JobState.RUNNING in job.states]
        return [job for job in running if is_lease(job)]

    def held(self) -> Counter[str]:
        """How many leases of each user run."""
        return Counter(job.user for job in self.leases())

    def until(
        self,
        what: str,
        happened: Callable[[Counter[str]], object],
        *,
        limit_s: float = 300.0,
    ) -> float:
        """Wait for *happened*; return how long it took."""
        began_s = time.monotonic()
        last: Counter[str] = Counter()

        def look() -> bool:
            nonlocal last
            last = self.held()
            return bool(happened(last))

        def told() -> str:
            return f"{what}: {last}\n" + "\n".join(b.said() for b in self.brokers)

        wait_for(told, look, limit_s=limit_s, pause_s=1.0)
        took_s = time.monotonic() - began_s
        sys.stdout.write(f"\n{what}: {took_s:.1f} s, {dict(last)}\n")
        return took_s

    def job_waits_s(self, nodes: int, *, limit_s: float = 240.0) -> tuple[int, float]:
        """Submit somebody else's job; return it and how long it waited."""
        began_s = time.monotonic()
        job_id = self.site.others_job(nodes, 5)

        def runs() -> bool:
            jobs = self.site.backend().jobs()
            return any(job.job_id == job_id and job.holds_nodes for job in jobs)

        def told() -> str:
            return f"job {nodes}: {self.held()}\n" + "\n".join(
                b.said() for b in self.brokers
            )

        wait_for(told, runs, limit_s=limit_s, pause_s=0.2)
        waited_s = time.monotonic() - began_s
        sys.stdout.write(f"\n{nodes} nodes: {waited_s:.1f} s from sbatch to running\n")
        return job_id, waited_s


@pytest.fixture
def crowd(cluster_of: Callable[..., Cluster]) -> Iterator[Crowd]:
    cluster = cluster_of(Variant.SHARED)
    folder = Path(tempfile.mkdtemp(prefix="freetrain-many-"))
    folder.chmod(0o755)
    with ExitStack() as stack:
        stack.callback(remove_unused, folder)
        stack.callback(cluster.clear)
        python = python_for_all(folder)
        if python is None:
            pytest.skip("no Python that every user may run")
        brokers = [
            UserBroker(cluster, user, folder / user, python) for user in USERS[:3]
        ]
        for broker in brokers:
            stack.callback(broker.stop)
        yield Crowd(cluster, Site(cluster, folder, "main"), brokers)


def test_two_users_share_and_make_room_together_for_a_third(crowd: Crowd) -> None:
    ann, ben, _ = crowd.brokers
    ann.submit()
    ann.begin()
    crowd.until("the first user takes all", lambda held: held == {ann.user: 8})
    ben.submit()
    ben.begin()

    halves = {ann.user: 4, ben.user: 4}
    assert crowd.until("halves", lambda held: held == halves) < 300.0

    before = {job.job_id for job in crowd.leases()}
    wide, waited_s = crowd.job_waits_s(6)
    assert waited_s < 30.0
    assert sum(crowd.held().values()) <= 2
    assert len(before & {job.job_id for job in crowd.leases()}) == 2
    crowd.cluster.run("scancel", str(wide))
    crowd.until("halves again", lambda held: held == halves)

    before = {job.job_id for job in crowd.leases()}
    _, waited_s = crowd.job_waits_s(3)
    assert waited_s < 30.0
    assert len(before & {job.job_id for job in crowd.leases()}) == 5, (
        "more than need be"
    )


def test_others_step_in_for_a_broker_that_stopped_and_old_leases_harm_nobody_else(
    crowd: Crowd,
) -> None:
    ann, ben, old = crowd.brokers
    script = crowd.site.script("exec sleep 900")
    uuid = "0f8fad5b-d9cb-469f-a165-70867728950e"
    crowd.cluster.run(
        *("sbatch", f"--uid={old.user}", "--partition=main", "--chdir=/"),
        *("--nodes=1", "--array=0-1", "--time=20", "--output=/dev/null", "--exclusive"),
        *(f"--job-name=freetrain-{uuid}", f"--comment=freetrain {uuid}", script),
    )
    ann.submit(most=2)
    ben.submit()
    for broker in (ann, ben):
        broker.begin()
    full = {ann.user: 2, ben.user: 4, old.user: 2}
    crowd.until("all leased", lambda held: held == full)

    first, waited_s = crowd.job_waits_s(4)
    assert waited_s < 30.0
    assert crowd.held()[old.user] == 2
    crowd.cluster.run("scancel", str(first))
    crowd.until("all leased again", lambda held: held == full)

    ben.stop()  # who holds most, and would give
    _, waited_s = crowd.job_waits_s(2)
    assert waited_s < 120.0
    assert crowd.held()[old.user] == 2


def test_three_users_share_and_give_together_what_one_job_needs_and_no_more(
    crowd: Crowd,
) -> None:
    for broker in crowd.brokers:
        broker.submit()
        broker.begin()

    def is_even(held: Counter[str]) -> bool:
        return held.total() == 8 and sorted(held.values()) == [2, 3, 3]

    assert crowd.until("three, three and two", is_even) < 300.0

    before = {job.job_id: job.user for job in crowd.leases()}
    wide, waited_s = crowd.job_waits_s(5)
    assert waited_s < 30.0
    stayed = Counter(before.get(job.job_id) for job in crowd.leases())
    said = f"{Counter(before.values())} before, {stayed} stayed"
    assert stayed.total() == 3, f"more or less than need be: {said}"
    assert max(stayed.values()) <= 2, said  # the odd node may just have been given
    crowd.cluster.run("scancel", str(wide))
    crowd.until("three, three and two again", is_even)


def test_others_step_in_as_soon_as_a_broker_leaves_a_call_unanswered(
    crowd: Crowd,
) -> None:
    ann, ben, _ = crowd.brokers
    for broker in (ann, ben):
        broker.tick = "$FT tick; sleep 3"  # each beat comes soon after the last
        broker.submit()
        broker.begin()
    halves = {ann.user: 4, ben.user: 4}
    crowd.until("halves", lambda held: held == halves)
    wait_for(
        "beats in a row", lambda: has_looked_often(ann, ben), limit_s=120, pause_s=1
    )

    ben.freeze()
    _, waited_s = crowd.job_waits_s(2)

    assert waited_s < OWNER_SILENT_S
    assert crowd.held() == {ann.user: 2, ben.user: 4}
    seen = wait_for(
        "the tick to record that it stepped in",
        lambda: next((x for x in [owners_seen(ann)[ben.uid]] if x.deaf_s), None),
    )
    assert (seen.deaf_s or 0.0) - seen.sign_s < OWNER_SILENT_S, (
        "not known by its silence"
    )


def owners_seen(broker: UserBroker) -> Mapping[int, SeenOwner]:
    """Return what *broker* remembers of other users' brokers."""
    with read_store(broker.state, uid=broker.uid) as state:
        return call_memory(state).owners


def has_looked_often(broker: UserBroker, other: UserBroker) -> bool:
    """Tell whether *broker* knows that *other* beats within each cycle and a little."""
    seen = owners_seen(broker).get(other.uid)
    return seen is not None and seen.gap_s is not None and seen.gap_s <= LOOK_SLACK_S
