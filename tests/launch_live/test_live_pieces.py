"""A world on pieces of nodes, two of them on one node, on a real cluster."""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec import structs

from freetrain.broker.lease import Intent, LeaseKey
from freetrain.config.job import NodeSettings
from freetrain.config.site import LeaseSettings, Site, requirement_on
from freetrain.state.files import AssignedLease, StateDir
from freetrain.tick.leases import request_for, shape_name, shape_of
from slurm.batch import LeaseRequest
from tests.cluster.cluster import Cluster
from tests.cluster.settings import Variant
from tests.cluster.site import Site as RealSite
from tests.cluster.site import whole_look
from tests.cluster.waiting import wait_for
from tests.launch_live.trio import Trio, kind_of
from tests.state.endings import a_lease

pytestmark = pytest.mark.slurm

NODES = NodeSettings(max_nodes=3, gpus_per_lease=2, gpu_type="a100")
LEASE = LeaseSettings(partition="freetrain")
PLACES = ("n1", "n1", "n2")


@pytest.fixture(scope="module")
def leases(
    cluster_of: Callable[..., Cluster], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, tuple[AssignedLease, ...]]]:
    """Two leases of two GPUs on n1, and one on n2, held as long as the tests run."""
    cluster = cluster_of(Variant.PARTS)
    site = RealSite(cluster, tmp_path_factory.mktemp("leases"), "freetrain")
    script = site.script("exec sleep 3600")
    held = []
    for place, node in enumerate(PLACES):
        request = replace(
            request_of(site),
            script=script,
            output="/dev/null",
            excluded=",".join(f"n{k}" for k in range(1, 9) if f"n{k}" != node),
        )
        job = site.wait_for_running(site.backend().submit(request).job_id)
        assert job.nodes == node
        held.append(a_lease(LeaseKey(f"piece-{place}", 0), node, job.job_id))
    yield cluster, tuple(held)
    cluster.clear()


def request_of(site: RealSite) -> LeaseRequest:
    """Return what a tick asks sbatch for, for a lease of such a trainer."""
    backend = site.backend()
    asked = requirement_on(
        NODES,
        LEASE,
        default_partition="main",
        nodes=whole_look(backend).nodes,
        sharing=backend.config().sharing,
    )
    settings = Site(state_directory=site.folder, lease=LEASE)
    intent = Intent(
        uuid=str(uuid4()),
        shape=shape_name(asked),
        limit_min=60,
        deadline_s=2e9,
        tasks=1,
        created_s=0.0,
    )
    return request_for(settings, StateDir(site.folder), intent, asked, grace_s=10.0)


def test_slurm_shows_a_piece_as_it_was_asked_for(
    leases: tuple[Cluster, tuple[AssignedLease, ...]], tmp_path: Path
) -> None:
    site = RealSite(leases[0], tmp_path, "freetrain")
    look = whole_look(site.backend())
    ids = {lease.job_id for lease in leases[1]}

    shapes = {shape_of(job) for job in look.jobs if job.job_id in ids}

    (shape,) = shapes
    assert shape == "freetrain gres=gpu:a100:2 memory=4000MiB cpus=4 piece"


@pytest.mark.parametrize("launcher", ["srun", "torchrun"])
def test_each_rank_sees_the_gpus_of_its_own_lease(
    trio: Trio, launcher: str, tmp_path: Path
) -> None:
    kind = kind_of(launcher, tmp_path)
    launch = structs.replace(kind.launch, processes_per_node=2)
    job = structs.replace(trio.job(launch, **kind.extra), nodes=NODES)
    world = trio.launch(job)

    ranks = trio.ranks(world, 6)
    world.ask_to_stop()

    assert trio.wait(world) == 0, trio.log()
    assert trio.outcome()["outcome"] == "rescaled"
    seen = [
        (
            rank["environment"]["FREETRAIN_LEASE"],
            rank["environment"]["CUDA_VISIBLE_DEVICES"],
            rank["environment"]["LOCAL_RANK"],
        )
        for rank in ranks
    ]
    assert seen == [
        ("piece-0-0", "0,1", "0"),
        ("piece-0-0", "0,1", "1"),
        ("piece-1-0", "2,3", "0"),
        ("piece-1-0", "2,3", "1"),
        ("piece-2-0", "0,1", "0"),
        ("piece-2-0", "0,1", "1"),
    ]


@pytest.mark.parametrize("launcher", ["srun", "torchrun"])
def test_a_rank_that_dies_in_one_piece_ends_the_world_in_all(
    trio: Trio, launcher: str, tmp_path: Path
) -> None:
    kind = kind_of(launcher, tmp_path)
    world = trio.launch(structs.replace(trio.job(kind.launch), nodes=NODES))
    ranks = trio.ranks(world, 3)

    os.kill(ranks[1]["pid"], signal.SIGKILL)

    assert trio.wait(world) != 0
    wait_for("nothing left", lambda: not trio.marked())
