"""A state goes through JSON and means the same; a spoilt one is refused."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.lookahead.affinity import KEPT, Affinity, RecentAffinity
from freetrain.lookahead.base import (
    LEAST,
    MOST,
    amount,
    amounts,
    amounts_above_0,
    check_shares,
    members,
    probability,
    table,
    whole,
)
from freetrain.lookahead.learned import LearnedForecaster
from tests.lookahead.pools import histories, idle_after

if TYPE_CHECKING:
    from freetrain.lookahead.base import Departure
    from freetrain.replay.pool import PoolEvent


HORIZON_S = 400.0


def show(forecaster: LearnedForecaster, events: list[PoolEvent]) -> None:
    for event in events:
        forecaster.see(event.time_s, joined=event.joined, left=event.left)


@given(histories(), st.integers(0, 25))
def test_a_forecaster_put_away_and_taken_up_again_goes_on_as_if_it_had_not_been(
    events: list[PoolEvent], at: int
) -> None:
    straight, pairs = LearnedForecaster(HORIZON_S), RecentAffinity()
    show(straight, events)
    first = LearnedForecaster(HORIZON_S, pairs=pairs)
    show(first, events[:at])
    state = json.loads(json.dumps(first.to_state()))
    kept: list[Departure] = list(pairs.fresh)

    second = LearnedForecaster(
        HORIZON_S, pairs=RecentAffinity(lambda: kept), state=state
    )
    show(second, events[at:])

    idle = idle_after(events)
    assert second.to_state() == straight.to_state()
    assert [second.survival(n, 600.0) for n in idle] == [
        straight.survival(n, 600.0) for n in idle
    ]
    assert np.allclose(second.affinity(idle), straight.affinity(idle))


@given(histories(nodes=20))
def test_affinities_of_departures_are_those_of_counts(events: list[PoolEvent]) -> None:
    counted, recent = Affinity(), RecentAffinity()
    idle: set[int] = set()
    for event in events:
        if event.left:
            there = np.array(sorted(idle), dtype=np.intp)
            counted.saw(event.left, there)
            recent.saw(event.left, there)
        idle = (idle - set(event.left)) | set(event.joined)

    every = list(range(20))
    assert np.allclose(counted.of(every), recent.of(every))


def test_departures_beyond_the_latest_do_not_count_any_more() -> None:
    recent, pair = RecentAffinity(), np.array([0, 1])
    for _ in range(KEPT):
        recent.saw([0, 1], pair)
    close = recent.of([0, 1])[0, 1]
    for _ in range(KEPT):
        recent.saw([0], pair)

    assert close > 0.99
    assert recent.of([0, 1])[0, 1] < 0.01


def test_departures_are_asked_for_only_where_an_affinity_is() -> None:
    asked = []
    recent = RecentAffinity(lambda: asked.append(1) or ())  # type: ignore[func-returns-value]

    recent.saw([0], np.array([0, 1]))
    assert not asked
    recent.of([0, 1])
    recent.of([0, 1])

    assert asked == [1]


def learned() -> dict[str, Any]:
    forecaster = LearnedForecaster(HORIZON_S)
    forecaster.see(0.0, joined=range(8), left=())
    forecaster.see(900.0, joined=(), left=(1, 2))
    return forecaster.to_state()


@pytest.mark.parametrize(
    "broken",
    [
        {"hazard": {}},
        {"hazard": {"hits": [], "exposure": [], "share": [], "shares": []}},
        {"calibration": {"said": [1.0], "came": [1.0], "count": [1.0], "fresh": 1.0}},
        {
            "calibration": dict.fromkeys(("said", "came", "count"), [0.0] * 29)
            | {"fresh": 1.0}
        },
        {
            "calibration": dict.fromkeys(("said", "came", "count"), [1.0] * 29)
            | {"fresh": 0.0}
        },
        {"clusters": [[0, 0.0, 0.0, [1]], [1, 0.0, 0.0, [1]]], "numbers": 9},
        {"clusters": [[5, 0.0, 0.0, [1]]], "numbers": 5},
        {"said": [[1.0]]},
        {"now_s": None},
    ],
)
def test_a_state_that_cannot_be_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        LearnedForecaster(HORIZON_S, state=learned() | broken)


def test_a_pool_lost_sight_of_is_forgotten_and_what_was_learned_is_not() -> None:
    forecaster = LearnedForecaster(HORIZON_S)
    forecaster.see(0.0, joined=(0,), left=())
    for turn in range(1, 50):
        forecaster.see(turn * 1_000.0 - 990.0, joined=(), left=(0,))
        forecaster.see(turn * 1_000.0, joined=(0,), left=())
    before = forecaster.to_state()

    forecaster.forget_pool()
    forecaster.see(1e6, joined=(0,), left=())

    assert forecaster.to_state()["hazard"] == before["hazard"]
    assert forecaster.prospect(forecaster.cluster(0)).hit > 0.6


def test_numbers_that_can_be_come_back() -> None:
    assert amounts([0, 1.5], 2) == [0.0, 1.5]
    assert amounts_above_0([0.5], 1) == [0.5]
    assert table([[0.0], [1.0]], 2, 1) == [[0.0], [1.0]]
    assert [amount(0), amount(MOST)] == [0.0, MOST]
    assert whole(7) == 7
    assert members([3, 1]) == {1, 3}
    assert [probability(0), probability(1.0)] == [0.0, 1.0]


@pytest.mark.parametrize(
    "wrong", ["1", True, None, [], -1, 2 * MOST, 10**400, math.nan, math.inf]
)
def test_what_is_no_number_that_can_be_is_refused(wrong: object) -> None:
    for check in (amount, whole, probability):
        with pytest.raises(ValueError, match=r"no( whole)? number|not a number"):
            check(wrong)


@pytest.mark.parametrize("wrong", [1.0, 0.5])
def test_what_is_counted_is_whole(wrong: float) -> None:
    with pytest.raises(ValueError, match="no whole number"):
        whole(wrong)


def test_more_than_all_is_refused() -> None:
    with pytest.raises(ValueError, match="above 1"):
        probability(1.01)
    with pytest.raises(ValueError, match="no parts"):
        check_shares([1.0, 2.0], [1.0, 1.9])
    check_shares([0.1 + 0.2], [0.3])  # rounded


def test_a_node_is_told_once() -> None:
    with pytest.raises(ValueError, match="twice"):
        members([1, 2, 1])


@pytest.mark.parametrize("wrong", [[1.0], [1.0, -1.0], [math.inf, 1], [math.nan, 1]])
def test_numbers_that_cannot_be_are_refused(wrong: list[float]) -> None:
    with pytest.raises(ValueError, match=r"(not a number from|numbers of) 0"):
        amounts(wrong, 2)


def test_what_nothing_was_counted_into_is_refused_where_it_is_divided_by() -> None:
    with pytest.raises(ValueError, match="above 0"):
        amounts_above_0([1.0, 0.0], 2)
    with pytest.raises(ValueError, match="above 0"):
        amounts_above_0([1.0, LEAST / 2.0], 2)


@pytest.mark.parametrize("wrong", [[[1.0, 1.0]], [[1.0], [1.0]], []])
def test_a_table_of_another_shape_is_refused(wrong: list[list[float]]) -> None:
    with pytest.raises(ValueError, match=r"expected 1|1 numbers"):
        table(wrong, 1, 1)
