"""The contract of every forecaster of ``FORECASTERS``."""

import json
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import strategies as st

from freetrain.errors import UsageError
from freetrain.lookahead.affinity import RecentAffinity
from freetrain.lookahead.base import Departure, Forecaster, Prospect, forecaster_named
from freetrain.replay.pool import PoolEvent
from tests.lookahead import forecasters
from tests.lookahead.forecasters import (
    EVERY,
    HORIZON_S,
    HORIZONS_S,
    every_with,
    histories,
    idle_after,
    leaves_young,
    made,
    shown,
)


def answers(forecaster: Forecaster) -> list[object]:
    idle = sorted(forecaster.idle())
    return [*forecasters.answers(forecaster, idle), *map(forecaster.in_line, idle)]


def answers_after_each(
    forecaster: Forecaster, events: Iterable[PoolEvent]
) -> list[object]:
    return [answers(shown(forecaster, [event])) for event in events]


def clusters_of(forecaster: Forecaster) -> dict[int, set[int]]:
    return {
        cluster: set(forecaster.members(cluster))
        for cluster in map(forecaster.cluster, forecaster.idle())
    }


def test_an_unknown_name_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UsageError, match=r"of learned, .*\. Did you mean 'learned'\?$"):
        forecaster_named("lerned")


@every_with(events=histories(), at=st.integers(1, 25))
def test_the_future_changes_no_answer(
    name: str, events: list[PoolEvent], at: int
) -> None:
    # Asked at every event both times, as a prospect may be a recent answer.
    straight = answers_after_each(made(name), events)
    assert answers_after_each(made(name), events[:at]) == straight[:at]


@every_with(events=histories())
def test_asking_changes_no_answer(name: str, events: list[PoolEvent]) -> None:
    forecaster = made(name)
    for event in events:
        shown(forecaster, [event])
        idle = sorted(forecaster.idle())
        for node in idle:
            forecaster.survival(node, 600.0)
        forecaster.affinity(idle)

    assert answers(forecaster) == answers(shown(made(name), events))


@every_with(events=histories())
def test_each_idle_node_is_in_one_cluster_and_no_other_node_is(
    name: str, events: list[PoolEvent]
) -> None:
    forecaster, idle = shown(made(name), events), idle_after(events)

    assert sorted(forecaster.idle()) == idle
    members = [node for own in clusters_of(forecaster).values() for node in own]
    assert sorted(members) == idle
    assert all(node in forecaster.members(forecaster.cluster(node)) for node in idle)


@every_with(events=histories())
def test_the_same_is_expected_of_all_clusters_of_a_cohort(
    name: str, events: list[PoolEvent]
) -> None:
    forecaster = made(name)
    for event in events:
        shown(forecaster, [event])
        clusters = clusters_of(forecaster)
        cohorts = forecaster.cohorts()
        assert sorted(k for own in cohorts for k in own.clusters) == sorted(clusters)
        for own in cohorts:
            assert own.clusters == sorted(own.clusters)
            lowest = [min(clusters[k]) for k in own.clusters]
            assert lowest == sorted(lowest)
            assert {len(clusters[k]) for k in own.clusters} == {own.nodes}
            assert len({forecaster.prospect(k) for k in own.clusters}) == 1
            assert all(forecaster.cohort(k) is own for k in own.clusters)


@every_with(events=histories())
def test_no_node_changes_clusters_and_numbers_of_clusters_are_not_used_again(
    name: str, events: list[PoolEvent]
) -> None:
    forecaster = made(name)
    gone: set[int] = set()
    before: dict[int, set[int]] = {}
    for event in events:
        shown(forecaster, [event])
        now = clusters_of(forecaster)
        for number, own in now.items():
            assert number not in gone
            stayed = before.get(number, set()) - set(event.left)
            assert stayed <= own <= stayed | set(event.joined)
        gone |= before.keys() - now.keys()
        before = now


@every_with(events=histories())
def test_answers_are_probabilities_and_lives_that_end_by_the_horizon(
    name: str, events: list[PoolEvent]
) -> None:
    forecaster, idle = shown(made(name), events), idle_after(events)

    for node in idle:
        life_s, hit, share = forecaster.prospect(forecaster.cluster(node))
        assert 0.0 < life_s <= HORIZON_S
        assert 0.0 <= hit <= 1.0
        assert 0.0 < share <= 1.0
        assert all(0.0 <= forecaster.survival(node, h) <= 1.0 for h in HORIZONS_S)
        run, times = forecaster.in_line(node)
        assert times == 1.0 if run == 1 else run > 1 and times > 0.0
    affinity = forecaster.affinity(idle)
    assert affinity.shape == (len(idle), len(idle))
    assert ((affinity >= 0.0) & (affinity <= 1.0)).all()
    assert np.array_equal(affinity, affinity.T)


