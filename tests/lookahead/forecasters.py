"""Forecasters of every name, and all that can be asked of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from freetrain.lookahead.affinity import Affinity
from freetrain.lookahead.base import FORECASTERS, forecaster_named

if TYPE_CHECKING:
    from collections.abc import Iterable

    from freetrain.lookahead.base import Forecaster, Pairs
    from freetrain.replay.pool import PoolEvent

EVERY = pytest.mark.parametrize("name", FORECASTERS)
OFTEN = settings(max_examples=30, deadline=None)
HORIZON_S = 400.0
HORIZONS_S = (0.0, 60.0, 7200.0)


def made(  # one of each keyword that a maker has
    name: str,
    *,
    pairs: Pairs | None = None,
    state: dict[str, Any] | None = None,
    checks: bool = True,
    learns_s: float = 0.0,
) -> Forecaster:
    return forecaster_named(name)(
        HORIZON_S,
        pairs=Affinity() if pairs is None else pairs,
        checks=checks,
        state=state,
        learns_s=learns_s,
        order=int,
    )


def shown(forecaster: Forecaster, events: Iterable[PoolEvent]) -> Forecaster:
    for event in events:
        forecaster.see(event.time_s, joined=event.joined, left=event.left)
    return forecaster


def answers(forecaster: Forecaster) -> list[object]:
    """Return all that can be asked, to be compared."""
    idle = sorted(forecaster.idle())
    clusters = [forecaster.cluster(node) for node in idle]
    return [
        forecaster.is_learning,
        idle,
        clusters,
        [sorted(forecaster.members(one)) for one in clusters],
        [forecaster.prospect(one) for one in clusters],
        [[forecaster.survival(node, h) for h in HORIZONS_S] for node in idle],
        forecaster.affinity(idle).tolist(),
        [forecaster.in_line(node) for node in idle],
    ]


def leaves_young(name: str) -> Forecaster:
    """Return one that saw node 0 come and leave after ten seconds, 50 times."""
    forecaster = made(name)
    for turn in range(50):
        forecaster.see(turn * 1_000.0, joined=(0,), left=())
        forecaster.see(turn * 1_000.0 + 10.0, joined=(), left=(0,))
    return forecaster
