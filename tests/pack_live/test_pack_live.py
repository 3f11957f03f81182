"""A pack in leases of a real cluster, which somebody else's job takes away."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pack.leased import leased_pack, loses_its_lease_and_goes_on
from tests.slurm_live.sites import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.slurm


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that compute nodes may enter."""
    place = Path(tempfile.mkdtemp(prefix="freetrain-pack-"))
    yield place
    shutil.rmtree(place)


def test_members_of_a_pack_lose_nothing_when_slurm_takes_their_lease(
    cluster_of: Callable[..., Cluster], folder: Path
) -> None:
    cluster = cluster_of()
    theirs = Site(cluster, folder, "freetrain")
    try:
        loses_its_lease_and_goes_on(
            leased_pack(folder, cluster.environ, longest_s=600.0),
            lambda node: _take_away(theirs, node),
        )
    finally:
        cluster.clear()


def _take_away(site: Site, node: str) -> None:
    site.others_job(1, 10, f"--nodelist={node}", "--exclusive")
