"""The forecaster ``learned``: hazards, clusters, survivals and their calibration."""

import math
from collections.abc import Callable, Collection
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.lookahead.affinity import Affinity
from freetrain.lookahead.base import Prospect
from freetrain.lookahead.learned import (
    AGES_S,
    SIZES,
    Calibration,
    Hazard,
    LearnedForecaster,
    added,
)
from freetrain.replay.pool import PoolEvent
from tests.lookahead.forecasters import (
    HORIZON_S,
    departures_of,
    histories,
    idle_after,
    shown,
)


def repeated(
    forecaster: LearnedForecaster,
    joined: Collection[int],
    *leaving: tuple[float, Collection[int]],
    turns: int = 50,
    every_s: float = 1_000.0,
) -> LearnedForecaster:
    """Let *joined* come again and again, and some leave after so many seconds."""
    for turn in range(turns):
        forecaster.see(turn * every_s, joined=joined, left=())
        for after_s, left in leaving:
            forecaster.see(turn * every_s + after_s, joined=(), left=left)
    return forecaster


def prospect(forecaster: LearnedForecaster, node: int) -> Prospect:
    return forecaster.prospect(forecaster.cluster(node))


def together(forecaster: LearnedForecaster, node: int) -> set[int]:
    return set(forecaster.members(forecaster.cluster(node)))


# Hazard


AGES = st.floats(0.0, 20_000.0) | st.sampled_from(AGES_S)


@given(st.integers(1, 100), st.lists(AGES, min_size=1, max_size=8))
def test_exposure_is_counted_at_each_age_however_often_a_cluster_is_seen(
    nodes: int, ages_s: list[float]
) -> None:
    hazard, (born, *later) = Hazard(), sorted(ages_s)
    before = hazard.to_state()["exposure"]

    meter = hazard.meter(nodes, born)
    for age_s in later:
        meter.live(age_s, 1)

    size = max(place for place, least in enumerate(SIZES) if nodes >= least)
    last, ends = max(ages_s), (*AGES_S[1:], math.inf)
    for row, (was, now) in enumerate(
        zip(before, hazard.to_state()["exposure"], strict=True)
    ):
        expected = [
            max(0.0, min(end, last) - max(begin, born)) if row == size else 0.0
            for begin, end in zip(AGES_S, ends, strict=True)
        ]
        lived = [b - a for a, b in zip(was, now, strict=True)]
        assert lived == pytest.approx(expected, abs=1e-6)
    assert meter.age_s == last


@given(st.floats(0.0, 1e6), st.floats(0.0, 1e3), st.integers(0, 100))
def test_clusters_counted_together_are_counted_as_one_by_one_to_the_bit(
    total: float, each: float, times: int
) -> None:
    one_by_one = total
    for _ in range(times):
        one_by_one += each

    assert added(total, each, times) == one_by_one


def test_counts_of_hazards_fade_and_the_prior_stays() -> None:
    hazard, prior = Hazard(), Hazard().to_state()
    meter = hazard.meter(4, 0.0)
    meter.live(1_000.0, 1)
    hazard.hit(4, 1_000.0, 2)
    counted = hazard.to_state()

    hazard.fade(0.5)

    for part, now in hazard.to_state().items():
        half = (np.array(prior[part]) + np.array(counted[part])) / 2
        assert np.array_equal(np.array(now), half)
    faded_s = np.array(hazard.to_state()["exposure"])
    meter.live(1_100.0, 1)
    exposure_s = np.array(hazard.to_state()["exposure"])
    assert (exposure_s - faded_s).sum() == pytest.approx(100.0)
    hazard.fade(0.0)
    assert hazard.to_state() == prior


def test_before_anything_was_seen_a_hit_in_1500_seconds_is_expected() -> None:
    forecaster = LearnedForecaster(HORIZON_S)

    forecaster.see(0.0, joined=(0,), left=())

    stays = math.exp(-HORIZON_S / 1500)
    assert prospect(forecaster, 0).hit == pytest.approx(1 - stays)
    assert prospect(forecaster, 0).life_s == pytest.approx(1500 * (1 - stays))


def test_nodes_that_leave_young_make_only_the_young_look_short_lived() -> None:
    forecaster = LearnedForecaster(HORIZON_S)
    forecaster.see(0.0, joined=(1,), left=())
    repeated(forecaster, (0,), (100.0, (0,)))

    forecaster.see(60_000.0, joined=(0,), left=())

    assert prospect(forecaster, 0).hit > 0.6
    assert prospect(forecaster, 1).hit < 0.2
    assert forecaster.survival(0, 300.0) < forecaster.survival(1, 300.0)


def test_a_hit_is_expected_to_take_the_mean_share_of_earlier_hits() -> None:
    forecaster = LearnedForecaster(HORIZON_S, knows_pairs=False)
    repeated(forecaster, (0, 1), (500.0, (0,)), (900.0, (1,)), turns=9)

    forecaster.see(10_000.0, joined=(0, 1), left=())

    # Nine hits took half; the prior counts as one that took all.
    assert prospect(forecaster, 0).share == pytest.approx((9 * 0.5 + 1.0) / 10)


