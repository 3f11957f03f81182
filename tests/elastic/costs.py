"""What the runtime costs on this machine; medians.

Run as ``python -m tests.elastic.costs``, and under ``mpirun -n 4`` for what ranks pay
to agree and to add up.
"""

import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np

from freetrain.elastic import Checkpoint, Position, World, read_checkpoint
from freetrain.elastic.batches import (
    Sampler,
    order_of_epoch,
    sum_exactly,
    sum_quickly,
)
from freetrain.elastic.checkpoint import CheckpointStore
from freetrain.elastic.contract import Stop, StopFile, read_launch
from freetrain.elastic.files import Clock, RunDir
from freetrain.elastic.fragment import Agreement
from freetrain.elastic.world import find_world

CLOCK = Clock()
CHUNKS = 16
VECTOR_LENGTHS = (1_000, 100_000, 1_000_000)
STATE_BYTES = (10**5, 10**7, 10**8)


def median_s(work: Callable[[], object], repeats: int = 9) -> float:
    taken = []
    for _ in range(repeats):
        begin_s = CLOCK.elapsed_s()
        work()
        taken.append(CLOCK.elapsed_s() - begin_s)
    return statistics.median(taken)


def say(world: World, what: str, cost_s: float) -> None:
    if world.rank == 0:
        sys.stdout.write(f"{what:58s} {cost_s * 1e3:10.3f} ms\n")


def agreeing(world: World) -> None:
    agreement = Agreement(world, CLOCK)
    cost_s = median_s(lambda: agreement.agree(Stop.NO, commit=False), 201)
    say(world, f"agreement, {world.size} ranks", cost_s)


def adding_up(world: World) -> None:
    numbers = {"samples": 64, "global_batch": 64, "epochs": 1, "chunks": CHUNKS}
    sampler = Sampler(**numbers, rank=world.rank, size=world.size)
    batch = sampler.batch_at(Position())
    assert batch is not None
    for length in VECTOR_LENGTHS:
        ready = partial(lambda sums, _chunk: sums, (np.ones(length),))
        for name, add_up in (("exact", sum_exactly), ("quick", sum_quickly)):
            cost_s = median_s(partial(add_up, world, batch, ready))
            say(world, f"{name} sum of {length:,} numbers, {CHUNKS} chunks", cost_s)


def committing(world: World, run: RunDir) -> None:
    store = CheckpointStore(run, generation=1)
    store.claim()
    steps = count()
    for size_bytes in STATE_BYTES:
        state = {"weights": np.random.default_rng(1).random(size_bytes // 8)}

        def commit(state: dict[str, np.ndarray] = state) -> None:
            store.commit(Checkpoint(1, Position(step=next(steps)), {}, state))

        say(world, f"commit of {size_bytes:,} bytes", median_s(commit, 5))
        content = run.committed()[-1].path.read_bytes()
        cost_s = median_s(partial(read_checkpoint, content), 5)
        say(world, f"check and decode {size_bytes:,} bytes", cost_s)


def main() -> None:
    world = find_world(read_launch(os.environ), os.environ)
    agreeing(world)
    adding_up(world)
    if world.size == 1:
        with tempfile.TemporaryDirectory() as name:
            run = RunDir(Path(name))
            committing(world, run)
            file = StopFile(run.stop_request(1), every_s=0, clock=CLOCK)
            say(world, "look for the control file", median_s(file.is_there, 201))
        cost_s = median_s(lambda: order_of_epoch(1_281_167, 1, 1), 3)
        say(world, "order of an epoch of 1,281,167 samples", cost_s)


if __name__ == "__main__":
    main()
