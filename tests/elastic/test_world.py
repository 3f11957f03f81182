"""Every kind of world keeps the same contract, and its ranks agree at one pace."""

from pathlib import Path

import pytest

from freetrain.elastic import World, WorldMismatchError
from freetrain.elastic.contract import Launch, Stop, read_launch
from freetrain.elastic.files import Clock
from freetrain.elastic.fragment import Agreement
from freetrain.elastic.world import LoneWorld, find_world, is_loaded_mpi_found
from tests.elastic.launching import Stand
from tests.elastic.threads import ThreadWorld, on_every_rank
from tests.elastic.world_contract import check_world


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
    ("name", "size"),
    [("FREETRAIN_WORLD_SIZE", 4), ("SLURM_STEP_NUM_TASKS", 4), ("WORLD_SIZE", 2)],
)
def test_a_launcher_that_started_more_ranks_than_there_are_is_refused(
    name: str, size: int
) -> None:
    variables = {name: str(size)}

    with pytest.raises(
        WorldMismatchError, match=rf"{name}=\d.*world of 1.*Nothing was trained"
    ):
        find_world(read_launch(variables), variables)


def test_one_process_without_any_launcher_is_a_world_of_one() -> None:
    assert find_world(Launch(), {}).size == 1


def test_a_world_of_the_program_s_own_is_held_to_the_announced_size() -> None:
    environment = {"FREETRAIN_WORLD_SIZE": "1", "SLURM_STEP_NUM_TASKS": "9"}
    mine = LoneWorld()

    assert find_world(read_launch(environment), environment, given=mine) is mine

    with pytest.raises(WorldMismatchError, match="FREETRAIN_WORLD_SIZE=2"):
        find_world(Launch(world_size=2), {}, given=mine)


def test_ranks_bound_to_another_mpi_refuse_to_train(mpi_stand: Stand) -> None:
    # As such ranks see it: their own library knows nothing of the launcher.
    world = mpi_stand.launch(2, 1, FREETRAIN_WORLD_SIZE="4")

    assert world.wait() != 0
    log = world.log.read_text()
    assert "FREETRAIN_WORLD_SIZE=4" in log
    assert "world of 2 (mpi4py with " in log
    assert not mpi_stand.checkpoints()
    assert mpi_stand.outcome(1)["outcome"] == "failed"


def steps_between_agreements(world: World, step_s: float) -> list[int]:
    """The steps before each of the first three agreements."""
    now_s, steps = 50.0, 0
    counts: list[int] = []
    agreement = Agreement(world, Clock(elapsed_s=lambda: now_s))
    while len(counts) < 3:
        now_s += step_s
        steps += 1
        if agreement.is_due():
            agreement.agree(Stop.NO, commit=False)
            counts.append(steps)
            steps = 0
    return counts


@pytest.mark.parametrize(
    ("step_s", "steps"),
    [(10.0, 1), (0.05, 1), (0.024, 2), (0.0099, 5), (0.001, 49), (1e-6, 64), (0.0, 64)],
)
def test_ranks_agree_every_20th_of_a_second_and_every_64_steps_at_least(
    step_s: float, steps: int
) -> None:
    assert steps_between_agreements(LoneWorld(), step_s)[1:] == pytest.approx(
        [steps, steps], abs=1
    )


def test_the_slowest_rank_sets_the_pace_for_all_of_them() -> None:
    def work(world: ThreadWorld) -> list[int]:
        return steps_between_agreements(world, 0.0099 if world.rank == 1 else 1e-6)

    assert on_every_rank(3, work) == [[1, 5, 5]] * 3


def test_all_ranks_do_the_largest_wish_and_commit_for_one_of_them() -> None:
    def work(world: ThreadWorld) -> tuple[Stop, bool]:
        wanted = (Stop.NO, Stop.RESCALE, Stop.FOR_GOOD)[world.rank]
        return Agreement(world, Clock()).agree(wanted, commit=world.rank == 0)

    assert on_every_rank(3, work) == [(Stop.FOR_GOOD, True)] * 3


@pytest.mark.parametrize(
    ("search", "is_found"),
    [("", True), ("{own}", True), ("{none}:{own}", True), ("{other}:{own}", False)],
)
def test_a_spare_s_mpi_is_right_where_its_ranks_would_load_the_same(
    tmp_path: Path, search: str, *, is_found: bool
) -> None:
    folders = {name: tmp_path / name for name in ("own", "other", "none")}
    for name, folder in folders.items():
        folder.mkdir()
        if name != "none":
            (folder / "libmpi.so.40").touch()
    maps = tmp_path / "maps"
    maps.write_text(
        f"7f00-7f01 r-xp 00000000 fd:00 1   {folders['own']}/libmpi.so.40\n"
        "7f01-7f02 rw-p 00000000 00:00 0\n"
    )

    found = is_loaded_mpi_found(search.format(**folders), maps=maps)

    assert found is is_found


def test_without_a_loaded_mpi_nothing_can_be_wrong(tmp_path: Path) -> None:
    (tmp_path / "libmpi.so.40").touch()
    maps = tmp_path / "maps"
    maps.write_text("7f01-7f02 rw-p 00000000 00:00 0\n")
    assert is_loaded_mpi_found(str(tmp_path), maps=maps)