def test_a_prospect_changes_as_a_cluster_ages_and_when_it_loses_nodes() -> None:
    forecaster = LearnedForecaster(HORIZON_S, knows_pairs=False)
    repeated(forecaster, (0, 1), (100.0, (0, 1)))
    forecaster.see(60_000.0, joined=(0, 1), left=())
    young = prospect(forecaster, 0)

    forecaster.see(65_000.0, joined=(), left=())
    old = prospect(forecaster, 0)
    forecaster.see(65_000.0, joined=(), left=(1,))

    assert young.hit > 0.6
    assert old.hit < 0.3
    assert prospect(forecaster, 0).hit > old.hit  # no single node was seen yet


# Clusters


def test_nodes_that_left_together_form_a_cluster_when_they_are_back() -> None:
    forecaster = LearnedForecaster(HORIZON_S)
    forecaster.see(0.0, joined=(4, 7), left=())
    assert together(forecaster, 4) == {4}
    repeated(forecaster, range(4), (300.0, (0, 2)), (600.0, (1, 3)), turns=5)

    forecaster.see(9000.0, joined=range(4), left=())

    assert [together(forecaster, node) for node in (0, 1)] == [{0, 2}, {1, 3}]


def test_without_pairs_nodes_that_came_together_are_a_cluster() -> None:
    forecaster = LearnedForecaster(HORIZON_S, knows_pairs=False)

    forecaster.see(0.0, joined=(4, 7), left=())
    forecaster.see(5.0, joined=(5,), left=())

    assert [together(forecaster, node) for node in (4, 5)] == [{4, 7}, {5}]


@given(histories())
def test_affinities_are_the_counts_of_pairs_whenever_they_are_asked_for(
    events: list[PoolEvent],
) -> None:
    forecaster = LearnedForecaster(HORIZON_S)
    for seen in range(1, len(events) + 1):
        shown(forecaster, events[seen - 1 : seen])
        counted = Affinity()
        for left, idle in departures_of(events[:seen]):
            counted.saw(left, np.array(idle, dtype=np.intp))
        idle = idle_after(events[:seen])
        clusters = {forecaster.cluster(node) for node in idle}
        for nodes in (idle, *(sorted(forecaster.members(k)) for k in clusters)):
            assert np.array_equal(forecaster.affinity(nodes), counted.of(nodes))


# Clusters by Slurm's order


def lined_up(order: Callable[[int], Any] = int) -> LearnedForecaster:
    """Return one that has seen the lower half of 40 leave, again and again."""
    forecaster = LearnedForecaster(HORIZON_S, pairs=Affinity(), order=order)
    forecaster.see(0.0, joined=range(40), left=())
    for turn in range(1, 60):
        forecaster.see(1_000.0 * turn, joined=(), left=range(20))
        forecaster.see(1_000.0 * turn + 100.0, joined=range(20), left=())
    forecaster.see(60_000.0, joined=(), left=range(20))
    return forecaster


def test_neighbours_share_clusters_no_larger_than_the_nodes_that_leave_together() -> (
    None
):
    forecaster = lined_up()
    for node in range(20):
        forecaster.see(60_000.0 + 10.0 * node, joined=[node], left=())

    assert together(forecaster, 0) >= {0, 1, 2, 3}
    assert {len(together(forecaster, n)) for n in range(20)} == {5, 8}


def test_forecasts_are_scored_by_the_nodes_that_were_in_the_cluster_then() -> None:
    alone, joined = lined_up(), lined_up()
    for forecaster, late in ((alone, []), (joined, [1])):
        forecaster.see(60_400.0, joined=[0], left=())
        forecaster.see(60_500.0, joined=late, left=())
        forecaster.see(60_600.0, joined=(), left=[0])
        forecaster.see(61_000.0, joined=(), left=())

    assert joined.cluster(1) == joined.cluster(20)
    assert joined.to_state()["calibration"] == alone.to_state()["calibration"]


def test_nodes_that_come_at_once_are_clustered_by_place_and_not_by_number() -> None:
    def turned(node: int) -> int:
        return 7 * node % 20 if node < 20 else node

    runs = []
    for place in (int, turned):
        forecaster = lined_up(place)
        forecaster.see(60_100.0, joined=range(20), left=())
        groups = {frozenset(map(place, together(forecaster, n))) for n in range(20)}
        runs.append(sorted(sorted(group & set(range(20))) for group in groups))

    assert runs[0] == runs[1]


