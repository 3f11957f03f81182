"""Which nodes leave together: counts, bounds, and the map of a page."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from freetrain.lookahead.affinity import (
    Affinity,
    BoundedAffinity,
    LatestAffinity,
    affinity_of,
    close_to_each_other,
    split,
)
from freetrain.lookahead.reliability import MOST_CELLS, MOST_NODES, affinity_map
from freetrain.replay.pool import PoolEvent
from tests.lookahead.pools import histories

AFFINITIES = st.integers(1, 7).flatmap(
    lambda n: st.lists(st.floats(0.0, 1.0), min_size=n * n, max_size=n * n).map(
        lambda v: (np.array(v).reshape(n, n) + np.array(v).reshape(n, n).T) / 2
    )
)


def test_affinity_counts_common_departures_among_those_while_both_were_idle() -> None:
    affinity = Affinity()
    affinity.saw([0, 1], np.array([0, 1, 2]))  # both leave
    affinity.saw([0], np.array([0, 1]))  # one leaves, the other stays
    affinity.saw([0], np.array([0, 2]))  # node 1 was not idle

    assert affinity.of([0, 1])[0, 1] == pytest.approx((0.6 + 1) / (2 + 2))


def test_counts_do_not_wrap_however_often_a_node_leaves() -> None:
    affinity, pair = Affinity(), np.array([0, 1])
    for turn in range(110_000):
        affinity.saw([0, 1] if turn % 4 else [0], pair)

    assert affinity.of([0, 1])[0, 1] == pytest.approx(0.75, abs=1e-3)


@given(histories())
def test_affinity_is_what_counting_pair_by_pair_gives(events: list[PoolEvent]) -> None:
    affinity, idle = Affinity(), set[int]()
    together = np.zeros((8, 8))
    either = np.zeros((8, 8))
    for event in events:
        if event.left:
            affinity.saw(event.left, np.array(sorted(idle)))
        for a in idle:
            for b in idle:
                together[a, b] += a in event.left and b in event.left
                either[a, b] += a in event.left or b in event.left
        idle = (idle - set(event.left)) | set(event.joined)

    assert np.allclose(affinity.of(range(8)), (0.6 + together) / (2 + either))


@given(AFFINITIES, st.floats(0.0, 1.0))
def test_splitting_leaves_nobody_out_and_nobody_in_two_clusters(
    affinity: np.ndarray, least: float
) -> None:
    clusters = split(affinity, least)

    assert sorted(k for one in clusters for k in one) == list(range(len(affinity)))


@given(AFFINITIES, st.floats(0.01, 1.0))
def test_whoever_joins_a_cluster_is_close_enough_to_it(
    affinity: np.ndarray, least: float
) -> None:
    for cluster in split(affinity, least):
        for place in range(1, len(cluster)):
            mean = affinity[cluster[place], cluster[:place]].mean()
            assert mean >= least - 1e-9


@given(AFFINITIES, st.data())
def test_as_many_are_chosen_as_were_wanted(
    affinity: np.ndarray, data: st.DataObject
) -> None:
    wanted = data.draw(st.integers(1, len(affinity)))

    chosen = close_to_each_other(affinity, wanted)

    assert len(set(chosen)) == wanted
    assert chosen == sorted(chosen)


def test_the_closest_pair_is_chosen_first() -> None:
    affinity = np.array([[0.9, 0.1, 0.2], [0.1, 0.9, 0.6], [0.2, 0.6, 0.9]])

    assert close_to_each_other(affinity, 2) == [1, 2]


NODES = 40

departures = st.lists(
    st.sets(st.integers(0, NODES - 1), min_size=1).flatmap(
        lambda idle: st.tuples(
            st.sets(st.sampled_from(sorted(idle)), min_size=1), st.just(idle)
        )
    ),
    max_size=12,
)
groups = st.lists(st.integers(0, NODES - 1), min_size=1, max_size=8, unique=True)
Departures = list[tuple[set[int], set[int]]]


def tell(
    pairs: Affinity | BoundedAffinity | LatestAffinity, events: Departures
) -> None:
    for left, idle in events:
        pairs.saw(sorted(left), np.asarray(sorted(idle), dtype=np.intp))


@given(departures, groups)
def test_few_nodes_are_answered_for_as_by_counts_of_all_pairs(
    events: Departures, nodes: list[int]
) -> None:
    counted, bounded = Affinity(), BoundedAffinity(most=NODES)
    tell(counted, events)
    tell(bounded, events)

    assert (bounded.of(nodes) == counted.of(nodes)).all()


@given(departures, groups, st.integers(1, 5))
def test_of_many_nodes_the_latest_departures_count_as_if_there_were_no_others(
    events: Departures, nodes: list[int], kept: int
) -> None:
    counted, latest = Affinity(), LatestAffinity(kept)
    tell(counted, events[-kept:])
    tell(latest, events)

    assert (affinity_of(*latest.counts(nodes)) == counted.of(nodes)).all()


@given(departures, groups)
def test_from_the_first_high_number_on_only_departures_since_then_count(
    events: Departures, nodes: list[int]
) -> None:
    most = 20
    high = [max(idle) >= most for _, idle in events]
    since = high.index(True) if True in high else len(events)
    if max(nodes) < most and since == len(events):
        since = 0
    counted, bounded = Affinity(), BoundedAffinity(most)
    tell(counted, events[since:])
    tell(bounded, events)

    assert (bounded.of(nodes) == counted.of(nodes)).all()


def of_groups(nodes: Sequence[int], groups: int = 2) -> NDArray[np.float64]:
    """Return affinity where nodes of the same remainder leave together."""
    kind = np.asarray(nodes) % groups
    return np.where(kind[:, None] == kind[None, :], 0.9, 0.1)


def names(nodes: int) -> list[str]:
    return [f"n{node}" for node in range(nodes)]


def test_who_leaves_together_is_side_by_side_and_one_block() -> None:
    shown = affinity_map(of_groups, dict.fromkeys(range(6), 1), names(6))

    assert shown is not None
    assert [set(block.nodes) for block in shown.blocks] in (
        [{"n0", "n2", "n4"}, {"n1", "n3", "n5"}],
        [{"n1", "n3", "n5"}, {"n0", "n2", "n4"}],
    )
    assert [name for (name,) in shown.cells] == [
        name for block in shown.blocks for name in block.nodes
    ]
    assert [block.within for block in shown.blocks] == pytest.approx([0.9, 0.9])
    assert [block.outside for block in shown.blocks] == pytest.approx([0.1, 0.1])


def test_a_node_is_no_pair_with_itself() -> None:
    shown = affinity_map(of_groups, {0: 1, 1: 1}, names(2))

    assert shown is not None
    assert shown.affinity == ((None, 0.1), (0.1, None))
    assert [block.within for block in shown.blocks] == [None, None]


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
        for mean, other in zip(row, cell_by_cell(whole, cell, places), strict=True):
            assert mean == (None if other is None else pytest.approx(other))


def cell_by_cell(
    whole: NDArray[np.float64], cell: list[int], cells: list[list[int]]
) -> list[float | None]:
    """Return the mean of the pairs of *cell* with each of *cells*, one by one."""
    means: list[float | None] = []
    for other in cells:
        pairs = whole[np.ix_(cell, other)]
        kept = pairs[np.not_equal.outer(cell, other)]
        means.append(float(kept.mean()) if kept.size else None)
    return means


def test_of_many_nodes_those_that_left_most_often_are_shown() -> None:
    left = {node: 1 + (node >= 7) for node in range(MOST_NODES + 7)}

    shown = affinity_map(of_groups, left, names(len(left)))

    assert shown is not None
    assert shown.nodes_left == MOST_NODES + 7
    assert set(sum(shown.cells, ())) == set(names(len(left))[7:])


@pytest.mark.parametrize("left", [{}, {3: 8}])
def test_fewer_than_two_nodes_make_no_map(left: dict[int, int]) -> None:
    assert affinity_map(of_groups, left, names(4)) is None
