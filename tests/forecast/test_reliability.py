from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from freetrain.forecast.interface import Prospect
from freetrain.forecast.reliability import Event, Foretold, foretell


class Counting:
    """A forecaster that says how many events it was shown, in tenths."""

    def __init__(self) -> None:
        self._events = 0

    def see(
        self, now_s: float, *, joined: Collection[int], left: Collection[int]
    ) -> None:
        del now_s, joined, left
        self._events += 1

    def cluster(self, node: int) -> int:
        return node

    def members(self, cluster: int) -> Collection[int]:
        return {cluster}

    def prospect(self, cluster: int) -> Prospect:
        del cluster
        return Prospect(1.0, 0.0, 1.0)

    def survival(self, node: int, horizon_s: float) -> float:
        del node, horizon_s
        return self._events / 10

    def affinity(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        return np.ones((len(nodes), len(nodes)))


EVENTS = [
    Event(0.0, (0, 1), ()),
    Event(50.0, (), (0,)),
    Event(100.0, (0,), (1,)),
    Event(400.0, (), (0,)),
    Event(500.0, (), ()),
]


def test_each_forecast_is_held_against_when_the_node_really_left() -> None:
    told = foretell(EVENTS, Counting(), horizon_s=100.0, every_s=1.0, from_s=0.0)

    assert told == [
        Foretold(0.1, came=False),  # node 0, asked at 0 s, left at 50
        Foretold(0.1, came=True),  # node 1, asked at 0 s, left at 100
        Foretold(0.2, came=False),  # node 1, asked at 50 s
        Foretold(0.3, came=True),  # node 0, asked at 100 s, left at 400
    ]


def test_what_could_not_be_known_when_the_events_ended_is_not_counted() -> None:
    told = foretell(EVENTS[:2], Counting(), horizon_s=100.0, every_s=1.0, from_s=0.0)

    assert told == []
