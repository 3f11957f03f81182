"""Leases that tests of launchers hold by hand."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from freetrain.state.files import AssignedLease
from tests.cluster.cluster import Cluster
from tests.launch_live.trio import Trio


@pytest.fixture
def trio(
    leases: tuple[Cluster, tuple[AssignedLease, ...]], tmp_path: Path
) -> Iterator[Trio]:
    """The module's three leases, with a state directory of the test's own."""
    made = Trio(*leases[:1], tmp_path, leases[1])
    yield made
    made.close()
