"""Holes are grouped by what ends them, and counted by how long they last."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from freetrain.cli.holes import (
    PartitionHoles,
    groups,
    idle_nodes_by_length,
    why_it_ends,
)
from slurm.holes import Hole, HoleEnd

NOW_S = 1_000.0
ENDS = st.none() | st.just(math.inf) | st.floats(NOW_S + 1.0, NOW_S + 1e6)


@st.composite
def idles(draw: st.DrawFn) -> PartitionHoles:
    ends = draw(st.lists(ENDS, max_size=12))
    kinds = st.sampled_from(HoleEnd)
    holes = tuple(
        Hole(f"n{number}", NOW_S, end_s, draw(kinds))
        for number, end_s in enumerate(ends)
    )
    return PartitionHoles(
        now_s=NOW_S, partition="p", margin_s=5.0, nodes=20, holes=holes, is_torn=False
    )


@given(idles())
def test_every_hole_is_in_one_group(idle: PartitionHoles) -> None:
    grouped = [hole for group in groups(idle) for hole in group]

    assert sorted(hole.node for hole in grouped) == sorted(h.node for h in idle.holes)


@given(idles())
def test_fewer_nodes_stay_idle_for_longer(idle: PartitionHoles) -> None:
    found = idle_nodes_by_length(idle)

    lengths_s, nodes = [s for s, _ in found], [n for _, n in found]
    assert lengths_s == sorted(lengths_s)
    assert nodes == sorted(set(nodes), reverse=True)
    ends_s = [hole.end_s for hole in idle.holes if hole.end_s is not None]
    assert nodes == [sum(end >= NOW_S + s for end in ends_s) for s in lengths_s]


def test_each_way_to_end_has_words() -> None:
    words = {why_it_ends(Hole("n", 0.0, 1.0, one, "7")) for one in HoleEnd}

    assert len(words) == len(HoleEnd)
