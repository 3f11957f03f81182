"""Whatever one place of what was kept holds, it is refused, or what is told holds."""

from __future__ import annotations

import json
import math
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from freetrain.lookahead.live import LiveForecast
from milp.window import WindowClass
from tests.lookahead.forecasters import EVERY
from tests.lookahead.spoiling import (
    HORIZON_S,
    LAST_S,
    LOOK_S,
    NAMES,
    RACKS,
    Put,
    Spoil,
    every_spoil,
    grown,
    sight,
    spoils,
)

if TYPE_CHECKING:
    from tests.lookahead.spoiling import Grown, Path

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
            hits = WindowClass(4, life_s, hit, share).hits()
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


def check_spoilt(name: str, racks: str, spoil: Spoil) -> bool:
    """Return whether the spoilt state was taken; what was holds then."""
    of = grown(name, racks)
    try:
        forecast = restored(name, racks, of, spoil.of(of.state))
    except REFUSED:
        return False

    idle = of.idle
    for look in range(1, 6):
        now_s = LAST_S + look * LOOK_S
        idle ^= {NAMES[look], NAMES[2 * look]}
        forecast.look(now_s, sight(idle, now_s))
        check_answers(forecast, idle)
        json.dumps(forecast.to_state(), allow_nan=False)
    return True


@EVERY
@pytest.mark.parametrize("racks", RACKS)
@settings(max_examples=100, deadline=None)
@given(chosen=st.data())
def test_a_state_spoilt_anywhere_is_refused_or_answers_within_its_contract(
    name: str, racks: str, chosen: st.DataObject
) -> None:
    spoil = chosen.draw(spoils(grown(name, racks).state))

    event("taken" if check_spoilt(name, racks, spoil) else "refused")


@EVERY
@pytest.mark.parametrize("racks", RACKS)
def test_each_kind_of_place_spoilt_in_each_way_is_refused_or_does_no_harm(
    name: str, racks: str
) -> None:
    every = every_spoil(grown(name, racks).state)

    taken = [spoil for spoil in every if check_spoilt(name, racks, spoil)]

    assert Spoil(("watched_s",), Put(0)) in taken
    assert Spoil(("watched_s",), Put(-1)) not in taken


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


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("learned", ("experience", "hits"), [9.0, 8.0]),
        ("learned", ("experience", "hits"), [0.0, 0.0]),
        ("learned", ("experience", "at_s"), 2.0 * LAST_S),
        ("learned", ("learned", "calibration", "said"), [1e9] * 29),
        ("learned", ("learned", "calibration", "came"), [1e9] * 29),
        ("learned", ("learned", "hazard", "share"), [1e9] * 7),
        ("learned", ("learned", "hazard", "shares"), [1e15] * 7),
        ("learned", ("learned", "check_s"), 2.0 * LAST_S),
        ("learned", ("learned", "said", 0, 0), 2.0 * LAST_S),
        ("learned", ("learned", "clusters", 0, 1), 2.0 * LAST_S),
        ("learned", ("learned", "clusters", 0, 2), LAST_S),
        ("learned", ("learned", "clusters", 0, 3), []),
        ("learned", ("learned", "clusters", 0, 3), [0, 0]),
        ("learned", ("learned", "now_s"), math.nan),
        ("life-table", ("learned", "idle", 0, 2), 2.0 * LAST_S),
        ("life-table", ("learned", "idle", 0, 2), math.nan),
        ("life-table", ("learned", "now_s"), math.inf),
    ],
)
def test_what_contradicts_the_rest_is_refused(
    name: str, path: Path, value: object
) -> None:
    of = grown(name, "no racks")

    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        restored(name, "no racks", of, Spoil(path, Put(value)).of(of.state))
