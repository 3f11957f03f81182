"""Ticks on a real Slurm that plan by what was learned of its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from freetrain.config.site import PlannerSettings
from tests.soak.earlier import Glance, remember
from tests.tick_live.live_broker import LiveBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.slurm

_RESTLESS = frozenset({"n1", "n2", "n3", "n4"})
_CALM = frozenset({"n5", "n6", "n7", "n8"})


@pytest.fixture
def broker(cluster_of: Callable[..., Cluster], folder: Path) -> Iterator[LiveBroker]:
    cluster = cluster_of()
    broker = LiveBroker(cluster, folder)
    planner = PlannerSettings(policy="lookahead")
    broker.site = structs.replace(broker.site, planner=planner)
    yield broker
    cluster.clear()


def restless(*, until_s: float) -> Iterator[Glance]:
    """Yield two hours of looks in which half of the nodes went every 200 s."""
    for look in range(37):
        idle = _CALM | (frozenset() if look % 2 else _RESTLESS)
        yield Glance(until_s - 200.0 * (36 - look), idle)


def test_leases_are_on_nodes_that_are_expected_to_stay(broker: LiveBroker) -> None:
    first = broker.tick()
    remember(broker.folder.path, restless(until_s=first.at_s))
    broker.submit("a", 4)
    page = broker.until_leased(4)
    assert {lease.node for lease in page.leases} == _CALM
    assert page.problems == ()
