"""What holds of every forecaster that is put away, or loses sight of the pool."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.lookahead.affinity import RecentAffinity
from tests.forecast.forecasters import (
    EVERY,
    HORIZONS_S,
    OFTEN,
    answers,
    leaves_young,
    made,
    shown,
)
from tests.forecast.pools import histories

if TYPE_CHECKING:
    from freetrain.lookahead.base import Departure
    from freetrain.replay.timeline import PoolEvent


@EVERY
@OFTEN
@given(events=histories(), at=st.integers(0, 25))
def test_put_away_and_taken_up_again_it_goes_on_as_if_it_had_not_been(
    name: str, events: list[PoolEvent], at: int
) -> None:
    straight = shown(made(name, pairs=RecentAffinity()), events)
    pairs = RecentAffinity()
    first = shown(made(name, pairs=pairs), events[:at])
    state = json.loads(json.dumps(first.to_state(), allow_nan=False))
    kept: list[Departure] = list(pairs.fresh)
    again, second = (
        made(name, pairs=RecentAffinity(lambda: kept), state=state) for _ in range(2)
    )

    assert answers(again) == answers(first)
    shown(second, events[at:])
    assert answers(second) == answers(straight)
    assert second.to_state() == straight.to_state()


@EVERY
@OFTEN
@given(events=histories())
def test_a_state_without_one_of_its_parts_is_refused(
    name: str, events: list[PoolEvent]
) -> None:
    state = shown(made(name), events).to_state()

    for key in state:
        short = {other: value for other, value in state.items() if other != key}
        with pytest.raises((ValueError, KeyError, TypeError)):
            made(name, state=short)


@EVERY
def test_a_pool_lost_sight_of_is_forgotten_and_what_was_learned_is_not(
    name: str,
) -> None:
    forecaster, same = leaves_young(name), leaves_young(name)
    forecaster.see(5e4, joined=(1, 2), left=())

    forecaster.forget_pool()
    assert list(forecaster.idle()) == []
    forecaster.see(1e6, joined=(0,), left=())
    same.see(1e6, joined=(0,), left=())

    assert list(forecaster.idle()) == [0]
    assert forecaster.prospect(forecaster.cluster(0)).hit > 0.6
    for horizon_s in HORIZONS_S:
        told = forecaster.survival(0, horizon_s)
        # Nobody lived through the time that was not seen.
        assert told == pytest.approx(same.survival(0, horizon_s), abs=1e-9)


@EVERY
def test_what_was_foretold_of_a_pool_lost_sight_of_is_held_against_nothing(
    name: str,
) -> None:
    forecaster, new = made(name), made(name)
    forecaster.see(0.0, joined=(1, 2), left=())

    forecaster.forget_pool()
    for one in (forecaster, new):
        one.see(1e6, joined=(0,), left=())

    for horizon_s in (60.0, 600.0, 7200.0):
        assert forecaster.survival(0, horizon_s) == new.survival(0, horizon_s)
