"""Nodes in Slurm's order: which neighbours leave together, and which end leaves first.

In most tests half of 40 nodes leaves again and again from the low end.
"""

from collections.abc import Collection, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.lookahead.learned import APART, NodeOrder


class Line:
    """A node order and its clusters: each node by itself."""

    def __init__(self, turns: int = 0) -> None:
        self.cluster_of: dict[int, int] = {}
        self.order = NodeOrder(self.cluster_of, order=int)
        self.leave(turns)

    def leave(self, turns: int, left: Sequence[int] = range(20)) -> None:
        """Let *left* of 40 nodes leave, again and again."""
        for _ in range(turns):
            self.join(set(range(40)) - set(self.cluster_of))
            self.order.leave(left, clusters=40)
            for node in left:
                del self.cluster_of[node]

    def join(self, nodes: Collection[int]) -> None:
        self.order.join(nodes)
        self.cluster_of |= {node: node for node in nodes}


COUNTS = {
    "clusters begin at 0, 2, 4, …, and those at 0 and 8 are hit": (
        *(40, [0, 9], [1, 0, 1, 2, 4, 8, 4, *[0] * 6], [1, 0, 0, 0, 1, *[0] * 8]),
    ),
    "all clusters from place 2,048 on are one part": (
        *(4_800, [100, 4_500], [1, 0, *(2**k for k in range(10)), 2_400 - 1_024]),
        [*[0] * 7, 1, *[0] * 4, 1],
    ),
}


@pytest.mark.parametrize(("nodes", "left", "there", "hit"), COUNTS.values(), ids=COUNTS)
def test_clusters_are_counted_where_they_begin_in_parts_that_double(
    nodes: int, left: list[int], there: list[int], hit: list[int]
) -> None:
    order = NodeOrder({node: node // 2 for node in range(nodes)}, order=int)
    order.leave(left, clusters=nodes // 2)

    assert order.to_state()["there"] == there
    assert order.to_state()["hit"] == hit


def test_as_few_nodes_are_looked_up_on_a_large_machine_as_on_a_small_one() -> None:
    class Counted(dict[int, int]):
        looked_up = 0

        def __getitem__(self, node: int) -> int:
            self.looked_up += 1
            return super().__getitem__(node)

    counts = []
    for nodes in (2_048, 20_000):
        cluster_of = Counted({node: node // 2 for node in range(nodes)})
        NodeOrder(cluster_of, order=int).leave(range(8), clusters=nodes // 2)
        counts.append(cluster_of.looked_up)

    assert counts == [2_056, 2_056]


@pytest.mark.parametrize(
    ("left", "longest", "first"),
    [
        pytest.param(range(0, 40, 2), 1, None, id="neighbours leave apart"),
        pytest.param(range(20, 40), 8, 39, id="the other end leaves first"),
    ],
)
def test_a_site_that_places_jobs_in_another_way_is_learned_after_any_time(
    left: Sequence[int], longest: int, first: int | None
) -> None:
    line = Line(6_000)
    assert line.order.longest == 8
    line.leave(2_048, left)
    line.join(left)

    assert line.order.longest == longest
    if first is not None:
        assert line.order.times(39 - first) < 1.0 < line.order.times(first)


def test_counts_fade_to_the_prior_by_the_share_of_pairs_touched() -> None:
    line = Line(1)
    once = line.order.to_state()
    line.leave(2_048, range(0, 40, 2))
    state = line.order.to_state()

    # Each departure takes one of any two neighbours, and touches all pairs.
    faded = (1.0 - 1.0 / 2_048.0) ** 2_048
    either = 8.0 + faded * (once["either"][0] - 8.0) + 2_048.0 * (1.0 - faded)
    assert once["both"][0] == pytest.approx(2.4 + 19 / 39)
    assert state["both"][0] == pytest.approx(2.4 + faded * (once["both"][0] - 2.4))
    assert state["either"][0] == pytest.approx(either)

    line = Line(6_000)
    once = line.order.to_state()
    line.leave(2_048, [0])

    # One of 39 pairs of neighbours is touched each time.
    faded = (1.0 - 1.0 / 2_048.0 / 39.0) ** 2_048
    both = 2.4 + faded * (once["both"][0] - 2.4)
    assert line.order.to_state()["both"][0] == pytest.approx(both)


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 300), min_size=1), st.data())
def test_pairs_are_counted_as_if_singly(nodes: set[int], data: st.DataObject) -> None:
    left = data.draw(st.sets(st.sampled_from(sorted(nodes)), min_size=1))
    before = NodeOrder({}, order=int).to_state()
    order = NodeOrder(dict.fromkeys(nodes, 0), order=int)
    order.leave(left, clusters=1)
    after, line = order.to_state(), sorted(nodes)

    for at, apart in enumerate(APART):
        pairs = list(zip(line, line[apart:], strict=False))
        either = sum(bool({*pair} & left) for pair in pairs) / max(len(pairs), 1)
        both = sum({*pair} <= left for pair in pairs) / max(len(pairs), 1)
        assert after["either"][at] - before["either"][at] == pytest.approx(either)
        assert after["both"][at] - before["both"][at] == pytest.approx(both)


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 60), min_size=2), st.data())
def test_the_line_is_in_order_after_any_arrivals_and_departures(
    nodes: set[int], data: st.DataObject
) -> None:
    first = data.draw(st.sets(st.sampled_from(sorted(nodes)), min_size=1))
    left = data.draw(st.sets(st.sampled_from(sorted(first))))
    cluster_of = dict.fromkeys(first, 0)
    order = NodeOrder(cluster_of, order=int)
    order.leave(left, clusters=1)
    order.join(sorted(nodes - first))
    line = sorted(nodes - left)
    cluster_of.clear()
    cluster_of |= {node: node for node in line}

    for place, node in enumerate(line):
        beside = [*line[max(place - 1, 0) : place], *line[place + 1 : place + 2]]
        assert order.clusters_beside(node) == beside


def test_without_a_sort_key_nodes_are_strangers_and_nothing_is_counted() -> None:
    line = Line(30)
    kept = line.order.to_state()
    line.order = NodeOrder(line.cluster_of, state=kept)
    line.leave(3)

    assert line.order.longest == 1
    assert line.order.times(20) == 1.0
    assert line.order.to_state() == kept


@pytest.mark.parametrize("part", ["either", "both", "there", "hit"])
def test_impossible_counts_are_refused(part: str) -> None:
    state = NodeOrder({}, order=int).to_state()
    state[part][0] = -1.0
    with pytest.raises(ValueError, match="not a number from 0"):
        NodeOrder({}, order=int, state=state)

    learned = Line(30).order.to_state()
    learned[part] = [0.0] * len(learned[part])
    if part in {"there", "hit"}:
        with pytest.raises(ValueError, match="no departure"):
            NodeOrder({}, order=int, state=learned)
