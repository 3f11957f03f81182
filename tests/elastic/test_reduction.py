"""Sums that are the same in every world."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freetrain.elastic import Position, ProgramError
from freetrain.elastic.sampler import Plan, Sampler
from freetrain.elastic.sums import sum_exactly, sum_quickly
from freetrain.elastic.world import LoneWorld
from tests.elastic.threads import on_every_rank

if TYPE_CHECKING:
    from freetrain.elastic import Batch, Chunk, World


def first_batch(plan: Plan, world: World) -> Batch:
    batch = Sampler(plan, rank=world.rank, size=world.size).batch_at(Position())
    assert batch is not None
    return batch


def awkward_sums(chunk: Chunk) -> tuple[float, np.ndarray, np.ndarray]:
    # Magnitudes far apart: any other order of adding gives other last bits.
    values = np.sin(chunk.indices + 1.0) * 10.0 ** (chunk.indices % 17 - 8)
    return values.sum(), np.outer(values, [1 / 3, 7.0]).sum(axis=0), np.empty((0, 2))


plans = st.builds(
    Plan,
    samples=st.integers(1, 64),
    global_batch=st.integers(1, 64),
    epochs=st.just(1),
    chunks=st.integers(1, 19),
)


@settings(max_examples=60, deadline=None)
@given(plans, st.integers(2, 7))
def test_exact_sums_are_the_same_to_the_bit_in_every_world(
    plan: Plan, size: int
) -> None:
    alone = sum_exactly(LoneWorld(), first_batch(plan, LoneWorld()), awkward_sums)

    everywhere = on_every_rank(
        size, lambda world: sum_exactly(world, first_batch(plan, world), awkward_sums)
    )

    for found in everywhere:
        assert [one.tobytes() for one in found] == [one.tobytes() for one in alone]
        assert [one.shape for one in found] == [(), (2,), (0, 2)]


@settings(max_examples=20, deadline=None)
@given(plans, st.integers(1, 5))
def test_quick_sums_are_the_same_within_rounding(plan: Plan, size: int) -> None:
    alone = sum_exactly(LoneWorld(), first_batch(plan, LoneWorld()), awkward_sums)

    everywhere = on_every_rank(
        size, lambda world: sum_quickly(world, first_batch(plan, world), awkward_sums)
    )

    for found in everywhere:
        for one, other in zip(found, alone, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-4)


def test_the_plain_order_would_not_have_given_the_same_bits() -> None:
    plan = Plan(64, 64, 1, chunks=16)

    found = {
        on_every_rank(
            size,
            lambda world: sum_quickly(world, first_batch(plan, world), awkward_sums),
        )[0][0].tobytes()
        for size in (1, 2, 3, 5)
    }

    assert len(found) > 1


def test_sums_whose_shape_changes_are_refused() -> None:
    batch = first_batch(Plan(10, 10, 1, chunks=3), LoneWorld())

    with pytest.raises(ProgramError, match="shapes"):
        sum_exactly(LoneWorld(), batch, lambda chunk: (chunk.indices * 1.0,))
