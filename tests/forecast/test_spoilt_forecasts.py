"""Whatever one place of what was kept holds, it is refused, or what is told holds."""

from __future__ import annotations

import json
import math
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from freetrain.forecast.live import LiveForecast
from milp.window import Stay
from tests.forecast.forecasters import EVERY
from tests.forecast.spoiling import (
    HORIZON_S,
    LAST_S,
    LOOK_S,
    NAMES,
    RACKS,
    grown,
    sight,
    spoils,
)

if TYPE_CHECKING:
    from tests.forecast.spoiling import Grown

REFUSED = (ValueError, KeyError, TypeError)


def restored(name: str, racks: str, of: Grown, state: dict[str, Any]) -> LiveForecast:
    leaf_of = RACKS[racks]
    return LiveForecast(
        HORIZON_S, names=of.names, state=state, leaf_of=leaf_of, forecaster=name
    )


def check_answers(forecast: LiveForecast, idle: frozenset[str]) -> None:
    for node in sorted(idle):
        forecast.group(node)
        for usable_s in (math.inf, 100.0):
            life_s, hit, share = forecast.prospect(node, usable_s)
            assert 0.0 <= life_s <= HORIZON_S
            assert 0.0 <= hit <= 1.0
            assert 0.0 < share <= 1.0
            hits = Stay(4, life_s, hit, share).hits()
            assert hits == sorted(hits)
        expected = forecast.expected(node)
        assert expected is not None
        assert 0.0 <= expected.leaves <= 1.0
        assert 0.0 <= expected.even_s < math.inf
        assert expected.run >= 1
        assert 0.0 < expected.times_in_line < math.inf
    assert 0.0 <= forecast.hit_weight <= 1.0
    assert 1.0 - 1e-9 <= forecast.change_weight < math.inf
    assert forecast.leaf_rate is None or 0.0 <= forecast.leaf_rate <= 1.0
    assert all(
        map(math.isfinite, (n for one in forecast.intervals() for n in astuple(one)))
    )


@EVERY
@pytest.mark.parametrize("racks", RACKS)
@settings(max_examples=100, deadline=None)
@given(chosen=st.data())
def test_a_spoilt_state_is_refused_or_answers_within_its_contract(
    name: str, racks: str, chosen: st.DataObject
) -> None:
    of = grown(name, racks)
    state = chosen.draw(spoils(of.state)).of(of.state)
    try:
        forecast = restored(name, racks, of, state)
    except REFUSED as error:
        event(f"refused: {type(error).__name__}")
        return
    event("taken")

    idle = of.idle
    for look in range(1, 6):
        now_s = LAST_S + look * LOOK_S
        idle ^= {NAMES[look], NAMES[2 * look]}
        forecast.look(now_s, sight(idle, now_s))
        check_answers(forecast, idle)
        json.dumps(forecast.to_state(), allow_nan=False)


@EVERY
@pytest.mark.parametrize("racks", RACKS)
def test_a_state_that_nobody_spoilt_is_taken(name: str, racks: str) -> None:
    of = grown(name, racks)
    state = json.loads(of.state)

    forecast = restored(name, racks, of, state)

    assert forecast.to_state() == state
    assert state["promises"]["told"]
    assert sum(map(sum, state["promises"]["delays"])) > 0
    assert state["experience"]["held"]["a"]
    assert not forecast.is_learning