def test_the_end_that_leaves_first_has_the_shorter_life() -> None:
    forecaster = lined_up()
    forecaster.see(60_100.0, joined=[*range(20), *range(40, 60)], left=())
    low, high = prospect(forecaster, 0), prospect(forecaster, 59)

    assert low.life_s < high.life_s
    assert low.hit > high.hit
    assert forecaster.survival(0, 600.0) < forecaster.survival(59, 600.0)


def test_a_node_between_two_clusters_joins_the_larger() -> None:
    forecaster = lined_up()
    forecaster.forget_pool()
    forecaster.see(60_100.0, joined=[*range(8), 9], left=())
    forecaster.see(60_200.0, joined=[], left=[5, 6, 7])
    forecaster.see(60_300.0, joined=[8], left=())

    assert forecaster.cluster(4) != forecaster.cluster(9)
    assert forecaster.cluster(8) == forecaster.cluster(4)


def test_a_cluster_that_a_node_joined_gets_a_new_prospect() -> None:
    asked, other = lined_up(), lined_up()
    for forecaster in (asked, other):
        forecaster.see(60_100.0, joined=[0], left=())
        forecaster.see(60_200.0, joined=(), left=())
    prospect(asked, 0)
    for forecaster in (asked, other):
        forecaster.see(60_201.0, joined=[1], left=())

    assert prospect(asked, 0) == prospect(other, 0)


# Calibration


@given(histories())
def test_without_checks_survivals_follow_the_hazard_uncorrected(
    events: list[PoolEvent],
) -> None:
    unchecked = shown(LearnedForecaster(HORIZON_S, checks=False), events)

    for node in idle_after(events):
        expected = prospect(unchecked, node)
        raw = (1.0 - expected.hit) ** expected.share
        assert unchecked.survival(node, HORIZON_S) == pytest.approx(raw)


def test_outcomes_of_survival_forecasts_correct_later_ones() -> None:
    forecaster = LearnedForecaster(HORIZON_S)
    # Node 0 leaves whenever its survival was forecast at a seventh.
    for start_s in range(0, 2_000_000, 2000):
        forecaster.see(float(start_s), joined=(0,), left=())
        forecaster.see(start_s + 1500.0, joined=(), left=())
        forecaster.see(start_s + 1501.0, joined=(), left=(0,))

    forecaster.see(4_000_000.0, joined=(0,), left=())
    forecaster.see(4_001_500.0, joined=(), left=())

    expected = prospect(forecaster, 0)
    raw = (1.0 - expected.hit) ** (expected.share * 600.0 / HORIZON_S)
    assert raw > 0.1
    assert forecaster.survival(0, 600.0) < raw / 2


def taught(*lessons: tuple[float, int, int], times: int = 1) -> Calibration:
    """Return one that learned (forecast, nodes that stayed, nodes), *times* times."""
    calibration = Calibration()
    for _ in range(times):
        for forecast, stayed, nodes in lessons:
            calibration.learn(forecast, stayed=stayed, nodes=nodes)
    return calibration


def test_before_any_outcome_nothing_is_corrected() -> None:
    for forecast in (0.0, 0.03, 0.4, 0.77, 1.0):
        assert Calibration().of(forecast) == pytest.approx(forecast)


def test_nodes_of_one_cluster_weigh_the_root_of_their_number() -> None:
    expected = pytest.approx(0.5 * 50 / 60, rel=1e-3)
    assert taught((0.5, 0, 100)).of(0.5) == expected


def test_nearly_certain_forecasts_are_corrected_apart_from_likely_ones() -> None:
    lessons = [(0.001, 1, 5), (0.04, 1, 4), (0.96, 3, 4), (0.999, 4, 5)]
    calibration = taught(*lessons, times=5000)

    for forecast, stayed, nodes in lessons:
        assert calibration.of(forecast) == pytest.approx(stayed / nodes, abs=0.02)


def test_probabilities_unused_for_months_stay_numbers_and_are_learned_again_soon() -> (
    None
):
    calibration = taught((0.1, 1, 10), times=300_000)

    assert min(calibration.to_state()["count"]) > 0.9  # else 0 after years
    assert calibration.of(0.1) == pytest.approx(0.1, abs=0.01)
    for _ in range(20):
        calibration.learn(0.9, stayed=1, nodes=2)
    assert calibration.of(0.9) == pytest.approx(0.5, abs=0.05)


@given(
    st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(1, 50), st.floats(0, 1))),
    st.lists(st.floats(0.0, 1.0), min_size=2),
)
def test_corrections_are_probabilities_and_never_cross(
    lessons: list[tuple[float, int, float]], forecasts: list[float]
) -> None:
    calibration = taught(
        *((forecast, round(nodes * share), nodes) for forecast, nodes, share in lessons)
    )

    corrected = [calibration.of(forecast) for forecast in sorted(forecasts)]

    assert all(0.0 <= own <= 1.0 for own in corrected)
    assert all(a <= b + 1e-12 for a, b in pairwise(corrected))
    assert calibration.of(0.0) == 0.0
    assert calibration.of(1.0) == 1.0
