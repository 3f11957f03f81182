"""Nodes in a line: who leaves with whom, and from which end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.lookahead.learned import APART, NodeOrder

if TYPE_CHECKING:
    from collections.abc import Sequence


def in_turns(
    lineup: NodeOrder,
    cluster_of: dict[int, int],
    *,
    turns: int,
    left: Sequence[int] = range(20),
) -> NodeOrder:
    """Let half a line of 40 leave from the low end and come back, again and again."""
    for _ in range(turns):
        lineup.join(set(range(40)) - set(cluster_of))
        cluster_of |= {node: node for node in range(40)}
        lineup.leave(left, clusters=40)
        for node in left:
            del cluster_of[node]
    return lineup


def test_neighbours_are_strangers_until_they_left_together() -> None:
    assert NodeOrder({}, order=int).longest == 1


def test_as_many_as_leave_from_one_end_are_expected_to_leave_together() -> None:
    cluster_of: dict[int, int] = {}

    assert in_turns(NodeOrder(cluster_of, order=int), cluster_of, turns=30).longest == 8


def test_nodes_that_leave_each_by_itself_stay_strangers() -> None:
    lineup = NodeOrder(dict.fromkeys(range(40), 0), order=int)
    for node in range(0, 40, 3):
        lineup.leave([node], clusters=1)

    assert lineup.longest == 1
    assert lineup.times(0) == 1.0


def test_the_end_that_leaves_first_is_hit_oftener_than_the_other() -> None:
    cluster_of: dict[int, int] = {}
    lineup = in_turns(NodeOrder(cluster_of, order=int), cluster_of, turns=30)
    lineup.join(range(20))
    cluster_of |= {node: node for node in range(20)}

    assert min(lineup.times(0), lineup.times(10)) > 1.0 > lineup.times(39)


def test_clusters_are_counted_where_they_begin_in_parts_that_double() -> None:
    lineup = NodeOrder({node: node // 2 for node in range(40)}, order=int)
    lineup.leave([0, 9], clusters=20)
    state = lineup.to_state()

    # They begin at 0, 2, 4, …, and those at 0 and 8 are hit.
    assert state["there"][:7] == [1, 0, 1, 2, 4, 8, 4]
    assert state["hit"][:7] == [1, 0, 0, 0, 1, 0, 0]


def test_clusters_that_begin_far_down_the_line_are_one_part() -> None:
    near, far = 100, 4_500
    lineup = NodeOrder({node: node // 2 for node in range(4_800)}, order=int)
    lineup.leave([near, far], clusters=2_400)
    state = lineup.to_state()

    # They begin at every second place: 1,024 before 2,048, and all others behind.
    assert state["there"] == [1, 0, *(2**k for k in range(10)), 2_400 - 1_024]
    assert state["hit"] == [0] * 7 + [1] + [0] * 4 + [1]


class Asked(dict[int, int]):
    """Knows how many nodes were asked for."""

    count = 0

    def __getitem__(self, node: int) -> int:
        self.count += 1
        return super().__getitem__(node)


def test_as_few_nodes_are_asked_for_on_a_large_machine_as_on_a_small_one() -> None:
    counts = []
    for nodes in (2_048, 20_000):
        cluster_of = Asked({node: node // 2 for node in range(nodes)})
        lineup = NodeOrder(cluster_of, order=int)
        lineup.leave(range(8), clusters=nodes // 2)
        counts.append(cluster_of.count)

    assert counts == [2_056, 2_056]


def test_a_site_that_lets_neighbours_part_is_believed_however_long_it_did_not() -> None:
    cluster_of: dict[int, int] = {}
    lineup = in_turns(NodeOrder(cluster_of, order=int), cluster_of, turns=6_000)
    before = lineup.longest
    in_turns(lineup, cluster_of, turns=2_048, left=range(0, 40, 2))

    assert (before, lineup.longest) == (8, 1)


def test_a_site_that_takes_from_the_other_end_is_believed_however_long_it_did_not() -> (
    None
):
    cluster_of: dict[int, int] = {}
    lineup = in_turns(NodeOrder(cluster_of, order=int), cluster_of, turns=6_000)
    in_turns(lineup, cluster_of, turns=2_048, left=range(20, 40))
    lineup.join(range(20, 40))
    cluster_of |= {node: node for node in range(20, 40)}

    assert lineup.times(0) < 1.0 < lineup.times(39)


def test_what_was_counted_fades_to_what_is_believed_of_strangers() -> None:
    cluster_of: dict[int, int] = {}
    lineup = in_turns(NodeOrder(cluster_of, order=int), cluster_of, turns=1)
    once = lineup.to_state()
    in_turns(lineup, cluster_of, turns=2_048, left=range(0, 40, 2))
    state = lineup.to_state()

    # Each of these departures takes one of any two neighbours, and touches all pairs.
    faded = (1.0 - 1.0 / 2_048.0) ** 2_048
    either = 8.0 + faded * (once["either"][0] - 8.0) + 2_048.0 * (1.0 - faded)
    assert once["both"][0] == pytest.approx(2.4 + 19 / 39)
    assert state["both"][0] == pytest.approx(2.4 + faded * (once["both"][0] - 2.4))
    assert state["either"][0] == pytest.approx(either)


def test_a_departure_of_few_nodes_of_many_makes_little_fade() -> None:
    cluster_of: dict[int, int] = {}
    lineup = in_turns(NodeOrder(cluster_of, order=int), cluster_of, turns=6_000)
    once = lineup.to_state()
    in_turns(lineup, cluster_of, turns=2_048, left=[0])

    # One of 39 pairs of neighbours is touched each time.
    faded = (1.0 - 1.0 / 2_048.0 / 39.0) ** 2_048
    assert lineup.to_state()["both"][0] == pytest.approx(
        2.4 + faded * (once["both"][0] - 2.4)
    )


def test_whoever_begins_the_line_now_is_what_counts() -> None:
    cluster_of: dict[int, int] = {}
    lineup = in_turns(NodeOrder(cluster_of, order=int), cluster_of, turns=30)

    assert lineup.times(20) > 1.0 > lineup.times(39)


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 300), min_size=1), st.data())
def test_pairs_are_counted_as_if_one_by_one(
    nodes: set[int], data: st.DataObject
) -> None:
    left = data.draw(st.sets(st.sampled_from(sorted(nodes)), min_size=1))
    before = NodeOrder({}, order=int).to_state()
    lineup = NodeOrder(dict.fromkeys(nodes, 0), order=int)
    lineup.leave(left, clusters=1)
    after, line = lineup.to_state(), sorted(nodes)

    for at, apart in enumerate(APART):
        pairs = [(one, other) for one, other in zip(line, line[apart:], strict=False)]
        either = sum(bool({*pair} & left) for pair in pairs) / max(len(pairs), 1)
        both = sum({*pair} <= left for pair in pairs) / max(len(pairs), 1)
        assert after["either"][at] - before["either"][at] == pytest.approx(either)
        assert after["both"][at] - before["both"][at] == pytest.approx(both)


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 60), min_size=2), st.data())
def test_the_line_is_in_order_whatever_came_and_went(
    nodes: set[int], data: st.DataObject
) -> None:
    first = data.draw(st.sets(st.sampled_from(sorted(nodes)), min_size=1))
    left = data.draw(st.sets(st.sampled_from(sorted(first))))
    cluster_of = dict.fromkeys(first, 0)
    lineup = NodeOrder(cluster_of, order=int)
    lineup.leave(left, clusters=1)
    lineup.join(sorted(nodes - first))
    line = sorted(nodes - left)
    cluster_of.clear()
    cluster_of |= {node: node for node in line}

    for place, node in enumerate(line):
        beside = [*line[max(place - 1, 0) : place], *line[place + 1 : place + 2]]
        assert lineup.clusters_beside(node) == beside


def test_nodes_stand_by_whatever_order_they_are_given() -> None:
    lineup = NodeOrder({5: 1, 40: 2, 300: 3}, order=str)

    assert [lineup.clusters_beside(node) for node in (300, 40, 5)] == [[2], [1, 3], [2]]


def test_nobody_stands_in_a_line_that_has_no_order() -> None:
    cluster_of: dict[int, int] = {}
    kept = in_turns(NodeOrder(cluster_of, order=int), cluster_of, turns=30).to_state()
    lineup = NodeOrder(cluster_of, state=kept)
    in_turns(lineup, cluster_of, turns=3)

    assert lineup.longest == 1
    assert lineup.times(20) == 1.0
    assert lineup.to_state() == kept


def test_what_was_learned_is_kept_and_the_line_is_who_is_idle() -> None:
    cluster_of: dict[int, int] = {}
    lineup = in_turns(NodeOrder(cluster_of, order=int), cluster_of, turns=30)
    state = json.loads(json.dumps(lineup.to_state()))
    kept = NodeOrder(cluster_of, order=int, state=state)

    assert kept.to_state() == lineup.to_state()
    assert kept.longest == lineup.longest
    assert [kept.times(node) for node in cluster_of] == [
        lineup.times(node) for node in cluster_of
    ]


@pytest.mark.parametrize("part", ["either", "both", "there", "hit"])
def test_numbers_that_cannot_be_are_refused(part: str) -> None:
    state = NodeOrder({}, order=int).to_state()
    state[part][0] = -1.0

    with pytest.raises(ValueError, match="not a number from 0"):
        NodeOrder({}, order=int, state=state)


@pytest.mark.parametrize("part", ["there", "hit"])
def test_neighbours_that_leave_together_and_never_left_are_refused(part: str) -> None:
    cluster_of: dict[int, int] = {}
    state = in_turns(NodeOrder(cluster_of, order=int), cluster_of, turns=30).to_state()
    state[part] = [0.0] * len(state[part])

    with pytest.raises(ValueError, match="no departure"):
        NodeOrder({}, order=int, state=state)
