"""The pool over time, and the nodes now."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.errors import UsageError
from freetrain.replay.pool import NO_NODES, NodePool, Nodes, PoolEvent, PoolTimeline
from tests.replay.worlds import pools, run, trace_of

NODES = 40


def test_intervals_of_the_first_nodes_make_events_even_where_nothing_moves() -> None:
    trace = trace_of({0: [(0, 10), (10, 20)], 1: [(3, 7)]})

    timeline = PoolTimeline.from_trace(trace, nodes=1)

    assert timeline.node_names == ("n0",)
    assert timeline.times_s.tolist() == [0, 10, 20]
    assert list(timeline.events())[1] == PoolEvent(10, joined=NO_NODES, left=NO_NODES)


def test_one_event_past_the_end_is_kept_for_the_published_accounting() -> None:
    day_s = 86_400.0
    trace = trace_of({0: [(0, day_s), (day_s + 5, day_s + 9), (day_s + 11, 9e9)]})

    timeline = PoolTimeline.from_trace(trace, days=1)

    assert timeline.times_s.tolist() == [0, day_s, day_s + 5]
    assert timeline.horizon_s == day_s


@given(pools(), st.integers(0, 40))
def test_moves_played_forward_give_who_is_idle(
    pool: dict[int, list[tuple[float, float]]], start_s: int
) -> None:
    trace = trace_of(pool)
    if start_s >= trace.end_s.max():
        return

    idle: set[int] = set()
    for event in PoolTimeline.from_trace(trace, start_s=start_s).events():
        assert not idle & set(event.joined)
        assert idle >= set(event.left)
        assert list(event.joined) == sorted(event.joined)
        idle = (idle | set(event.joined)) - set(event.left)
        now_s = event.time_s + start_s
        at_now = {n for n, own in pool.items() if any(a <= now_s < b for a, b in own)}
        assert idle == at_now


@pytest.mark.parametrize(
    ("cut", "why"),
    [
        ({"nodes": 0}, "0 of them cannot be replayed"),
        ({"nodes": 3}, "3 of them cannot be replayed"),
        ({"days": 0.0}, "has no length"),
        ({"days": float("nan")}, "has no length"),
        ({"start_s": 20.0}, "nothing in it"),
        ({"start_s": float("nan")}, "nothing in it"),
    ],
)
def test_a_cut_that_leaves_nothing_is_refused(cut: dict[str, Any], why: str) -> None:
    trace = trace_of({0: [(0, 10)], 1: [(5, 20)]})

    with pytest.raises(UsageError, match=why):
        PoolTimeline.from_trace(trace, **cut)
    with pytest.raises(UsageError, match="nothing in it"):
        PoolTimeline.from_trace(trace_of({}, nodes=2))


@given(st.lists(st.sets(st.integers(0, NODES - 1)), max_size=12), st.randoms())
def test_nodes_in_ones_and_in_bulk_are_where_they_were_put(
    batches: list[set[int]], chance: random.Random
) -> None:
    pool, who = NodePool(), run()
    idle: set[int] = set()
    held: set[int] = set()
    for batch in batches:
        joining = batch - idle
        pool.join(Nodes.of(sorted(joining)))
        idle |= joining
        taken = batch & (idle - held)
        pool.take(who, sorted(taken))
        held |= taken
        dropped = {node for node in held if chance.random() < 0.3}
        pool.drop(who, sorted(dropped))
        held -= dropped
        left = {node for node in idle if chance.random() < 0.3}
        hit = pool.leave(Nodes.of(sorted(left)))
        assert bool(hit) == bool(left & held)
        idle, held = idle - left, held - left

        assert who.held == held == {n for n in range(NODES) if pool.holders([n])}
        assert list(pool.free) == sorted(idle - held)
        assert (pool.idle_nodes, pool.used_nodes) == (len(idle), len(held))


@pytest.mark.parametrize("wanted", [(3,), (0, 3), (*range(20), 30)])
def test_a_node_that_is_not_free_cannot_be_taken(wanted: tuple[int, ...]) -> None:
    pool = NodePool()
    pool.join(Nodes.of([0, 1, 2, *range(4, 25)]))

    with pytest.raises(ValueError, match="not free"):
        pool.take(run(), wanted)
