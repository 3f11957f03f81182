"""What losses and changes count for, from how trainers fared."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.lookahead.experience import Experience

if TYPE_CHECKING:
    from collections.abc import Mapping

HORIZON_S = 500.0
TWO_CLUSTERS = {"a": frozenset({1, 2, 3, 4})}


def half(node: int) -> int:
    """Return the cluster of a node: two clusters of two."""
    return node // 3


def hits(times: int, left: set[int], held: Mapping[str, frozenset[int]]) -> float:
    """Return what a hit counts after *left* left trainers that hold *held*."""
    experience = Experience()
    for turn in range(times):
        experience.note(100.0 * turn, held)
        experience.lose(left, half)
    return experience.hit_weight


def changes(every_s: float, sizes: tuple[int, ...]) -> float:
    """Return what a change counts to a trainer that is of other *sizes* in turn."""
    experience = Experience()
    for turn in range(2_000):
        nodes = frozenset(range(sizes[turn % len(sizes)]))
        experience.note(every_s * turn, {"a": nodes})
    return experience.change_weight(HORIZON_S)


def test_a_hit_counts_whole_where_clusters_leave_each_by_itself() -> None:
    assert hits(2_000, {1, 2}, TWO_CLUSTERS) == pytest.approx(1.0, abs=0.01)


def test_a_hit_counts_hardly_where_all_that_a_trainer_has_leaves_at_once() -> None:
    assert hits(2_000, {1, 2, 3}, TWO_CLUSTERS) == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize(
    ("left", "held"),
    [({1, 2}, {"a": frozenset({1, 2})}), ({7, 8}, TWO_CLUSTERS), ({1}, {})],
)
def test_who_has_one_cluster_or_loses_nothing_teaches_nothing(
    left: set[int], held: Mapping[str, frozenset[int]]
) -> None:
    assert hits(50, left, held) == Experience().hit_weight


def test_before_anything_was_seen_a_hit_counts_a_quarter() -> None:
    assert Experience().hit_weight == 0.25


def test_who_is_changed_every_hundred_seconds_must_gain_five_times_the_cost() -> None:
    assert changes(100.0, (2, 3)) == pytest.approx(5.0 / -math.expm1(-5.0), rel=0.01)


@pytest.mark.parametrize("sizes", [(4,), (0, 4), (4, 0)])
def test_to_stay_to_start_and_to_end_are_no_changes(sizes: tuple[int, ...]) -> None:
    assert changes(100.0, sizes) == pytest.approx(1.0, abs=0.01)


def test_time_without_nodes_is_not_time_trained() -> None:
    experience = Experience()
    for turn in range(2_000):
        for after_s, nodes in ((0.0, 1), (100.0, 2), (200.0, 0)):
            held = {"a": frozenset(range(nodes)), "b": frozenset[int]()}
            experience.note(1_000.0 * turn + after_s, held)

    # One change in 200 s of training, as one never sees what comes after a stop.
    lasts = 2.5 / -math.expm1(-2.5)
    assert experience.change_weight(HORIZON_S) == pytest.approx(lasts, rel=0.01)


@given(st.lists(st.sets(st.integers(0, 9)), max_size=30))
def test_a_change_never_counts_less_than_it_costs_and_a_hit_never_more_than_one(
    holdings: list[set[int]],
) -> None:
    experience = Experience()
    for turn, held in enumerate(holdings):
        experience.lose(held, half)
        experience.note(10.0 * turn, {"a": frozenset(held)})

    assert experience.change_weight(HORIZON_S) >= 1.0
    assert 0.0 <= experience.hit_weight <= 1.0


def test_what_was_put_away_goes_on_as_if_it_had_not_been() -> None:
    straight, first = Experience(), Experience()
    for one in (straight, first):
        one.note(0.0, TWO_CLUSTERS)
    second = Experience(json.loads(json.dumps(first.to_state())))
    for one in (straight, second):
        one.lose({1, 2}, half)
        one.note(70.0, {"a": frozenset({3, 4})})

    assert second.to_state() == straight.to_state()
    assert second.nodes == {3, 4}


def test_a_pool_that_was_lost_sight_of_teaches_nothing_of_the_time_between() -> None:
    experience = Experience()
    experience.note(0.0, TWO_CLUSTERS)
    before = experience.to_state()
    experience.forget_pool()
    experience.note(9_000.0, {"a": frozenset({1})})

    after = experience.to_state()
    assert {**after, "held": 0, "at_s": 0} == {**before, "held": 0, "at_s": 0}


@pytest.mark.parametrize(
    "spoilt",
    [
        {"hits": [1.0, 0.0]},
        {"hits": [math.nan, 1.0]},
        {"changes": [0.0, 1.0]},
        {"changes": [1.0]},
        {"held": {"a": ["x"]}},
        {"held": {"a": 7}},
        {"at_s": "soon"},
    ],
)
def test_a_state_that_is_nothing_of_the_kind_is_refused(spoilt: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        Experience(Experience().to_state() | spoilt)
