"""Nodes in a line: who leaves with whom, and from which end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.forecast.affinity import Affinity
from freetrain.forecast.learned import LearnedForecaster
from freetrain.forecast.lineup import APART, Lineup

if TYPE_CHECKING:
    from collections.abc import Callable

HORIZON_S = 400.0


def in_turns(lineup: Lineup, cluster_of: dict[int, int], *, turns: int) -> Lineup:
    """Let half a line of 40 leave from the low end and come back, again and again."""
    for _ in range(turns):
        lineup.join(set(range(40)) - set(cluster_of))
        cluster_of |= {node: node for node in range(40)}
        lineup.leave(range(20))
        for node in range(20):
            del cluster_of[node]
    return lineup


def test_neighbours_are_strangers_until_they_left_together() -> None:
    assert Lineup({}, order=int).longest == 1


def test_as_many_as_leave_from_one_end_are_expected_to_leave_together() -> None:
    cluster_of: dict[int, int] = {}

    assert in_turns(Lineup(cluster_of, order=int), cluster_of, turns=30).longest == 8


def test_nodes_that_leave_each_by_itself_stay_strangers() -> None:
    lineup = Lineup(dict.fromkeys(range(40), 0), order=int)
    for node in range(0, 40, 3):
        lineup.leave([node])

    assert lineup.longest == 1
    assert lineup.times(0) == 1.0


def test_the_end_that_leaves_first_is_hit_oftener_than_the_other() -> None:
    cluster_of: dict[int, int] = {}
    lineup = in_turns(Lineup(cluster_of, order=int), cluster_of, turns=30)
    lineup.join(range(20))
    cluster_of |= {node: node for node in range(20)}

    assert min(lineup.times(0), lineup.times(10)) > 1.0 > lineup.times(39)


def test_clusters_are_counted_where_they_begin_in_parts_that_double() -> None:
    lineup = Lineup({node: node // 2 for node in range(40)}, order=int)
    lineup.leave([0, 9])
    state = lineup.to_state()

    # They begin at 0, 2, 4, …, and those at 0 and 8 are hit.
    assert state["there"][:7] == [1, 0, 1, 2, 4, 8, 4]
    assert state["hit"][:7] == [1, 0, 0, 0, 1, 0, 0]


def test_whoever_begins_the_line_now_is_what_counts() -> None:
    cluster_of: dict[int, int] = {}
    lineup = in_turns(Lineup(cluster_of, order=int), cluster_of, turns=30)

    assert lineup.times(20) > 1.0 > lineup.times(39)


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 300), min_size=1), st.data())
def test_pairs_are_counted_as_if_one_by_one(
    nodes: set[int], data: st.DataObject
) -> None:
    left = data.draw(st.sets(st.sampled_from(sorted(nodes)), min_size=1))
    before = Lineup({}, order=int).to_state()
    lineup = Lineup(dict.fromkeys(nodes, 0), order=int)
    lineup.leave(left)
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
    lineup = Lineup(cluster_of, order=int)
    lineup.leave(left)
    lineup.join(sorted(nodes - first))
    line = sorted(nodes - left)
    cluster_of.clear()
    cluster_of |= {node: node for node in line}

    for place, node in enumerate(line):
        beside = [*line[max(place - 1, 0) : place], *line[place + 1 : place + 2]]
        assert lineup.clusters_beside(node) == beside


def test_nodes_stand_by_whatever_order_they_are_given() -> None:
    lineup = Lineup({5: 1, 40: 2, 300: 3}, order=str)

    assert [lineup.clusters_beside(node) for node in (300, 40, 5)] == [[2], [1, 3], [2]]


def test_nobody_stands_in_a_line_that_has_no_order() -> None:
    cluster_of: dict[int, int] = {}
    kept = in_turns(Lineup(cluster_of, order=int), cluster_of, turns=30).to_state()
    lineup = Lineup(cluster_of, state=kept)
    in_turns(lineup, cluster_of, turns=3)

    assert lineup.longest == 1
    assert lineup.times(20) == 1.0
    assert lineup.to_state() == kept


def test_what_was_learned_is_kept_and_the_line_is_who_is_idle() -> None:
    cluster_of: dict[int, int] = {}
    lineup = in_turns(Lineup(cluster_of, order=int), cluster_of, turns=30)
    state = json.loads(json.dumps(lineup.to_state()))
    kept = Lineup(cluster_of, order=int, state=state)

    assert kept.to_state() == lineup.to_state()
    assert kept.longest == lineup.longest
    assert [kept.times(node) for node in cluster_of] == [
        lineup.times(node) for node in cluster_of
    ]


@pytest.mark.parametrize("part", ["either", "both", "there", "hit"])
def test_numbers_that_cannot_be_are_refused(part: str) -> None:
    state = Lineup({}, order=int).to_state()
    state[part][0] = -1.0

    with pytest.raises(ValueError, match="numbers of 0 or more"):
        Lineup({}, order=int, state=state)


@pytest.mark.parametrize("part", ["there", "hit"])
def test_neighbours_that_leave_together_and_never_left_are_refused(part: str) -> None:
    cluster_of: dict[int, int] = {}
    state = in_turns(Lineup(cluster_of, order=int), cluster_of, turns=30).to_state()
    state[part] = [0.0] * len(state[part])

    with pytest.raises(ValueError, match="nobody ever left"):
        Lineup({}, order=int, state=state)


def lined_up(order: Callable[[int], Any] = int) -> LearnedForecaster:
    """Return one that has seen half a line leave from one end, again and again."""
    forecaster = LearnedForecaster(HORIZON_S, pairs=Affinity(), order=order)
    forecaster.see(0.0, joined=range(40), left=())
    for turn in range(1, 60):
        forecaster.see(1_000.0 * turn, joined=(), left=range(20))
        forecaster.see(1_000.0 * turn + 100.0, joined=range(20), left=())
    forecaster.see(60_000.0, joined=(), left=range(20))
    return forecaster


def test_neighbours_are_of_one_cluster_whenever_they_came() -> None:
    forecaster = lined_up()
    for node in range(4):
        forecaster.see(60_000.0 + 10.0 * node, joined=[node], left=())

    assert len({forecaster.cluster(node) for node in range(4)}) == 1


def test_what_was_foretold_is_held_against_those_who_were_there_then() -> None:
    alone, joined = lined_up(), lined_up()
    for forecaster, late in ((alone, []), (joined, [1])):
        forecaster.see(60_400.0, joined=[0], left=())
        forecaster.see(60_500.0, joined=late, left=())
        forecaster.see(60_600.0, joined=(), left=[0])
        forecaster.see(61_000.0, joined=(), left=())

    assert joined.cluster(1) == joined.cluster(20)
    assert joined.to_state()["calibration"] == alone.to_state()["calibration"]


def test_a_cluster_in_line_has_no_more_nodes_than_leave_together() -> None:
    forecaster = lined_up()
    for node in range(20):
        forecaster.see(60_000.0 + 10.0 * node, joined=[node], left=())

    assert {len(forecaster.members(forecaster.cluster(n))) for n in range(20)} == {5, 8}


def turned(node: int) -> int:
    """Return the place of *node* where the first twenty have another order."""
    return 7 * node % 20 if node < 20 else node


def test_who_comes_at_once_is_lined_up_by_place_and_not_by_number() -> None:
    runs = []
    for place in (int, turned):
        forecaster = lined_up(place)
        forecaster.see(60_100.0, joined=range(20), left=())
        groups = {forecaster.cluster(n): set[int]() for n in range(20)}
        for node in range(20):
            groups[forecaster.cluster(node)].add(place(node))
        runs.append(sorted(map(sorted, groups.values())))

    assert runs[0] == runs[1]


def test_the_end_that_leaves_first_has_the_shorter_life() -> None:
    forecaster = lined_up()
    forecaster.see(60_100.0, joined=[*range(20), *range(40, 60)], left=())
    low, high = (forecaster.prospect(forecaster.cluster(n)) for n in (0, 59))

    assert low.life_s < high.life_s
    assert low.hit > high.hit
    assert forecaster.survival(0, 600.0) < forecaster.survival(59, 600.0)


def test_who_comes_between_two_clusters_joins_the_larger() -> None:
    forecaster = lined_up()
    forecaster.forget_pool()
    forecaster.see(60_100.0, joined=[*range(8), 9], left=())
    forecaster.see(60_200.0, joined=[], left=[5, 6, 7])
    forecaster.see(60_300.0, joined=[8], left=())

    assert forecaster.cluster(4) != forecaster.cluster(9)
    assert forecaster.cluster(8) == forecaster.cluster(4)


def test_a_cluster_that_was_joined_is_another_one_to_what_is_expected() -> None:
    asked, other = lined_up(), lined_up()
    for forecaster in (asked, other):
        forecaster.see(60_100.0, joined=[0], left=())
        forecaster.see(60_200.0, joined=(), left=())
    asked.prospect(asked.cluster(0))
    for forecaster in (asked, other):
        forecaster.see(60_201.0, joined=[1], left=())

    assert asked.prospect(asked.cluster(0)) == other.prospect(other.cluster(0))
