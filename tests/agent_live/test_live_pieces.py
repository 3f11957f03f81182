"""Agents in leases that are pieces of nodes, two of them on one node."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import structs

from freetrain.config.job import LaunchSettings, NodeSettings
from freetrain.state.files import AssignedLease, EndingKind, StateDir
from tests.cluster.cluster import Cluster
from tests.cluster.leases import LiveLeases, a_live_job
from tests.cluster.settings import Variant
from tests.cluster.site import Site
from tests.cluster.waiting import wait_for

pytestmark = pytest.mark.slurm


@pytest.fixture
def live(cluster_of: Callable[..., Cluster], tmp_path: Path) -> Iterator[LiveLeases]:
    """Everything that leases need, and a trainer of GPUs with two ranks a lease."""
    cluster = cluster_of(Variant.PARTS)
    tmp_path.chmod(0o700)
    live = LiveLeases(Site(cluster, tmp_path, "freetrain"), StateDir(tmp_path))
    (tmp_path / "seen").mkdir()
    program = (sys.executable, "-m", "tests.launch_live.launch_program")
    job = structs.replace(
        a_live_job(tmp_path),
        command=(*program, str(tmp_path / "seen"), "elastic"),
        nodes=NodeSettings(max_nodes=8, gpus_per_lease=2),
        launch=LaunchSettings(launcher="srun", processes_per_node=2),
    )
    live.prepare(job)
    yield live
    cluster.clear()
    assert live.marked() == {}


def pieces(live: LiveLeases, node: str, count: int) -> tuple[AssignedLease, ...]:
    """Take leases of two GPUs on *node*."""
    return live.leases(
        count,
        exclusive=False,
        gres="gpu:2",
        cpus=2,
        memory_mib=2_000,
        excluded=",".join(f"n{k}" for k in range(1, 9) if f"n{k}" != node),
    )


@pytest.mark.parametrize("who", [0, 1])
def test_of_two_pieces_of_a_node_one_leaves_and_the_other_trains_on(
    live: LiveLeases, who: int
) -> None:
    leases = *pieces(live, "n1", 2), *pieces(live, "n2", 1)
    live.assign(*leases[::2])
    live.wait_for_training(1)
    live.assign(*leases)
    began = live.wait_for_training(2)
    assert live.newest().keys == {lease.key for lease in leases}

    live.tell(leases[who])
    wait_for("the lease to end", lambda: live.is_over(leases[who]))
    live.wait_for_training(began + 1)

    ending = live.wait_for_ending(began)
    assert ending.ended is EndingKind.RESCALED, live.words()
    left = {lease.key for lease in leases} - {leases[who].key}
    assert live.newest().keys == left
    assert {lease.node for lease in live.newest().members} == {"n1", "n2"}


def test_a_piece_that_is_cancelled_takes_no_process_of_the_other_with_it(
    live: LiveLeases,
) -> None:
    leases = pieces(live, "n1", 2)
    live.assign(*leases)
    began = live.wait_for_training(1)

    live.site.cluster.run("scancel", leases[0].display_id)
    live.wait_for_training(began + 1)

    assert live.newest().keys == {leases[1].key}
    assert not live.is_over(leases[1])
