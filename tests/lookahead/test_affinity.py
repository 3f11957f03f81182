"""Which nodes leave together: counts of pairs, leaf switches, clusters, and a map."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from freetrain.lookahead.affinity import (
    KEPT,
    Affinity,
    BoundedAffinity,
    LatestAffinity,
    LeafAffinity,
    RecentAffinity,
    affinity_of,
    close_to_each_other,
    line_order,
    split,
)
from freetrain.lookahead.learned import LearnedForecaster
from freetrain.lookahead.reliability import MOST_CELLS, MOST_NODES, affinity_map
from freetrain.replay.pool import PoolEvent
from tests.lookahead.forecasters import (
    answers,
    departures_of,
    histories,
    idle_after,
    shown,
)

NODES = 40
RACK = 4

Departures: TypeAlias = "Iterable[tuple[Iterable[int], Iterable[int]]]"
Counts: TypeAlias = (
    "Affinity | BoundedAffinity | LatestAffinity | RecentAffinity | LeafAffinity"
)

AFFINITIES = st.integers(1, 7).flatmap(
    lambda n: st.lists(st.floats(0.0, 1.0), min_size=n * n, max_size=n * n).map(
        lambda v: (np.array(v).reshape(n, n) + np.array(v).reshape(n, n).T) / 2
    )
)
DEPARTURES = st.lists(
    st.sets(st.integers(0, NODES - 1), min_size=1).flatmap(
        lambda idle: st.tuples(
            st.sets(st.sampled_from(sorted(idle)), min_size=1), st.just(idle)
        )
    ),
    max_size=12,
)
GROUPS = st.lists(st.integers(0, NODES - 1), min_size=1, max_size=8, unique=True)


def count(departures: Departures, *learners: Counts) -> None:
    for left, idle in departures:
        for learner in learners:
            learner.saw(sorted(left), np.array(sorted(idle), dtype=np.intp))


def rack(node: int) -> str:
    return f"rack{node // RACK}"


# Counts of pairs


def test_counts_do_not_wrap_however_often_a_node_leaves() -> None:
    affinity, pair = Affinity(), np.array([0, 1])
    for turn in range(110_000):
        affinity.saw([0, 1] if turn % 4 else [0], pair)

    assert affinity.of([0, 1])[0, 1] == pytest.approx(0.75, abs=1e-3)


@given(histories())
def test_affinity_is_what_counting_pair_by_pair_gives(events: list[PoolEvent]) -> None:
    affinity, together, either = Affinity(), np.zeros((8, 8)), np.zeros((8, 8))
    for left, idle in departures_of(events):
        count([(left, idle)], affinity)
        for a in idle:
            for b in idle:
                together[a, b] += a in left and b in left
                either[a, b] += a in left or b in left

    assert np.allclose(affinity.of(range(8)), (0.6 + together) / (2 + either))


@given(DEPARTURES, GROUPS)
def test_while_all_departures_are_kept_all_kinds_of_counts_agree(
    events: Departures, nodes: list[int]
) -> None:
    counted, bounded, latest = Affinity(), BoundedAffinity(most=NODES), LatestAffinity()
    recent = RecentAffinity()
    count(events, counted, bounded, latest, recent)

    assert (bounded.of(nodes) == counted.of(nodes)).all()
    assert (affinity_of(*latest.counts(nodes)) == counted.of(nodes)).all()
    assert np.allclose(recent.of(nodes), counted.of(nodes))


@given(DEPARTURES, GROUPS, st.integers(1, 5))
def test_of_many_nodes_the_latest_departures_count_as_if_there_were_no_others(
    events: list[tuple[set[int], set[int]]], nodes: list[int], kept: int
) -> None:
    counted, latest = Affinity(), LatestAffinity(kept)
    count(events[-kept:], counted)
    count(events, latest)

    assert (affinity_of(*latest.counts(nodes)) == counted.of(nodes)).all()


@given(DEPARTURES, GROUPS)
def test_from_the_first_high_number_on_only_departures_since_then_count(
    events: list[tuple[set[int], set[int]]], nodes: list[int]
) -> None:
    most = 20
    high = [max(idle) >= most for _, idle in events]
    since = high.index(True) if True in high else len(events)
    if max(nodes) < most and since == len(events):
        since = 0
    counted, bounded = Affinity(), BoundedAffinity(most)
    count(events[since:], counted)
    count(events, bounded)

    assert (bounded.of(nodes) == counted.of(nodes)).all()


def test_in_a_tick_departures_before_the_latest_2048_do_not_count() -> None:
    recent, pair = RecentAffinity(), np.array([0, 1])
    for _ in range(KEPT):
        recent.saw([0, 1], pair)
    close = recent.of([0, 1])[0, 1]
    for _ in range(KEPT):
        recent.saw([0], pair)

    assert close == pytest.approx((0.6 + KEPT) / (2 + KEPT))
    assert recent.of([0, 1])[0, 1] == pytest.approx(0.6 / (2 + KEPT))


def test_saved_departures_are_loaded_once_and_only_for_an_affinity() -> None:
    loads = []
    recent = RecentAffinity(lambda: loads.append(1) or ())  # type: ignore[func-returns-value]

    recent.saw([0], np.array([0, 1]))
    assert not loads
    recent.of([0, 1])
    recent.of([0, 1])

    assert loads == [1]


# Leaf switches


@given(histories(nodes=12))
def test_the_rate_of_leaves_is_what_counting_pair_by_pair_gives(
    events: list[PoolEvent],
) -> None:
    learned, together, either = LeafAffinity(Affinity(), rack), 0.0, 0.0
    for left, idle in departures_of(events):
        learned.saw(left, np.array(idle))
        pairs = [
            (a in left, b in left)
            for a in idle
            for b in idle
            if a < b and rack(a) == rack(b) and rack(a) in map(rack, left)
        ]
        if pairs:
            fade = 1.0 - 1.0 / 2048.0
            together = together * fade + sum(a and b for a, b in pairs) / len(pairs)
            either = either * fade + sum(a or b for a, b in pairs) / len(pairs)

    assert learned.rate == pytest.approx((2.4 + together) / (8.0 + either))
    saved = json.loads(json.dumps(learned.to_state()))
    assert LeafAffinity(Affinity(), rack, state=saved).rate == learned.rate


@given(histories(nodes=12))
def test_the_rate_of_leaves_is_the_prior_of_pairs_below_one_leaf_only(
    events: list[PoolEvent],
) -> None:
    counted, learned = Affinity(), LeafAffinity(Affinity(), rack)
    count(departures_of(events), counted, learned)
    left, together = counted.counts(range(12))
    either = left + left.T - together.astype(float)

    affinity = learned.of(range(12))

    prior = np.array(
        [
            [max(0.3, learned.rate) if rack(a) == rack(b) else 0.3 for b in range(12)]
            for a in range(12)
        ]
    )
    assert np.allclose(affinity, (2.0 * prior + together) / (2.0 + either))
    assert np.array_equal(affinity, affinity.T)
    assert ((affinity > 0.0) & (affinity < 1.0)).all()


@given(histories(nodes=12), st.sampled_from([str, lambda _: ""]))
def test_where_no_two_nodes_share_a_leaf_every_answer_is_the_same_to_the_bit(
    events: list[PoolEvent], leaf_of: Callable[[int], str]
) -> None:
    idle, plain = idle_after(events), shown(LearnedForecaster(400.0), events)

    for pairs in (Affinity(), RecentAffinity()):
        other = LearnedForecaster(400.0, pairs=LeafAffinity(pairs, leaf_of))
        shown(other, events)
        assert other.to_state() == plain.to_state()
        assert answers(other, idle) == answers(plain, idle)


def clusters_after(
    forecaster: LearnedForecaster, gone: Sequence[Sequence[int]], new: Sequence[int]
) -> set[frozenset[int]]:
    """Let each group of *gone* come and leave whole; return the clusters of *new*."""
    for turn, group in enumerate(gone):
        forecaster.see(1_000.0 * turn, joined=group, left=())
        forecaster.see(1_000.0 * turn + 500.0, joined=(), left=group)
    forecaster.see(9_000.0, joined=new, left=())
    return {frozenset(forecaster.members(forecaster.cluster(node))) for node in new}


def test_unknown_racks_are_clusters_once_others_have_left_whole() -> None:
    gone = [range(RACK * k, RACK * (k + 1)) for k in range(8)]
    new = range(40, 48)
    strangers = {frozenset({node}) for node in new}

    def forecaster() -> LearnedForecaster:
        return LearnedForecaster(400.0, pairs=LeafAffinity(Affinity(), rack))

    assert clusters_after(forecaster(), [], new) == strangers
    assert clusters_after(LearnedForecaster(400.0), gone, new) == strangers
    assert clusters_after(forecaster(), gone, new) == {
        frozenset(range(40, 44)),
        frozenset(range(44, 48)),
    }


def test_nodes_below_no_leaf_stay_strangers_where_racks_leave_whole() -> None:
    learned = LeafAffinity(Affinity(), lambda node: rack(node) if node < 40 else "")
    racks = [range(first, first + RACK) for first in range(0, 32, RACK)]
    count([(nodes, nodes) for nodes in racks], learned)

    assert learned.of([36, 37])[0, 1] == learned.rate > 0.5
    assert learned.of([40, 41])[0, 1] == 0.3


@pytest.mark.parametrize(
    ("leaves", "order"),
    [
        *(((), int), (("", "", ""), int), (("a", "b", ""), int)),
        *((("a", "b", "a"), None), (("a", "a", ""), None)),
    ],
)
def test_the_order_of_names_is_used_where_no_two_nodes_share_a_leaf(
    leaves: tuple[str, ...], order: type[int] | None
) -> None:
    assert line_order(leaves, int) is order


# Clusters of affinities


@given(AFFINITIES, st.floats(0.0, 1.0))
def test_clusters_have_each_node_once_and_close_to_those_before_it(
    affinity: NDArray[np.float64], least: float
) -> None:
    clusters = split(affinity, least)

    assert sorted(k for own in clusters for k in own) == list(range(len(affinity)))
    for cluster in clusters:
        for place in range(1, len(cluster)):
            mean = affinity[cluster[place], cluster[:place]].mean()
            assert mean >= least - 1e-9


@given(AFFINITIES, st.data())
def test_as_many_nodes_are_chosen_as_were_wanted(
    affinity: NDArray[np.float64], data: st.DataObject
) -> None:
    wanted = data.draw(st.integers(1, len(affinity)))

    chosen = close_to_each_other(affinity, wanted)

    assert len(set(chosen)) == wanted
    assert chosen == sorted(chosen)


def test_the_closest_pair_is_chosen_first() -> None:
    affinity = np.array([[0.9, 0.1, 0.2], [0.1, 0.9, 0.6], [0.2, 0.6, 0.9]])

    assert close_to_each_other(affinity, 2) == [1, 2]


# The map


def of_groups(nodes: Sequence[int], groups: int = 2) -> NDArray[np.float64]:
    """Return affinity where nodes of the same remainder leave together."""
    kind = np.asarray(nodes) % groups
    return np.where(kind[:, None] == kind[None, :], 0.9, 0.1)


def names(nodes: int) -> list[str]:
    return [f"n{node}" for node in range(nodes)]


def test_nodes_that_leave_together_are_side_by_side_and_one_block() -> None:
    shown = affinity_map(of_groups, dict.fromkeys(range(6), 1), names(6))

    assert shown is not None
    assert sorted(sorted(block.nodes) for block in shown.blocks) == [
        ["n0", "n2", "n4"],
        ["n1", "n3", "n5"],
    ]
    assert [name for (name,) in shown.cells] == [
        name for block in shown.blocks for name in block.nodes
    ]
    assert [block.within for block in shown.blocks] == pytest.approx([0.9, 0.9])
    assert [block.outside for block in shown.blocks] == pytest.approx([0.1, 0.1])


@given(st.sampled_from([2, 7, 100, 101, 150, 260]), st.integers(1, 5))
@settings(max_examples=12)
def test_a_cell_is_the_mean_of_its_pairs(nodes: int, groups: int) -> None:
    def affinity(of: Sequence[int]) -> NDArray[np.float64]:
        return of_groups(of, groups)

    shown = affinity_map(affinity, dict.fromkeys(range(nodes), 1), names(nodes))

    assert shown is not None
    assert len(shown.cells) == len(shown.affinity) <= MOST_CELLS
    assert sorted(sum(shown.cells, ())) == sorted(names(nodes))
    whole = affinity(range(nodes))
    number = {name: node for node, name in enumerate(names(nodes))}
    places = [[number[name] for name in cell] for cell in shown.cells]
    for row, cell in zip(shown.affinity, places, strict=True):
        for mean, other in zip(row, places, strict=True):
            pairs = whole[np.ix_(cell, other)]
            kept = pairs[np.not_equal.outer(cell, other)]
            assert mean == (pytest.approx(kept.mean()) if kept.size else None)


def test_of_many_nodes_those_that_left_most_often_are_shown() -> None:
    left = {node: 1 + (node >= 7) for node in range(MOST_NODES + 7)}

    shown = affinity_map(of_groups, left, names(len(left)))

    assert shown is not None
    assert shown.nodes_left == MOST_NODES + 7
    assert set(sum(shown.cells, ())) == set(names(len(left))[7:])


@pytest.mark.parametrize("left", [{}, {3: 8}])
def test_fewer_than_two_nodes_make_no_map(left: dict[int, int]) -> None:
    assert affinity_map(of_groups, left, names(4)) is None
