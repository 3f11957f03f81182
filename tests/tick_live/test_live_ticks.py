"""Ticks on a real Slurm: what no fake can show."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import structs

from freetrain.broker.lease import LeaseKey
from freetrain.config.site import PlannerSettings
from freetrain.state.files import newest_assigned
from freetrain.tick.status_report import StatusReport
from slurm.errors import SlurmUnavailableError
from slurm.records import JobKey
from tests.cluster.broker import LiveBroker
from tests.cluster.cluster import Cluster, restart_controller
from tests.cluster.settings import NODES, Variant
from tests.cluster.site import Site
from tests.cluster.waiting import wait_for
from tests.soak.earlier import Glance, remember

pytestmark = pytest.mark.slurm


@pytest.fixture
def broker(cluster_of: Callable[..., Cluster], folder: Path) -> Iterator[LiveBroker]:
    cluster = cluster_of()
    yield LiveBroker(cluster, folder)
    cluster.clear()


def members(broker: LiveBroker, name: str) -> frozenset[LeaseKey]:
    newest = newest_assigned(broker.folder.trainer(name))
    return frozenset() if newest is None else newest.keys


def test_a_trainer_gets_nodes_and_its_leases_leave(broker: LiveBroker) -> None:
    broker.submit(3)
    broker.until_leased(3)
    first = newest_assigned(broker.folder.trainer("a"))

    broker.pause("a")
    reports: list[StatusReport] = []  # a slow agent's lease may be told by a later tick

    def is_gone(report: StatusReport) -> bool:
        reports.append(report)
        return not report.leases

    gone = broker.ticks_until("no lease", is_gone)

    assert first is None or len(first.members) == 3
    assert sum(report.done["leases ended"] for report in reports) >= 3
    assert not any(report.done["leases asked for"] for report in reports)
    assert gone.problems == ()
    logs = [path.read_text() for path in broker.folder.leases.glob("*/agent.log")]
    assert len(logs) == 3
    assert all("leaving" in log for log in logs), "an agent was killed unheard"


def test_a_restarted_controller_loses_no_lease(broker: LiveBroker) -> None:
    broker.submit(3)
    before = broker.until_leased(3)
    restart_controller(broker.cluster)
    after = wait_for("slurmctld", lambda: _answered(broker))
    assert [lease.name for lease in after.leases] == [x.name for x in before.leases]
    assert not any(broker.tick().done.values())


def _answered(broker: LiveBroker) -> StatusReport | None:
    try:
        return broker.tick()
    except SlurmUnavailableError:
        return None


def test_ending_the_task_with_the_arrays_number_spares_others(
    broker: LiveBroker,
) -> None:
    broker.submit(3)
    page = broker.until_leased(3)
    backend = broker.environment.connect(100)
    uuid = page.leases[0].name.rpartition("-")[0]
    jobs = backend.find_by_name(f"freetrain-{uuid}")
    (last,) = (job for job in jobs if job.job_id == job.array_job_id)

    backend.cancel([JobKey(last.job_id, last.display_id)])
    name = f"{uuid}-{last.array_task_id}"
    left = broker.ticks_until(
        "one lease fewer", lambda p: name not in {x.name for x in p.leases}
    )

    others = {x.name for x in page.leases} - {name}
    assert others <= {x.name for x in left.leases}


def test_with_forced_yields_ticks_progress_and_take_no_hole_that_is_not_there(
    cluster_of: Callable[..., Cluster], folder: Path
) -> None:
    cluster = cluster_of(Variant.FORCED_YIELDS)
    broker = LiveBroker(cluster, folder)
    broker.submit(4)
    site = Site(cluster, folder.parent, "freetrain")
    larger = [site.others_job(nodes, minutes=5) for nodes in (4, 8)][-1]
    try:
        site.whole_look_with_plan(larger)
        pages: list[StatusReport] = []

        def holds_four(page: StatusReport) -> bool:
            pages.append(page)
            nodes = {lease.node for lease in page.leases} - {""}
            return len(nodes) == 4 and len(pages) >= 20

        broker.ticks_until("four leases", holds_four)
        held = {lease.node for page in pages for lease in page.leases} - {""}
    finally:
        cluster.clear()

    assert any(page.is_plan_known for page in pages)
    assert len(held) == 4
    limits_s = [60.0 * x.limit_min for page in pages for x in page.leases]
    assert all(limit_s <= 300.0 for limit_s in limits_s), "it outlasts the hole"


def test_a_rack_that_somebody_takes_whole_is_learned_of_by_the_topology_told(
    cluster_of: Callable[..., Cluster], folder: Path
) -> None:
    cluster = cluster_of(Variant.TREE)
    broker = LiveBroker(cluster, folder)
    ahead = PlannerSettings(policy="lookahead", profile=False)
    broker.site = structs.replace(broker.site, planner=ahead)
    first = broker.tick()
    Site(cluster, folder.parent, "freetrain").others_job(4, 5, "--nodelist=n[1-4]")
    try:
        later = broker.ticks_until("n1 to n4 to leave", lambda p: p.leaf_rate != 0.3)
    finally:
        cluster.clear()

    assert (first.leaves, first.leaf_rate) == (2, 0.3)
    assert first.requests == later.requests + 1, "it is asked once an hour"
    assert later.leaf_rate == pytest.approx((0.3 * 8 + 1) / (8 + 1))
    assert first.problems == later.problems == ()


# Ticks that plan by forecasts of nodes.

_RESTLESS, _CALM = frozenset(NODES[:4]), frozenset(NODES[4:])


def restless(*, until_s: float) -> Iterator[Glance]:
    """Yield two hours of looks in which half of the nodes went every 200 s."""
    for look in range(37):
        idle = _CALM | (frozenset() if look % 2 else _RESTLESS)
        yield Glance(until_s - 200.0 * (36 - look), idle)


def test_leases_are_on_nodes_that_are_expected_to_stay(broker: LiveBroker) -> None:
    planner = PlannerSettings(policy="lookahead", profile=False)
    broker.site = structs.replace(broker.site, planner=planner)
    first = broker.tick()
    remember(broker.folder.path, restless(until_s=first.at_s))
    broker.submit(4)
    page = broker.until_leased(4)
    assert {lease.node for lease in page.leases} == _CALM
    assert page.problems == ()
