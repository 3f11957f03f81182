"""Every sample once an epoch, whatever the worlds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain.elastic import Position, ProgramError
from freetrain.elastic.sampler import Plan, Sampler, order_of_epoch

if TYPE_CHECKING:
    from freetrain.elastic import Batch

plans = st.builds(
    Plan,
    samples=st.integers(1, 60),
    global_batch=st.integers(1, 70),
    epochs=st.integers(0, 3),
    seed=st.integers(0, 2**64),
    chunks=st.integers(1, 9),
)


def walk(plan: Plan, sizes: list[int]) -> list[list[Batch]]:
    """Every step's batch, as each rank of a world of the next size sees it."""
    position = Position()
    steps: list[list[Batch]] = []
    while True:
        size = sizes[len(steps) % len(sizes)]
        seen = [
            Sampler(plan, rank=r, size=size).batch_at(position) for r in range(size)
        ]
        batches = [batch for batch in seen if batch is not None]
        if not batches:
            return steps
        assert len(batches) == size
        steps.append(batches)
        position = batches[0].after


@given(plans, st.lists(st.integers(1, 7), min_size=1, max_size=5))
def test_every_sample_is_used_once_an_epoch_whatever_the_worlds(
    plan: Plan, sizes: list[int]
) -> None:
    used = np.zeros((plan.epochs, plan.samples), dtype=np.int64)

    steps = walk(plan, sizes)

    for batches in steps:
        for batch in batches:
            np.add.at(used[batch.epoch], batch.mine.indices, 1)
    assert (used == 1).all()
    assert len(steps) == plan.steps
    assert {batch.total_steps for seen in steps for batch in seen} <= {len(steps)}


@given(plans, st.lists(st.integers(1, 7), min_size=1, max_size=5))
def test_the_batches_do_not_depend_on_the_worlds(plan: Plan, sizes: list[int]) -> None:
    changing = [batches[0].indices.tolist() for batches in walk(plan, sizes)]

    assert changing == [batches[0].indices.tolist() for batches in walk(plan, [1])]


@given(plans)
def test_positions_count_steps_samples_and_epochs(plan: Plan) -> None:
    last = walk(plan, [1])[-1][0].after if plan.epochs else Position()

    samples = plan.epochs * plan.samples
    assert last == Position(
        step=plan.steps, samples=samples, epoch=plan.epochs, offset=0
    )


@given(plans)
def test_only_the_last_batch_of_an_epoch_says_so(plan: Plan) -> None:
    flags = [batches[0].last_of_epoch for batches in walk(plan, [1])]

    assert sum(flags) == plan.epochs
    assert (
        flags[plan.steps_per_epoch - 1 :: plan.steps_per_epoch] == [True] * plan.epochs
    )


@given(plans)
def test_chunks_make_up_the_batch_and_none_is_empty(plan: Plan) -> None:
    for batches in walk(plan, [1]):
        chunks = [chunk.indices for chunk in batches[0].chunks]

        assert all(len(chunk) for chunk in chunks)
        assert np.concatenate(chunks).tolist() == batches[0].indices.tolist()


def test_a_chunk_s_random_numbers_are_its_own_and_the_same_in_every_world() -> None:
    plan = Plan(samples=20, global_batch=10, epochs=2)
    alone = [b[0].chunks[1].generator().random() for b in walk(plan, [1])]
    spread = [b[2].chunks[1].generator().random() for b in walk(plan, [3])]

    assert alone == spread
    assert len(set(alone)) == len(alone)


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = [order_of_epoch(50, seed, epoch) for seed in (0, 1) for epoch in (0, 1)]

    assert len({tuple(order.tolist()) for order in orders}) == 4


def test_the_order_is_the_same_for_ever() -> None:
    # Half an epoch may be trained under another NumPy: these must never change.
    assert order_of_epoch(10, 3, 1).tolist() == [5, 8, 9, 6, 3, 7, 0, 1, 2, 4]


def test_a_rank_beyond_the_chunks_has_nothing_to_do() -> None:
    batch = Sampler(Plan(2, 2, 1), rank=0, size=5).batch_at(Position())

    assert batch is not None
    assert batch.mine.indices.tolist() == []


@pytest.mark.parametrize("name", ["samples", "global_batch", "chunks"])
def test_a_plan_without_anything_to_do_is_refused(name: str) -> None:
    numbers = {"samples": 5, "global_batch": 5, "epochs": 1, "chunks": 5}

    with pytest.raises(ProgramError, match=f"{name} is 0 and must be 1 or more"):
        Plan(**(numbers | {name: 0}))
