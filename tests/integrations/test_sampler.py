"""The sampler's property: exactly once, whatever worlds train and where they stop."""

from collections import Counter
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetrain import elastic

torch = pytest.importorskip("torch", reason="no PyTorch here (pip install torch)")
integration: Any = pytest.importorskip("freetrain.integrations.torch")

BATCH = 12


def sampler(samples: int, rank: int = 0, size: int = 1, pieces: int = 1) -> Any:
    return integration.ElasticSampler(
        samples, global_batch=BATCH, seed=3, pieces=pieces, rank=rank, size=size
    )


@given(
    samples=st.integers(BATCH, 90),
    worlds=st.lists(
        st.tuples(
            st.integers(1, 4),  # ranks
            st.integers(1, 3),  # pieces
            st.integers(0, 9),  # batches of each rank before it is stopped
        ),
        max_size=8,
    ),
)
def test_each_step_is_used_once_by_whichever_worlds_train_it(
    samples: int, worlds: list[tuple[int, int, int]]
) -> None:
    state = sampler(samples).state_dict()
    used: dict[tuple[int, int], list[int]] = {}
    for size, pieces, batches in (*worlds, (1, 1, 0)):
        ranks = [sampler(samples, rank, size, pieces) for rank in range(size)]
        for made in ranks:
            made.load_state_dict(state)
        loaders = [iter(made) for made in ranks]
        step: list[int] = []
        for number in range(1, batches + 1):
            try:
                step += [index for loader in loaders for index in next(loader)]
            except StopIteration:  # an epoch is over; the next one begins
                assert len({str(made.state_dict()) for made in ranks}) == 1
                break
            if number % pieces == 0:
                used[state["epoch"], state["offset"]] = step
                state, step = ranks[0].state_dict(), []
                assert all(made.state_dict() == state for made in ranks)

    epochs: dict[int, Counter[int]] = {}
    for (epoch, offset), indices in sorted(used.items()):
        assert len(indices) == BATCH
        alone = sampler(samples)
        alone.load_state_dict({"epoch": epoch, "offset": offset})
        assert sorted(indices) == sorted(next(iter(alone)))
        epochs.setdefault(epoch, Counter()).update(indices)
    assert all(count == 1 for epoch in epochs.values() for count in epoch.values())
    for epoch, seen in epochs.items():
        if epoch < state["epoch"]:
            assert seen.total() == samples // BATCH * BATCH


def test_each_epoch_has_another_order_and_leaves_others_out() -> None:
    made = sampler(30)

    first, second = list(made), list(made)

    assert len(made) == len(first) == len(second) == 2
    assert first != second
    assert {*chain(*first)} != {*chain(*second)}


def test_a_share_is_even_and_its_pieces_are_too() -> None:
    shares = [list(sampler(24, rank, 3, pieces=2)) for rank in range(3)]

    assert [[len(piece) for piece in share] for share in shares] == [[2] * 4] * 3


def test_a_world_too_large_for_the_batch_is_refused_with_the_way_out() -> None:
    with pytest.raises(elastic.LaunchError, match="`sizes` in \\[nodes\\]"):
        sampler(30, size=13)


def test_too_few_samples_for_a_batch_are_refused() -> None:
    with pytest.raises(elastic.ProgramError, match="no step"):
        sampler(BATCH - 1)


@pytest.mark.filterwarnings("ignore:.set_vital:UserWarning")  # by torchdata 0.11
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_stateful_data_loader_goes_on_in_a_world_of_another_size(
    size: int, workers: int
) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def loader(rank: int, ranks: int) -> Any:
        made = sampler(60, rank, ranks)
        return stateful.StatefulDataLoader(
            range(60), batch_sampler=made, num_workers=workers
        )

    first = loader(0, 1)
    read = iter(first)
    used = [index for _ in range(2) for index in next(read).tolist()]
    state = first.state_dict()
    for rank in range(size):
        later = loader(rank, size)
        later.load_state_dict(state)
        used += [index for batch in later for index in batch.tolist()]

    assert sorted(used) == list(range(60))
