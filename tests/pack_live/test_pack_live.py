"""A pack in leases of a real cluster, which another user's job takes away."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pack.leased import (
    goes_on_after_its_packer_was_killed,
    leased_pack,
    loses_its_lease_and_goes_on,
)
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


@pytest.fixture
def cluster(cluster_of: Callable[..., Cluster], folder: Path) -> Iterator[Cluster]:
    del folder  # asked for, so that it outlives what runs in it
    made = cluster_of()
    yield made
    made.clear()


def test_members_of_a_pack_lose_nothing_when_slurm_takes_their_lease(
    cluster: Cluster, folder: Path
) -> None:
    theirs = Site(cluster, folder, "freetrain")

    def take_away(node: str) -> None:
        theirs.others_job(1, 10, f"--nodelist={node}", "--exclusive")

    pack = leased_pack(folder, cluster.environ, longest_s=600.0)
    loses_its_lease_and_goes_on(pack, take_away)


def test_a_lease_ends_members_whose_packer_was_killed(
    cluster: Cluster, folder: Path
) -> None:
    pack = leased_pack(folder, cluster.environ, longest_s=600.0)
    goes_on_after_its_packer_was_killed(pack)
