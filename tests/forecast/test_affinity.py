import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.lookahead.affinity import Affinity, close_to_each_other, split
from freetrain.replay.timeline import PoolEvent
from tests.forecast.pools import histories

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
