"""A tenth of ``make soak``: training through a hundred faults, on a real cluster."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.settings import Variant
from tests.e2e.stage import undisturbed
from tests.soak.storm import epochs_for, set_up_stage, storm

pytestmark = [pytest.mark.slurm, pytest.mark.long]

FAULTS = 100


def test_nothing_is_lost_or_left_and_nobody_waits_whatever_fails(
    cluster_of: Callable[..., Cluster], tmp_path: Path
) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)  # other users' jobs write there
    alone = tmp_path / "alone"
    alone.mkdir()
    stage = set_up_stage(cluster_of(Variant.SHARED), tmp_path)

    said = list(
        storm(
            stage,
            undisturbed(alone, epochs=epochs_for(FAULTS)),
            seed=1,
            faults=FAULTS,
            most_pause_s=1.0,
        )
    )

    assert len(said) > FAULTS