@every_with(events=histories(), horizons_s=st.lists(st.floats(0.0, 1e6), min_size=2))
def test_survival_never_rises_with_the_horizon(
    name: str, events: list[PoolEvent], horizons_s: list[float]
) -> None:
    forecaster = shown(made(name), events)

    for node in forecaster.idle():
        assert forecaster.survival(node, 0.0) == 1.0
        chances = [forecaster.survival(node, h) for h in sorted(horizons_s)]
        assert all(a >= b - 1e-12 for a, b in pairwise(chances))


@EVERY
def test_a_node_that_left_young_is_expected_to_leave_once_it_is_back(name: str) -> None:
    new, knows = made(name), leaves_young(name)
    new.see(0.0, joined=(0,), left=())
    knows.see(6e4, joined=(0,), left=())

    assert knows.survival(0, 60.0) < new.survival(0, 60.0) - 0.1
    before, after = new.prospect(new.cluster(0)), knows.prospect(knows.cluster(0))
    assert after.hit > before.hit + 0.1
    assert after.life_s < before.life_s


@every_with(events=histories(), learns_s=st.sampled_from([1.0, 500.0, 1e9]))
def test_while_it_is_learning_no_node_is_expected_to_leave(
    name: str, events: list[PoolEvent], learns_s: float
) -> None:
    patient, quick = made(name, learns_s=learns_s), made(name)
    assert patient.is_learning
    assert not quick.is_learning
    for event in events:
        shown(patient, [event])
        shown(quick, [event])
        is_early = event.time_s - events[0].time_s < learns_s
        assert patient.is_learning == is_early
        for node in patient.idle():
            lasting = Prospect(HORIZON_S, 0.0, 1.0)
            learned = quick.prospect(quick.cluster(node))
            prospect = patient.prospect(patient.cluster(node))
            assert prospect == (lasting if is_early else learned)


@every_with(events=histories())
def test_prospects_are_the_same_without_checks_of_survivals(
    name: str, events: list[PoolEvent]
) -> None:
    checked = shown(made(name), events)
    unchecked = shown(made(name, checks=False), events)

    for node in idle_after(events):
        expected = checked.prospect(checked.cluster(node))
        assert unchecked.prospect(unchecked.cluster(node)) == expected


@every_with(events=histories(), at=st.integers(0, 25))
def test_saved_and_loaded_it_goes_on_as_if_it_had_not_been(
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


@every_with(events=histories())
def test_a_state_without_one_of_its_parts_is_refused(
    name: str, events: list[PoolEvent]
) -> None:
    state = shown(made(name), events).to_state()

    for key in state:
        short = {other: value for other, value in state.items() if other != key}
        with pytest.raises((ValueError, KeyError, TypeError)):
            made(name, state=short)


@EVERY
def test_after_a_gap_the_pool_is_forgotten_and_the_lessons_are_not(name: str) -> None:
    forecaster, same = leaves_young(name), leaves_young(name)
    forecaster.see(5e4, joined=(1, 2), left=())

    forecaster.forget_pool()
    assert list(forecaster.idle()) == []
    forecaster.see(1e6, joined=(0,), left=())
    same.see(1e6, joined=(0,), left=())

    assert list(forecaster.idle()) == [0]
    assert forecaster.prospect(forecaster.cluster(0)).hit > 0.6
    for horizon_s in HORIZONS_S:
        # No node lived through the gap.
        expected = pytest.approx(same.survival(0, horizon_s), abs=1e-9)
        assert forecaster.survival(0, horizon_s) == expected


@EVERY
def test_forecasts_from_before_a_gap_are_not_scored(name: str) -> None:
    forecaster, new = made(name), made(name)
    forecaster.see(0.0, joined=(1, 2), left=())

    forecaster.forget_pool()
    for learner in (forecaster, new):
        learner.see(1e6, joined=(0,), left=())

    for horizon_s in (60.0, 600.0, 7200.0):
        assert forecaster.survival(0, horizon_s) == new.survival(0, horizon_s)
