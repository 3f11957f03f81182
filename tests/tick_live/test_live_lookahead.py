"""Ticks on a real Slurm that plan by what was learned of its nodes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from freetrain.forecast.live import LiveForecast, Sight
from freetrain.forecast.recent import KEPT, RecentAffinity
from freetrain.replay.policies.lookahead import HORIZON_S
from freetrain.site.settings import PlannerSettings, PolicyName
from freetrain.store.database import transaction
from freetrain.store.forecasts import (
    add_departures,
    forecast_state,
    node_names,
    put_forecast,
)
from freetrain.store.open_store import open_store
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
    planner = PlannerSettings(policy=PolicyName.LOOKAHEAD)
    broker.site = replace(broker.site, planner=planner)
    yield broker
    cluster.clear()


def remember(broker: LiveBroker, *, until_s: float) -> None:
    """Put two hours into the state in which half of the nodes went every 200 s."""
    with open_store(broker.folder.path, uid=os.getuid()) as state, transaction(state):
        kept = json.loads(forecast_state(state) or "")
        pairs = RecentAffinity()
        past = LiveForecast(HORIZON_S, names=node_names(state), pairs=pairs)
        for look in range(37):
            idle = _CALM | (frozenset() if look % 2 else _RESTLESS)
            seen = Sight(idle=idle, unclear=frozenset(), promised={})
            past.look(until_s - 200.0 * (36 - look), seen)
        put_forecast(state, kept | past.to_state())
        add_departures(state, pairs.fresh, keep=KEPT)


def test_leases_are_on_nodes_that_stay_and_not_where_slurm_would_begin(
    broker: LiveBroker,
) -> None:
    first = broker.tick()
    remember(broker, until_s=first.at_s)
    broker.submit("a", 4)

    page = broker.until_leased(4)

    assert {lease.node for lease in page.leases} == _CALM
    assert page.problems == ()
