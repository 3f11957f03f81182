"""Every kind of world keeps the same promises, and a wrong one is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from freetrain.elastic import WorldMismatchError
from freetrain.elastic.contract import Launch, read_launch
from freetrain.elastic.world import LoneWorld, find_world
from tests.elastic.threads import on_every_rank
from tests.elastic.world_contract import check_world

if TYPE_CHECKING:
    from tests.elastic.launching import Stand


def test_a_world_of_one_keeps_the_contract() -> None:
    check_world(LoneWorld())


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_world_of_threads_keeps_the_contract(size: int) -> None:
    on_every_rank(size, check_world)


@pytest.mark.parametrize("size", [2, 3])
def test_a_world_of_mpi_ranks_keeps_the_contract(mpi_stand: Stand, size: int) -> None:
    world = mpi_stand.launch(size, 1, "-m", "tests.elastic.world_contract")

    assert world.wait() == 0, world.log.read_text()


@pytest.mark.parametrize(
    "variables",
    [
        {"FREETRAIN_WORLD_SIZE": "4"},
        {"SLURM_STEP_NUM_TASKS": "4"},
        {"WORLD_SIZE": "2"},
    ],
)
def test_a_launcher_that_started_more_ranks_than_there_are_is_refused(
    variables: dict[str, str],
) -> None:
    with pytest.raises(
        WorldMismatchError, match=r"=\d.*world of 1.*Nothing was trained"
    ):
        find_world(read_launch(variables), variables)


def test_one_process_without_any_launcher_is_a_world_of_one() -> None:
    assert find_world(Launch(), {}).size == 1


def test_a_world_of_the_program_s_own_is_held_to_what_was_announced() -> None:
    environment = {"FREETRAIN_WORLD_SIZE": "1", "SLURM_STEP_NUM_TASKS": "9"}
    mine = LoneWorld()

    assert find_world(read_launch(environment), environment, given=mine) is mine

    with pytest.raises(WorldMismatchError, match="FREETRAIN_WORLD_SIZE=2"):
        find_world(Launch(world_size=2), {}, given=mine)


def test_ranks_bound_to_another_mpi_refuse_to_train(mpi_stand: Stand) -> None:
    # What such ranks see: their own library knows nothing of the launcher.
    world = mpi_stand.launch(2, 1, FREETRAIN_WORLD_SIZE="4")

    assert world.wait() != 0
    log = world.log.read_text()
    assert "FREETRAIN_WORLD_SIZE=4" in log
    assert "world of 2 (mpi4py with " in log
    assert not mpi_stand.checkpoints()
    assert mpi_stand.outcome(1)["outcome"] == "failed"
