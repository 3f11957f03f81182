"""The forecaster ``learned``: clusters, survival, and nodes in order."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.lookahead.affinity import Affinity
from freetrain.lookahead.base import Forecaster, Prospect
from freetrain.lookahead.learned import LearnedForecaster
from tests.lookahead.pools import histories, idle_after

if TYPE_CHECKING:
    from collections.abc import Callable

    from freetrain.replay.pool import PoolEvent


HORIZON_S = 400.0


def shown(events: list[PoolEvent]) -> LearnedForecaster:
    forecaster = LearnedForecaster(HORIZON_S)
    for event in events:
        forecaster.see(event.time_s, joined=event.joined, left=event.left)
    return forecaster


def answers(forecaster: Forecaster, idle: list[int]) -> list[object]:
    return [
        *(forecaster.survival(node, 600.0) for node in idle),
        *(forecaster.prospect(forecaster.cluster(node)) for node in idle),
        forecaster.affinity(idle).tolist(),
    ]


@given(histories())
def test_every_idle_node_is_in_one_cluster_and_no_other_node_is(
    events: list[PoolEvent],
) -> None:
    forecaster, idle = shown(events), idle_after(events)

    clusters = {forecaster.cluster(node) for node in idle}

    members = [node for one in clusters for node in forecaster.members(one)]
    assert sorted(members) == idle
    assert all(node in forecaster.members(forecaster.cluster(node)) for node in idle)


@given(histories())
def test_forecasts_are_probabilities_and_lives_end_by_the_horizon(
    events: list[PoolEvent],
) -> None:
    forecaster, idle = shown(events), idle_after(events)

    for node in idle:
        prospect = forecaster.prospect(forecaster.cluster(node))
        assert 0.0 <= prospect.hit <= 1.0
        assert 0.0 < prospect.share <= 1.0
        assert 0.0 < prospect.life_s <= HORIZON_S
        assert 0.0 <= forecaster.survival(node, 600.0) <= 1.0
    affinity = forecaster.affinity(idle)
    assert ((affinity > 0.0) & (affinity < 1.0)).all()
    assert np.array_equal(affinity, affinity.T)


@given(histories(), st.lists(st.floats(0.0, 1e6), min_size=2, max_size=6))
def test_nobody_is_likelier_to_stay_longer_than_to_stay_shorter(
    events: list[PoolEvent], horizons_s: list[float]
) -> None:
    forecaster = shown(events)

    for node in idle_after(events):
        chances = [forecaster.survival(node, h) for h in sorted(horizons_s)]
        assert all(a >= b - 1e-12 for a, b in pairwise(chances))


@given(histories())
def test_two_forecasters_that_saw_the_same_say_the_same(
    events: list[PoolEvent],
) -> None:
    idle = idle_after(events)

    assert answers(shown(events), idle) == answers(shown(events), idle)


@given(histories())
def test_asking_changes_no_answer(events: list[PoolEvent]) -> None:
    asked, idle = LearnedForecaster(HORIZON_S), idle_after(events)

    seen: list[PoolEvent] = []
    for event in events:
        asked.see(event.time_s, joined=event.joined, left=event.left)
        seen.append(event)
        for node in idle_after(seen):
            asked.survival(node, 600.0)

    assert answers(asked, idle) == answers(shown(events), idle)


def test_nodes_that_left_together_form_a_cluster_when_they_are_back() -> None:
    forecaster = LearnedForecaster(HORIZON_S)
    for round_s in range(0, 5000, 1000):
        forecaster.see(float(round_s), joined=(0, 1, 2, 3), left=())
        forecaster.see(round_s + 300.0, joined=(), left=(0, 2))
        forecaster.see(round_s + 600.0, joined=(), left=(1, 3))

    forecaster.see(9000.0, joined=(0, 1, 2, 3), left=())

    assert forecaster.members(forecaster.cluster(0)) == {0, 2}
    assert forecaster.members(forecaster.cluster(1)) == {1, 3}


def test_strangers_are_clusters_of_their_own() -> None:
    forecaster = LearnedForecaster(HORIZON_S)

    forecaster.see(0.0, joined=(4, 7), left=())

    assert forecaster.cluster(4) != forecaster.cluster(7)


@given(histories())
def test_pairs_are_what_is_counted_of_them_whenever_they_are_asked_for(
    events: list[PoolEvent],
) -> None:
    forecaster, counted = LearnedForecaster(HORIZON_S), Affinity()
    seen: list[PoolEvent] = []
    for event in events:
        if event.left:
            counted.saw(event.left, np.array(idle_after(seen), dtype=np.intp))
        forecaster.see(event.time_s, joined=event.joined, left=event.left)
        seen.append(event)
        idle = idle_after(seen)
        for nodes in (idle, *_clusters(forecaster, idle)):
            assert np.array_equal(forecaster.affinity(nodes), counted.of(nodes))


def _clusters(forecaster: LearnedForecaster, idle: list[int]) -> list[list[int]]:
    return [sorted(forecaster.members(k)) for k in set(map(forecaster.cluster, idle))]


@given(histories())
def test_who_checks_nothing_expects_the_same_and_corrects_nothing(
    events: list[PoolEvent],
) -> None:
    checked, unchecked = shown(events), LearnedForecaster(HORIZON_S, checks=False)
    for event in events:
        unchecked.see(event.time_s, joined=event.joined, left=event.left)

    for node in idle_after(events):
        expected = unchecked.prospect(unchecked.cluster(node))
        assert expected == checked.prospect(checked.cluster(node))
        raw = (1.0 - expected.hit) ** expected.share
        assert unchecked.survival(node, HORIZON_S) == pytest.approx(raw)


def test_without_pairs_whoever_came_together_is_a_cluster() -> None:
    forecaster = LearnedForecaster(HORIZON_S, knows_pairs=False)

    forecaster.see(0.0, joined=(4, 7), left=())
    forecaster.see(5.0, joined=(5,), left=())

    assert forecaster.members(forecaster.cluster(4)) == {4, 7}
    assert forecaster.members(forecaster.cluster(5)) == {5}


def test_before_anything_was_seen_a_hit_in_1500_seconds_is_expected() -> None:
    forecaster = LearnedForecaster(HORIZON_S)

    forecaster.see(0.0, joined=(0,), left=())

    prospect = forecaster.prospect(forecaster.cluster(0))
    assert prospect.hit == pytest.approx(1 - math.exp(-HORIZON_S / 1500))
    assert prospect.life_s == pytest.approx(1500 * (1 - math.exp(-HORIZON_S / 1500)))


def test_nodes_that_leave_young_make_the_young_look_short_lived() -> None:
    forecaster = LearnedForecaster(HORIZON_S)
    forecaster.see(0.0, joined=(1,), left=())
    for round_s in range(0, 50_000, 1000):
        forecaster.see(float(round_s), joined=(0,), left=())
        forecaster.see(round_s + 100.0, joined=(), left=(0,))

    forecaster.see(60_000.0, joined=(0,), left=())

    young, old = forecaster.cluster(0), forecaster.cluster(1)
    assert forecaster.prospect(young).hit > 0.6
    assert forecaster.prospect(old).hit < 0.2
    assert forecaster.survival(0, 300.0) < forecaster.survival(1, 300.0)


def test_of_a_hit_the_mean_share_that_hits_took_is_expected_to_go() -> None:
    forecaster = LearnedForecaster(HORIZON_S, knows_pairs=False)
    for round_s in range(0, 9000, 1000):
        forecaster.see(float(round_s), joined=(0, 1), left=())
        forecaster.see(round_s + 500.0, joined=(), left=(0,))
        forecaster.see(round_s + 900.0, joined=(), left=(1,))

    forecaster.see(10_000.0, joined=(0, 1), left=())

    # Nine hits took half; one that took all was believed to have been.
    share = forecaster.prospect(forecaster.cluster(0)).share
    assert share == pytest.approx((9 * 0.5 + 1.0) / 10)


def test_what_is_expected_changes_as_a_cluster_ages_and_when_it_loses_nodes() -> None:
    forecaster = LearnedForecaster(HORIZON_S, knows_pairs=False)
    for round_s in range(0, 50_000, 1000):
        forecaster.see(float(round_s), joined=(0, 1), left=())
        forecaster.see(round_s + 100.0, joined=(), left=(0, 1))
    forecaster.see(60_000.0, joined=(0, 1), left=())
    young = forecaster.prospect(forecaster.cluster(0))

    forecaster.see(65_000.0, joined=(), left=())
    old = forecaster.prospect(forecaster.cluster(0))
    forecaster.see(65_000.0, joined=(), left=(1,))
    alone = forecaster.prospect(forecaster.cluster(0))

    assert young.hit > 0.6
    assert old.hit < 0.3
    assert alone.hit > old.hit  # of single nodes nothing was seen yet


def test_what_came_of_survivals_foretold_corrects_later_ones() -> None:
    forecaster = LearnedForecaster(HORIZON_S)
    # Node 0 leaves whenever it was foretold to stay with one chance in seven.
    for round_s in range(0, 2_000_000, 2000):
        forecaster.see(float(round_s), joined=(0,), left=())
        forecaster.see(round_s + 1500.0, joined=(), left=())
        forecaster.see(round_s + 1501.0, joined=(), left=(0,))

    forecaster.see(4_000_000.0, joined=(0,), left=())
    forecaster.see(4_001_500.0, joined=(), left=())

    expected = forecaster.prospect(forecaster.cluster(0))
    raw = (1.0 - expected.hit) ** (expected.share * 600.0 / HORIZON_S)
    assert raw > 0.1
    assert forecaster.survival(0, 600.0) < raw / 2


def test_while_it_learns_nobody_is_expected_to_leave() -> None:
    patient = LearnedForecaster(400.0, learns_s=3_600.0)
    quick = LearnedForecaster(400.0)
    for one in (patient, quick):
        for turn in range(10):
            one.see(1_000.0 + 350.0 * turn, joined=(1,), left=())
            one.see(1_100.0 + 350.0 * turn, joined=(), left=(1,))
        one.see(4_599.0, joined=(1,), left=())

    assert patient.prospect(patient.cluster(1)) == Prospect(400.0, 0.0, 1.0)
    for one in (patient, quick):
        one.see(4_600.0, joined=(2,), left=())
    for node in (1, 2):
        learned = quick.prospect(quick.cluster(node))
        assert patient.prospect(patient.cluster(node)) == learned
        assert learned.hit > 0.0


def lined_up(order: Callable[[int], Any] = int) -> LearnedForecaster:
    """Return one that has seen half a line leave from one end, again and again."""
    forecaster = LearnedForecaster(HORIZON_S, pairs=Affinity(), order=order)
    forecaster.see(0.0, joined=range(40), left=())
    for turn in range(1, 60):
        forecaster.see(1_000.0 * turn, joined=(), left=range(20))
        forecaster.see(1_000.0 * turn + 100.0, joined=range(20), left=())
    forecaster.see(60_000.0, joined=(), left=range(20))
    return forecaster


def test_neighbours_are_of_one_cluster_whenever_they_came() -> None:
    forecaster = lined_up()
    for node in range(4):
        forecaster.see(60_000.0 + 10.0 * node, joined=[node], left=())

    assert len({forecaster.cluster(node) for node in range(4)}) == 1


def test_what_was_foretold_is_held_against_those_who_were_there_then() -> None:
    alone, joined = lined_up(), lined_up()
    for forecaster, late in ((alone, []), (joined, [1])):
        forecaster.see(60_400.0, joined=[0], left=())
        forecaster.see(60_500.0, joined=late, left=())
        forecaster.see(60_600.0, joined=(), left=[0])
        forecaster.see(61_000.0, joined=(), left=())

    assert joined.cluster(1) == joined.cluster(20)
    assert joined.to_state()["calibration"] == alone.to_state()["calibration"]


def test_a_cluster_in_line_has_no_more_nodes_than_leave_together() -> None:
    forecaster = lined_up()
    for node in range(20):
        forecaster.see(60_000.0 + 10.0 * node, joined=[node], left=())

    assert {len(forecaster.members(forecaster.cluster(n))) for n in range(20)} == {5, 8}


def turned(node: int) -> int:
    """Return the place of *node* where the first twenty have another order."""
    return 7 * node % 20 if node < 20 else node


def test_who_comes_at_once_is_lined_up_by_place_and_not_by_number() -> None:
    runs = []
    for place in (int, turned):
        forecaster = lined_up(place)
        forecaster.see(60_100.0, joined=range(20), left=())
        groups = {forecaster.cluster(n): set[int]() for n in range(20)}
        for node in range(20):
            groups[forecaster.cluster(node)].add(place(node))
        runs.append(sorted(map(sorted, groups.values())))

    assert runs[0] == runs[1]


def test_the_end_that_leaves_first_has_the_shorter_life() -> None:
    forecaster = lined_up()
    forecaster.see(60_100.0, joined=[*range(20), *range(40, 60)], left=())
    low, high = (forecaster.prospect(forecaster.cluster(n)) for n in (0, 59))

    assert low.life_s < high.life_s
    assert low.hit > high.hit
    assert forecaster.survival(0, 600.0) < forecaster.survival(59, 600.0)


def test_who_comes_between_two_clusters_joins_the_larger() -> None:
    forecaster = lined_up()
    forecaster.forget_pool()
    forecaster.see(60_100.0, joined=[*range(8), 9], left=())
    forecaster.see(60_200.0, joined=[], left=[5, 6, 7])
    forecaster.see(60_300.0, joined=[8], left=())

    assert forecaster.cluster(4) != forecaster.cluster(9)
    assert forecaster.cluster(8) == forecaster.cluster(4)


def test_a_cluster_that_was_joined_is_another_one_to_what_is_expected() -> None:
    asked, other = lined_up(), lined_up()
    for forecaster in (asked, other):
        forecaster.see(60_100.0, joined=[0], left=())
        forecaster.see(60_200.0, joined=(), left=())
    asked.prospect(asked.cluster(0))
    for forecaster in (asked, other):
        forecaster.see(60_201.0, joined=[1], left=())

    assert asked.prospect(asked.cluster(0)) == other.prospect(other.cluster(0))
