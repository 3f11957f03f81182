import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from freetrain.lookahead.affinity import (
    Affinity,
    BoundedAffinity,
    LatestAffinity,
    affinity_of,
)

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
