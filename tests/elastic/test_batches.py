"""Every sample once an epoch, and sums to the last bit, whatever the worlds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.elastic import Batch, Chunk, Position, ProgramError, World
from freetrain.elastic.batches import (
    Sampler,
    order_of_epoch,
    stable_order,
    sum_exactly,
    sum_quickly,
)
from freetrain.elastic.world import LoneWorld
from tests.elastic.threads import on_every_rank

trainings = st.fixed_dictionaries(
    {
        "samples": st.integers(1, 60),
        "global_batch": st.integers(1, 70),
        "epochs": st.integers(0, 3),
        "seed": st.integers(0, 2**64),
        "chunks": st.integers(1, 19),
    }
)
world_sizes = st.lists(st.integers(1, 7), min_size=1, max_size=5)


def sampler(training: dict[str, int], rank: int = 0, size: int = 1) -> Sampler:
    numbers = {"samples": 20, "global_batch": 10, "epochs": 1} | training
    return Sampler(**numbers, rank=rank, size=size)


def walk(training: dict[str, int], sizes: list[int]) -> list[list[Batch]]:
    """Every step's batch, as each rank of a world of the next size sees it."""
    position = Position()
    steps: list[list[Batch]] = []
    while True:
        size = sizes[len(steps) % len(sizes)]
        ranks = [sampler(training, r, size).batch_at(position) for r in range(size)]
        batches = [batch for batch in ranks if batch is not None]
        if not batches:
            return steps
        assert len(batches) == size
        steps.append(batches)
        position = batches[0].after


@given(trainings, world_sizes)
def test_every_sample_is_used_once_an_epoch_in_batches_that_no_world_changes(
    training: dict[str, int], sizes: list[int]
) -> None:
    used = np.zeros((training["epochs"], training["samples"]), dtype=np.int64)

    steps = walk(training, sizes)

    for batches in steps:
        for batch in batches:
            np.add.at(used[batch.epoch], batch.mine.indices, 1)
    assert (used == 1).all()
    assert len(steps) == sampler(training).steps
    assert {batch.total_steps for step in steps for batch in step} <= {len(steps)}
    alone = [batches[0].indices.tolist() for batches in walk(training, [1])]
    assert [batches[0].indices.tolist() for batches in steps] == alone


@given(trainings)
def test_positions_ends_of_epochs_and_chunks_fit_the_training(
    training: dict[str, int],
) -> None:
    epochs, per_epoch = training["epochs"], sampler(training).steps_per_epoch
    batches = [ranks[0] for ranks in walk(training, [1])]

    assert (batches[-1].after if batches else Position()) == Position(
        step=len(batches), samples=epochs * training["samples"], epoch=epochs, offset=0
    )
    ends = [batch.last_of_epoch for batch in batches]
    assert sum(ends) == epochs
    assert ends[per_epoch - 1 :: per_epoch] == [True] * epochs
    for batch in batches:
        chunks = [chunk.indices for chunk in batch.chunks]
        assert all(len(chunk) for chunk in chunks)
        assert np.concatenate(chunks).tolist() == batch.indices.tolist()


def test_a_chunk_s_random_numbers_are_its_own_and_the_same_in_every_world() -> None:
    alone = [b[0].chunks[1].generator().random() for b in walk({"epochs": 2}, [1])]
    spread = [b[2].chunks[1].generator().random() for b in walk({"epochs": 2}, [3])]

    assert alone == spread
    assert len(set(alone)) == len(alone)


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = [order_of_epoch(50, seed, epoch) for seed in (0, 1) for epoch in (0, 1)]

    assert len({tuple(order.tolist()) for order in orders}) == 4


def test_the_order_is_the_same_for_ever() -> None:
    # Half an epoch may be trained under another NumPy: these must never change.
    assert order_of_epoch(10, 3, 1).tolist() == [5, 8, 9, 6, 3, 7, 0, 1, 2, 4]


@given(
    numbers=st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 3), max_size=60),
    repeats=st.integers(1, 50),
)
def test_samples_with_equal_numbers_stand_in_their_own_order(
    numbers: list[int], repeats: int
) -> None:
    drawn = np.array(numbers * repeats, dtype=np.uint64)
    assert stable_order(drawn).tolist() == sorted(
        range(len(drawn)), key=drawn.__getitem__
    )


@pytest.mark.parametrize("name", ["samples", "global_batch", "chunks"])
def test_a_training_without_anything_to_do_is_refused(name: str) -> None:
    with pytest.raises(ProgramError, match=f"{name} is 0 and must be 1 or more"):
        sampler({name: 0})


def first_batch(training: dict[str, int], world: World) -> Batch:
    batch = sampler(training, world.rank, world.size).batch_at(Position())
    assert batch is not None
    return batch


def awkward_sums(chunk: Chunk) -> tuple[float, np.ndarray, np.ndarray]:
    # Magnitudes far apart: any other order of adding gives other last bits.
    values = np.sin(chunk.indices + 1.0) * 10.0 ** (chunk.indices % 17 - 8)
    return values.sum(), np.outer(values, [1 / 3, 7.0]).sum(axis=0), np.empty((0, 2))


steps_of_training = trainings.map(lambda training: training | {"epochs": 1})


@settings(max_examples=60, deadline=None)
@given(steps_of_training, st.integers(2, 7))
def test_exact_sums_are_the_same_to_the_bit_in_every_world_and_quick_ones_nearly(
    training: dict[str, int], size: int
) -> None:
    lone = LoneWorld()
    alone = sum_exactly(lone, first_batch(training, lone), awkward_sums)

    def sums(world: World) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
        batch = first_batch(training, world)
        return (
            sum_exactly(world, batch, awkward_sums),
            sum_quickly(world, batch, awkward_sums),
        )

    for exact, quick in (*on_every_rank(size, sums), sums(lone)):
        assert [part.tobytes() for part in exact] == [part.tobytes() for part in alone]
        assert [part.shape for part in exact] == [(), (2,), (0, 2)]
        for part, whole in zip(quick, alone, strict=True):
            np.testing.assert_allclose(part, whole, rtol=1e-9, atol=1e-4)


def test_the_order_of_adding_is_the_same_for_ever() -> None:
    # Half an epoch may be trained under another FreeTrain: this must never change.
    def values(indices: np.ndarray) -> np.ndarray:
        return np.asarray((indices * 7 + 1) / 7)

    lone = LoneWorld()
    batch = first_batch({"samples": 7, "global_batch": 7, "chunks": 7}, lone)
    a, b, c, d, e, f, g = values(batch.indices)

    (found,) = sum_exactly(lone, batch, lambda chunk: (values(chunk.indices)[0],))

    assert found == ((a + b) + (c + d)) + ((e + f) + g)
    assert found != (a + (b + c)) + ((d + e) + (f + g))


def test_sums_whose_shape_changes_are_refused() -> None:
    batch = first_batch({"samples": 10, "chunks": 3}, LoneWorld())

    with pytest.raises(ProgramError, match="shapes"):
        sum_exactly(LoneWorld(), batch, lambda chunk: (chunk.indices * 1.0,))
