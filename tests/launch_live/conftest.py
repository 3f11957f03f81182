"""Leases for worlds of launchers; nothing of any outlives its test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.launch_live.lease_trio import Trio, take_leases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from freetrain.state.files import AssignedLease
    from tests.cluster.cluster import Cluster


@pytest.fixture(scope="module")
def leases(
    cluster_of: Callable[..., Cluster], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, tuple[AssignedLease, ...]]]:
    """Three one-node jobs, held as long as the module's tests run."""
    cluster = cluster_of()
    yield cluster, take_leases(cluster, tmp_path_factory.mktemp("leases"))
    cluster.clear()


@pytest.fixture
def trio(
    leases: tuple[Cluster, tuple[AssignedLease, ...]], tmp_path: Path
) -> Iterator[Trio]:
    """The leases, with a state directory of the test's own."""
    made = Trio(*leases[:1], tmp_path, leases[1])
    yield made
    made.close()
