from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from freetrain.lookahead.affinity_map import MOST_CELLS, MOST_NODES, affinity_map


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
