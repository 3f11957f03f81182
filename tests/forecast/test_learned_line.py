"""What nodes in a line change in what is learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from freetrain.lookahead.affinity import Affinity
from freetrain.lookahead.learned import LearnedForecaster

if TYPE_CHECKING:
    from collections.abc import Callable

HORIZON_S = 400.0


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
