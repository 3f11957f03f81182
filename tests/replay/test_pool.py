import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.replay.accounting import Run, usable_rates
from freetrain.replay.policies.base import Change, View
from freetrain.replay.policies.registry import changes_to
from freetrain.replay.pool import NodePool
from tests.replay.worlds import linear, trainer

NODES = 40


def run(held: set[int] | None = None) -> Run:
    return Run(0, trainer(), usable_rates(linear()), 0.0, held=held or set())


@given(st.lists(st.sets(st.integers(0, NODES - 1)), max_size=12), st.randoms())
def test_nodes_in_ones_and_in_bulk_are_where_they_were_put(
    batches: list[set[int]], chance: random.Random
) -> None:
    pool, who = NodePool(NODES), run()
    idle: set[int] = set()
    held: set[int] = set()
    for now, batch in enumerate(batches):
        joining = batch - idle
        pool.join(sorted(joining), float(now))
        idle |= joining
        taken = batch & (idle - held)
        pool.take(who, sorted(taken, reverse=chance.random() < 0.5))
        held |= taken
        dropped = {node for node in held if chance.random() < 0.3}
        pool.drop(who, sorted(dropped))
        held -= dropped
        left = {node for node in idle if chance.random() < 0.3}
        hit = pool.leave(sorted(left))
        assert bool(hit) == bool(left & held)
        idle, held = idle - left, held - left

        assert who.held == held
        assert pool.free == sorted(idle - held)
        assert (pool.idle_nodes, pool.used_nodes) == (len(idle), len(held))


@pytest.mark.parametrize("wanted", [(3,), (0, 3), (*range(20), 30)])
def test_a_node_that_is_not_free_cannot_be_taken(wanted: tuple[int, ...]) -> None:
    pool = NodePool(NODES)
    pool.join([0, 1, 2, *range(4, 25)], 0.0)

    with pytest.raises(ValueError, match="not free"):
        pool.take(run(), wanted)


def test_who_shrinks_drops_its_lowest_and_who_grows_takes_the_highest_free() -> None:
    grows, shrinks, stays = run({9}), run({2, 5, 7}), run({4})
    view = View(
        now_s=0.0,
        trainers=[grows, shrinks, stays],
        free=[1, 6],
        idle_nodes=7,
        since_s=[],
        joined=(),
        left=(),
    )

    # 2 and 5 are dropped before anybody takes, so 6, 5 and 2 are the highest.
    assert changes_to([4, 1, 1], view) == (
        Change(0, take=(2, 5, 6)),
        Change(1, drop=(2, 5)),
    )
