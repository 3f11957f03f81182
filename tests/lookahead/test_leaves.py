"""Affinity of nodes of which it is known which are below one leaf switch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.lookahead.affinity import (
    Affinity,
    LeafAffinity,
    RecentAffinity,
    line_order,
)
from freetrain.lookahead.learned import LearnedForecaster
from tests.lookahead.pools import histories, idle_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from freetrain.replay.pool import PoolEvent

RACK = 4


def rack(node: int) -> str:
    """Racks of four."""
    return f"rack{node // RACK}"


def strangers(node: int) -> str:
    return str(node)


def no_leaf(node: int) -> str:
    del node
    return ""


def seen(
    events: Iterable[PoolEvent], *learners: LeafAffinity | Affinity | RecentAffinity
) -> None:
    idle = set[int]()
    for event in events:
        if event.left:
            for learner in learners:
                learner.saw(event.left, np.array(sorted(idle)))
        idle = (idle - set(event.left)) | set(event.joined)


@given(histories(nodes=12))
def test_what_is_usual_is_what_counting_pair_by_pair_gives(
    events: list[PoolEvent],
) -> None:
    learned, idle = LeafAffinity(Affinity(), rack), set[int]()
    together = either = 0.0
    for event in events:
        pairs = [
            (a in event.left, b in event.left)
            for a in idle
            for b in idle
            if a < b and rack(a) == rack(b) and rack(a) in map(rack, event.left)
        ]
        if event.left:
            learned.saw(event.left, np.array(sorted(idle)))
        if pairs:
            fade = 1.0 - 1.0 / 2048.0
            together = together * fade + sum(a and b for a, b in pairs) / len(pairs)
            either = either * fade + sum(a or b for a, b in pairs) / len(pairs)
        idle = (idle - set(event.left)) | set(event.joined)

    assert learned.rate == pytest.approx((2.4 + together) / (8.0 + either))


@given(histories(nodes=12))
def test_pairs_below_one_leaf_begin_with_what_is_usual_and_others_as_ever(
    events: list[PoolEvent],
) -> None:
    counted, learned = Affinity(), LeafAffinity(Affinity(), rack)
    seen(events, counted, learned)
    left, together = counted.counts(range(12))
    either = left + left.T - together.astype(float)

    affinity = learned.of(range(12))

    said = np.array(
        [
            [max(0.3, learned.rate) if rack(a) == rack(b) else 0.3 for b in range(12)]
            for a in range(12)
        ]
    )
    assert np.allclose(affinity, (2.0 * said + together) / (2.0 + either))
    assert np.array_equal(affinity, affinity.T)
    assert (affinity > 0.0).all()
    assert (affinity < 1.0).all()


@given(histories(nodes=12), st.sampled_from([strangers, no_leaf]))
def test_where_no_two_nodes_share_a_leaf_every_answer_is_the_same_to_the_bit(
    events: list[PoolEvent], leaf_of: Callable[[int], str]
) -> None:
    plain = LearnedForecaster(400.0)
    placed = LearnedForecaster(400.0, pairs=LeafAffinity(Affinity(), leaf_of))
    recent = LearnedForecaster(400.0, pairs=LeafAffinity(RecentAffinity(), leaf_of))
    for event in events:
        for forecaster in (plain, placed, recent):
            forecaster.see(event.time_s, joined=event.joined, left=event.left)

    idle = idle_after(events)
    for other in (placed, recent):
        assert other.to_state() == plain.to_state()
        assert np.array_equal(other.affinity(idle), plain.affinity(idle))
        for node in idle:
            cluster = plain.cluster(node)
            assert other.cluster(node) == cluster
            assert other.prospect(cluster) == plain.prospect(cluster)
            assert other.survival(node, 600.0) == plain.survival(node, 600.0)


@given(histories(nodes=12))
def test_what_was_kept_goes_on_as_if_it_had_not_been_away(
    events: list[PoolEvent],
) -> None:
    whole, first = LeafAffinity(Affinity(), rack), LeafAffinity(Affinity(), rack)
    seen(events, whole, first)
    kept = json.loads(json.dumps(first.to_state()))

    again = LeafAffinity(Affinity(), rack, state=kept)

    assert again.rate == whole.rate


@pytest.mark.parametrize(
    "state", [{}, {"together": 1.0}, {"together": -1.0, "either": 1.0}, {"either": "x"}]
)
def test_what_is_no_state_is_refused(state: dict[str, float]) -> None:
    with pytest.raises((ValueError, KeyError)):
        LeafAffinity(Affinity(), rack, state=state)


def shown(forecaster: LearnedForecaster, groups: Sequence[Sequence[int]]) -> None:
    """Let each of *groups* be idle for a while, alone, and leave at one event."""
    for turn, group in enumerate(groups):
        forecaster.see(1_000.0 * turn, joined=group, left=())
        forecaster.see(1_000.0 * turn + 500.0, joined=(), left=group)


def clusters(
    forecaster: LearnedForecaster, nodes: Sequence[int]
) -> set[frozenset[int]]:
    return {frozenset(forecaster.members(forecaster.cluster(node))) for node in nodes}


def test_racks_that_were_never_seen_are_clusters_once_others_have_left_whole() -> None:
    """Eight racks leave one after the other; then two that nobody has seen come."""
    with_racks = LearnedForecaster(400.0, pairs=LeafAffinity(Affinity(), rack))
    without = LearnedForecaster(400.0)
    gone = [range(RACK * k, RACK * (k + 1)) for k in range(8)]
    new = range(40, 48)
    for forecaster in (with_racks, without):
        shown(forecaster, gone)
        forecaster.see(9_000.0, joined=new, left=())

    assert clusters(with_racks, new) == {
        frozenset(range(40, 44)),
        frozenset(range(44, 48)),
    }
    assert clusters(without, new) == {frozenset({node}) for node in new}


def test_nodes_below_no_leaf_stay_strangers_where_racks_leave_whole() -> None:
    def first_racks(node: int) -> str:
        return rack(node) if node < 40 else ""

    learned = LeafAffinity(Affinity(), first_racks)
    for first in range(0, 32, RACK):
        nodes = range(first, first + RACK)
        learned.saw(nodes, np.array(nodes))

    assert learned.of([36, 37])[0, 1] == learned.rate > 0.5
    assert learned.of([40, 41])[0, 1] == 0.3


def test_before_anything_was_seen_racks_are_strangers() -> None:
    forecaster = LearnedForecaster(400.0, pairs=LeafAffinity(Affinity(), rack))

    forecaster.see(0.0, joined=range(8), left=())

    assert clusters(forecaster, range(8)) == {frozenset({node}) for node in range(8)}


def test_where_nodes_leave_one_by_one_racks_are_no_stranger_than_others() -> None:
    learned = LeafAffinity(Affinity(), rack)
    for node in range(12):
        learned.saw([node], np.arange(node, 16))

    assert learned.rate < 0.25
    assert learned.of([12, 13])[0, 1] == learned.of([12, 23])[0, 1] == 0.3


def test_a_drain_of_the_whole_machine_counts_as_one_departure() -> None:
    """A hundred racks at once say as much as one rack that leaves by itself."""
    small, large = LeafAffinity(Affinity(), rack), LeafAffinity(Affinity(), rack)
    small.saw(range(4), np.arange(4))
    large.saw(range(400), np.arange(400))

    assert small.rate == large.rate == pytest.approx((2.4 + 1.0) / (8.0 + 1.0))


def test_one_node_of_many_counts_as_the_few_pairs_that_see_it() -> None:
    learned = LeafAffinity(Affinity(), lambda _: "one")
    learned.saw([0], np.arange(20))

    assert learned.rate == pytest.approx(2.4 / (8.0 + 19.0 / 190.0))


@pytest.mark.parametrize("leaves", [(), ("", "", ""), ("a", "b", "")])
def test_nodes_stand_in_line_where_no_two_are_below_one_leaf(
    leaves: tuple[str, ...],
) -> None:
    assert line_order(leaves, int) is int


@pytest.mark.parametrize("leaves", [("a", "b", "a"), ("a", "a", "")])
def test_leaves_say_who_is_near_where_two_nodes_are_below_one(
    leaves: tuple[str, ...],
) -> None:
    assert line_order(leaves, int) is None
