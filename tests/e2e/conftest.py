"""Fixtures of the tests that run all of FreeTrain."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.e2e.stage import Stage, undisturbed


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """A folder in which other users' jobs can write."""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    return tmp_path


@pytest.fixture
def stage_on(
    cluster_of: Callable[..., Cluster], open_folder: Path
) -> Iterator[Callable[..., Stage]]:
    """Return a function from a cluster's variants to a user's stage on it."""
    used: list[Cluster] = []

    def make(*variants: object, lease: str = "", partition: str = "freetrain") -> Stage:
        cluster = cluster_of(*variants)
        used.append(cluster)
        made = Stage(cluster, open_folder)
        made.set_up(lease=f'partition = "{partition}"\nshortest = "1min"\n{lease}')
        return made

    yield make
    for cluster in used:
        cluster.clear()


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """The loss of each step, in one process that nobody disturbs."""
    return undisturbed(tmp_path_factory.mktemp("reference"))
