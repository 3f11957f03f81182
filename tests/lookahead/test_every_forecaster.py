"""What every forecaster must keep, whatever it learns.

One that is named in ``freetrain.lookahead.base`` is tested here.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.errors import UsageError
from freetrain.lookahead.affinity import RecentAffinity
from freetrain.lookahead.base import Prospect, forecaster_named
from freetrain.replay.pool import PoolEvent
from tests.lookahead.forecasters import (
    EVERY,
    HORIZON_S,
    HORIZONS_S,
    OFTEN,
    answers,
    leaves_young,
    made,
    shown,
)
from tests.lookahead.pools import histories, idle_after

if TYPE_CHECKING:
    from collections.abc import Iterable

    from freetrain.lookahead.base import Departure, Forecaster


def asked(forecaster: Forecaster, events: Iterable[PoolEvent]) -> list[object]:
    """Return all that can be asked after each of *events*."""
    return [answers(shown(forecaster, [event])) for event in events]


def clusters_of(forecaster: Forecaster) -> dict[int, set[int]]:
    """Return the idle nodes by cluster."""
    return {
        one: set(forecaster.members(one))
        for one in map(forecaster.cluster, forecaster.idle())
    }


def test_who_names_no_forecaster_is_told_which_there_are() -> None:
    with pytest.raises(UsageError, match=r"of learned, .*\. Did you mean 'learned'\?$"):
        forecaster_named("lerned")


@EVERY
@OFTEN
@given(events=histories(), at=st.integers(1, 25))
def test_the_future_changes_no_answer(
    name: str, events: list[PoolEvent], at: int
) -> None:
    # Asked as often: a prospect may be the one that was told a little while ago.
    assert asked(made(name), events[:at]) == asked(made(name), events)[:at]


@EVERY
@OFTEN
@given(events=histories())
def test_whoever_saw_the_same_says_the_same_in_whatever_order_nodes_were_told(
    name: str, events: list[PoolEvent]
) -> None:
    turned = [PoolEvent(e.time_s, e.joined[::-1], e.left[::-1]) for e in events]

    assert answers(shown(made(name), turned)) == answers(shown(made(name), events))


@EVERY
@OFTEN
@given(events=histories())
def test_asking_changes_no_answer(name: str, events: list[PoolEvent]) -> None:
    forecaster = made(name)
    for event in events:
        shown(forecaster, [event])
        idle = sorted(forecaster.idle())
        for node in idle:
            forecaster.survival(node, 600.0)
        forecaster.affinity(idle)

    assert answers(forecaster) == answers(shown(made(name), events))


@EVERY
@OFTEN
@given(events=histories())
def test_each_idle_node_is_in_one_cluster_and_nobody_else_is(
    name: str, events: list[PoolEvent]
) -> None:
    forecaster, idle = shown(made(name), events), idle_after(events)

    assert sorted(forecaster.idle()) == idle
    members = [node for own in clusters_of(forecaster).values() for node in own]
    assert sorted(members) == idle
    assert all(node in forecaster.members(forecaster.cluster(node)) for node in idle)


@EVERY
@OFTEN
@given(events=histories())
def test_nobody_changes_clusters_whose_numbers_are_not_used_again(
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


@EVERY
@OFTEN
@given(events=histories())
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


@EVERY
@OFTEN
@given(events=histories(), horizons_s=st.lists(st.floats(0.0, 1e6), min_size=2))
def test_nobody_is_likelier_to_stay_longer_than_to_stay_shorter(
    name: str, events: list[PoolEvent], horizons_s: list[float]
) -> None:
    forecaster = shown(made(name), events)

    for node in forecaster.idle():
        assert forecaster.survival(node, 0.0) == 1.0
        chances = [forecaster.survival(node, h) for h in sorted(horizons_s)]
        assert all(a >= b - 1e-12 for a, b in pairwise(chances))


@EVERY
def test_who_leaves_young_is_thought_to_leave_once_it_is_back(name: str) -> None:
    new, knows = made(name), leaves_young(name)
    new.see(0.0, joined=(0,), left=())
    knows.see(6e4, joined=(0,), left=())

    assert knows.survival(0, 60.0) < new.survival(0, 60.0) - 0.1
    before, after = (one.prospect(one.cluster(0)) for one in (new, knows))
    assert after.hit > before.hit + 0.1
    assert after.life_s < before.life_s


@EVERY
@OFTEN
@given(events=histories(), learns_s=st.sampled_from([1.0, 500.0, 1e9]))
def test_while_it_is_learning_nobody_is_expected_to_leave(
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
            plain = quick.prospect(quick.cluster(node))
            told = patient.prospect(patient.cluster(node))
            assert told == (lasting if is_early else plain)


@EVERY
@OFTEN
@given(events=histories())
def test_whoever_is_not_asked_for_survivals_plans_by_the_same(
    name: str, events: list[PoolEvent]
) -> None:
    asked, unasked = shown(made(name), events), made(name, checks=False)
    shown(unasked, events)

    for node in idle_after(events):
        expected = asked.prospect(asked.cluster(node))
        assert unasked.prospect(unasked.cluster(node)) == expected


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
