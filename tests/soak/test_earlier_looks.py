"""A measurement begins with a forecast learned from another workload."""

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest

from freetrain.lookahead.affinity import RecentAffinity
from freetrain.lookahead.live import LiveForecast
from freetrain.planning.settings import HORIZON_S
from freetrain.state.database import open_store, transaction
from freetrain.state.tables import departures, forecast_state, node_names, put_forecast
from tests.cluster.settings import NODES
from tests.soak.earlier import SPAN_S, earlier_glances, remember, watched_s

UNTIL_S = 1_800_000_000.0


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """Return a state directory in which one tick looked ahead."""
    with open_store(tmp_path, uid=os.getuid()) as store, transaction(store):
        learned = {"cluster": "c", **LiveForecast(HORIZON_S).to_state()}
        put_forecast(store, json.dumps(learned))
    return tmp_path


@pytest.mark.parametrize("time_scale", [0.35, 1.0])
def test_glances_before_a_measurement_see_nodes_come_and_go_until_it_begins(
    time_scale: float,
) -> None:
    seen = list(
        earlier_glances(1, until_s=UNTIL_S, every_s=10.0, time_scale=time_scale)
    )

    times_s = [glance.at_s for glance in seen]
    assert times_s[-1] == UNTIL_S
    assert times_s[0] == UNTIL_S - SPAN_S
    assert all(b - a == 10.0 for a, b in pairwise(times_s))
    assert frozenset().union(*(glance.idle for glance in seen)) == set(NODES)
    for node in NODES:
        there = [node in glance.idle for glance in seen]
        turns = sum(a != b for a, b in pairwise(there))
        assert turns >= 6


def test_ticks_go_on_from_the_forecast_of_each_node(begun: Path) -> None:
    assert watched_s(begun) == 0.0

    remember(begun, earlier_glances(1, until_s=UNTIL_S, every_s=10.0))

    assert watched_s(begun) == SPAN_S
    with open_store(begun, uid=os.getuid()) as store:
        kept, names = json.loads(forecast_state(store) or ""), node_names(store)
        left = departures(store)
    again = LiveForecast(
        HORIZON_S, names=names, pairs=RecentAffinity(lambda: left), state=kept
    )
    assert kept["cluster"] == "c"
    assert set(names) == set(NODES)
    assert left
    assert not again.is_learning
    forecasts = [expected for expected in map(again.expected, NODES) if expected]
    assert forecasts
    assert all(0.1 < own.leaves < 0.99 for own in forecasts)
