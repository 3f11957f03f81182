"""Clusters of several variants, each started once a session and emptied after use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.settings import Variant
from tests.slurm_live.sites import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cluster.cluster import Cluster


@pytest.fixture
def site(cluster_of: Callable[..., Cluster], tmp_path: Path) -> Iterator[Site]:
    """Two partitions; leases are preempted."""
    cluster = cluster_of()
    yield Site(cluster, tmp_path, "freetrain")
    cluster.clear()


@pytest.fixture
def shared_site(cluster_of: Callable[..., Cluster], tmp_path: Path) -> Iterator[Site]:
    """One partition for everybody; nobody is preempted."""
    cluster = cluster_of(Variant.SHARED)
    yield Site(cluster, tmp_path, "main")
    cluster.clear()


@pytest.fixture
def yielding_site(cluster_of: Callable[..., Cluster], tmp_path: Path) -> Iterator[Site]:
    """Backfill gives up its locks after every job it looks at."""
    cluster = cluster_of(Variant.FORCED_YIELDS)
    yield Site(cluster, tmp_path, "freetrain")
    cluster.clear()
