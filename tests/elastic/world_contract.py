"""What every world must do; run in its ranks, whatever they are.

Run as ``mpirun -n 3 python -m tests.elastic.world_contract`` it checks MPI's.
"""

import os

import numpy as np

from freetrain.elastic import World
from freetrain.elastic.contract import read_launch
from freetrain.elastic.world import find_world


def check_world(world: World) -> None:
    """Check what ``World`` promises; collective."""
    _check_agreement(world)
    _check_broadcast(world)
    _check_exchange(world)
    _check_sums(world)


def _check_agreement(world: World) -> None:
    found = world.maxima(np.array([world.rank, -world.rank, 7], dtype=np.int64))
    assert found.tolist() == [world.size - 1, 0, 7]


def _check_broadcast(world: World) -> None:
    for payload in (b"", b"x", bytes(range(256)) * 1000):
        assert world.broadcast(payload if world.rank == 0 else b"other") == payload


def _check_exchange(world: World) -> None:
    # Rank r sends rank s r + s numbers, all of them 10 r + s.
    mine, ranks = world.rank, range(world.size)
    blocks = [np.full(mine + other, 10.0 * mine + other) for other in ranks]
    found = world.exchange(blocks, [mine + other for other in ranks])
    assert [len(block) for block in found] == [mine + other for other in ranks]
    for other in ranks:
        assert (found[other] == 10.0 * other + mine).all()


def _check_sums(world: World) -> None:
    ranks = range(world.size)
    part = np.full(world.rank, float(world.rank))
    joined = world.gather_everywhere(part, list(ranks))
    assert joined.tolist() == [float(r) for r in ranks for _ in range(r)]
    total = world.total(np.array([1.0, world.rank]))
    assert total.tolist() == [world.size, sum(ranks)]


if __name__ == "__main__":
    check_world(find_world(read_launch(os.environ), os.environ))
