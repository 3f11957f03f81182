"""One contract for all launchers, over three Slurm jobs on a real cluster."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import structs

from freetrain.state.files import AssignedLease
from tests.cluster.cluster import Cluster
from tests.cluster.waiting import wait_for
from tests.launch_live.trio import (
    HOSTILE,
    NAMES,
    REPOSITORY,
    Kind,
    Trio,
    kind_of,
    take_leases,
)

pytestmark = pytest.mark.slurm
LEASES = [f"uuid-of-n{number}-0" for number in (1, 2, 3)]


@pytest.fixture(scope="module")
def leases(
    cluster_of: Callable[..., Cluster], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, tuple[AssignedLease, ...]]]:
    """Three one-node jobs, held as long as the tests run."""
    cluster = cluster_of()
    yield cluster, take_leases(cluster, tmp_path_factory.mktemp("leases"))
    cluster.clear()


@pytest.fixture(params=NAMES)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    return kind_of(request.param, tmp_path)


def test_a_world_over_three_jobs_comes_up_trains_and_stops_when_asked(
    trio: Trio, kind: Kind
) -> None:
    world = trio.launch(trio.job(kind.launch, **kind.extra))

    ranks = trio.ranks(world, 3)
    world.ask_to_stop()

    assert trio.wait(world) == 0, trio.log()
    assert trio.outcome()["outcome"] == "rescaled"
    assert [rank["size"] for rank in ranks] == [3, 3, 3]
    assert sorted(rank["environment"]["FREETRAIN_LEASE"] for rank in ranks) == LEASES
    for rank in ranks:
        environment = rank["environment"]
        assert environment["FREETRAIN_WORLD"] == "digits/1"
        assert {n for n in environment if n.startswith("SLURM_")} == {"SLURM_CONF"}
        assert rank["argv"] == [HOSTILE]
        assert rank["cwd"] == str(REPOSITORY)
    assert {f"rank {n} of 3" for n in range(3)} <= set(trio.log().splitlines())
    assert not list(trio.folder.glob("called-*"))
    assert not (REPOSITORY / "hurt").exists()
    wait_for("no process of the world", lambda: not trio.marked())


def test_two_processes_on_each_node_are_one_world(trio: Trio, kind: Kind) -> None:
    if kind.name == "custom":
        pytest.skip("its command says how many processes a node has")
    launch = structs.replace(kind.launch, processes_per_node=2)
    world = trio.launch(trio.job(launch, **kind.extra), members=trio.members[:2])

    ranks = trio.ranks(world, 4)
    world.ask_to_stop()

    assert trio.wait(world) == 0, trio.log()
    leases = sorted(rank["environment"]["FREETRAIN_LEASE"] for rank in ranks)
    assert leases == [LEASES[0]] * 2 + [LEASES[1]] * 2


def test_a_program_without_the_library_gets_the_signal_that_it_wants(
    trio: Trio, kind: Kind
) -> None:
    if kind.name == "custom":
        pytest.skip("mpirun takes QUIT for itself, and nobody translates for custom")
    world = trio.launch(trio.job(kind.launch, "plain", **kind.extra))
    trio.ranks(world, 3)

    world.ask_to_stop()

    assert trio.wait(world) == 0, trio.log()
    assert sorted(path.name for path in trio.seen.glob("committed-*")) == [
        f"committed-{rank}" for rank in range(3)
    ]


def test_a_killed_world_leaves_nothing_once_its_marks_were_swept(
    trio: Trio, kind: Kind
) -> None:
    world = trio.launch(trio.job(kind.launch, **kind.extra))
    trio.ranks(world, 3)

    world.kill()

    assert trio.wait(world) < 0
    wait_for("nothing left", trio.swept)


def test_one_rank_s_death_ends_the_whole_world(trio: Trio, kind: Kind) -> None:
    world = trio.launch(trio.job(kind.launch, **kind.extra))
    ranks = trio.ranks(world, 3)

    os.kill(ranks[2]["pid"], signal.SIGKILL)

    assert trio.wait(world) != 0
    wait_for("nothing left", lambda: not trio.marked())


def test_ranks_on_the_head_itself_carry_its_lease_s_mark(trio: Trio) -> None:
    """Where the host has the node's name, as on real clusters, mpirun forks them."""
    kind = kind_of("open-mpi-5", trio.folder)
    mpirun = Path(sys.executable).parent / "mpirun"
    wrapper = trio.folder / "mpirun"
    wrapper.write_text(
        f'#!/bin/sh\nexec unshare --uts sh -c \'hostname n1 && exec "$0" "$@"\' '
        f'{mpirun} "$@"\n'
    )
    wrapper.chmod(0o755)
    launch = structs.replace(kind.launch, executable=str(wrapper))
    world = trio.launch(trio.job(launch, **kind.extra))

    ranks = trio.ranks(world, 3)
    world.ask_to_stop()

    assert trio.wait(world) == 0, trio.log()
    parents = {r["environment"]["FREETRAIN_LEASE"]: r["parent"] for r in ranks}
    assert parents == {LEASES[0]: "prterun", LEASES[1]: "prted", LEASES[2]: "prted"}


def test_an_mpi4py_of_another_mpi_is_refused_in_log_and_outcome(trio: Trio) -> None:
    open_mpi = kind_of("open-mpi-5", trio.folder)
    mpich = kind_of("mpich", trio.folder)
    world = trio.launch(trio.job(open_mpi.launch, **mpich.extra))

    assert trio.wait(world) != 0
    assert "bound to another MPI than the mpirun that started it" in trio.log()
    assert trio.outcome()["outcome"] == "failed"
    assert "world of 1" in trio.outcome()["message"]
