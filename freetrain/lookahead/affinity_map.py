"""A map of which nodes leave together, small enough for a page of a report."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

AffinityOf: TypeAlias = "Callable[[Sequence[int]], NDArray[np.float64]]"

MOST_NODES = 1_000
"""Ordering takes memory with the square of the nodes: 8 MB for these."""

MOST_CELLS = 100

LEAST_MEAN = 0.5
"""Mean affinity of two groups from which on they are one block."""


@dataclass(frozen=True, slots=True)
class AffinityBlock:
    """Nodes that leave together more often than not.

    Attributes:
        nodes: Their names, in the map's order.
        within: Mean affinity of pairs of them; None for a node alone.
        outside: Mean affinity to the map's other nodes; None where there are none.
    """

    nodes: tuple[str, ...]
    within: float | None
    outside: float | None


@dataclass(frozen=True, slots=True)
class AffinityMap:
    """Affinity of pairs of nodes, ordered so that nodes that leave together are close.

    Attributes:
        nodes_left: How many nodes ever left.
        cells: Names of the nodes of each row and column, in the map's order: a node
            a cell, or as many neighbours as it takes.
        affinity: Mean affinity of the pairs of two cells, 0 to 1, a row a cell; None
            for a node with itself.
        blocks: In the map's order.
    """

    nodes_left: int
    cells: tuple[tuple[str, ...], ...]
    affinity: tuple[tuple[float | None, ...], ...]
    blocks: tuple[AffinityBlock, ...]


def affinity_map(
    affinity_of: AffinityOf, left: Mapping[int, int], names: Sequence[str]
) -> AffinityMap | None:
    """Return the map of the nodes that left most often; None for fewer than two.

    Average linkage orders them: two groups come together at the mean affinity of
    their pairs, as a node joins a cluster of the forecaster.

    Args:
        affinity_of: Affinity by pair of nodes, symmetric, shape (nodes, nodes).
        left: How often each node left.
        names: Of the nodes, by number.
    """
    most = sorted(left, key=lambda node: (-left[node], node))[:MOST_NODES]
    if len(most) <= 1:
        return None
    nodes = sorted(most)
    affinity = affinity_of(nodes)
    order, block_of = _ordered(affinity)
    pairs = affinity[np.ix_(order, order)]
    in_order = [names[nodes[place]] for place in order]
    return AffinityMap(
        nodes_left=len(left),
        cells=tuple(tuple(in_order[a:b]) for a, b in pairwise(_edges(len(order)))),
        affinity=_cells(pairs),
        blocks=_blocks(pairs, block_of[order], in_order),
    )


def _ordered(
    affinity: NDArray[np.float64],
) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """Return the order of the nodes, and the block of each, both by place."""
    # SciPy takes 0.3 s to import, which forecasts without a report are spared.
    from scipy.cluster.hierarchy import fcluster, leaves_list, linkage  # noqa: PLC0415

    above = np.triu_indices(len(affinity), 1)
    tree = linkage(1.0 - affinity[above], "average")
    return leaves_list(tree), fcluster(tree, 1.0 - LEAST_MEAN, "distance")


def _edges(nodes: int) -> list[int]:
    cells = min(nodes, MOST_CELLS)
    return [nodes * cell // cells for cell in range(cells + 1)]


def _cells(pairs: NDArray[np.float64]) -> tuple[tuple[float | None, ...], ...]:
    """Return the mean of the pairs of two cells; no node is a pair with itself."""
    edges = _edges(len(pairs))
    others = pairs.copy()
    np.fill_diagonal(others, 0.0)
    starts = np.asarray(edges[:-1])
    sums = np.add.reduceat(np.add.reduceat(others, starts, axis=0), starts, axis=1)
    widths = np.diff(edges)
    counts = np.outer(widths, widths) - np.diag(widths)
    return tuple(
        tuple(float(s / c) if c else None for s, c in zip(*rows, strict=True))
        for rows in zip(sums, counts, strict=True)
    )


def _blocks(
    pairs: NDArray[np.float64], block_of: NDArray[np.int32], names: Sequence[str]
) -> tuple[AffinityBlock, ...]:
    changes = (np.flatnonzero(np.diff(block_of)) + 1).tolist()
    edges = [0, *changes, len(names)]
    return tuple(_block(pairs, names, a, b) for a, b in pairwise(edges))


def _block(
    pairs: NDArray[np.float64], names: Sequence[str], first: int, end: int
) -> AffinityBlock:
    nodes = end - first
    inner = pairs[first:end, first:end]
    among = float(inner.sum() - inner.trace())
    across = float(pairs[first:end].sum() - inner.sum())
    others = nodes * (len(names) - nodes)
    return AffinityBlock(
        nodes=tuple(names[first:end]),
        within=among / (nodes * (nodes - 1)) if nodes > 1 else None,
        outside=across / others if others else None,
    )
