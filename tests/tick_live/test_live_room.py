"""Whatever becomes of the state directory, a tick gives up what others wait for.

How long they waited is printed, by slurmctld's clock; ``pytest -s`` shows it.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from freetrain.cli.context import error_line, exit_code
from freetrain.errors import FreeTrainError
from freetrain.state.database import DATABASE, turn_in
from freetrain.state.turn import TickProcess
from tests.cluster.broker import LiveBroker
from tests.cluster.cluster import Cluster
from tests.cluster.settings import Variant
from tests.cluster.site import Site
from tests.cluster.waiting import wait_for

pytestmark = pytest.mark.slurm

_SOON_S = 15.0
"""A tick, the notice, and Slurm's next cycle, on a machine that is busy."""


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Path]:
    """The state directory on a file system of its own, of 16 MiB."""
    if os.getuid() != 0:
        pytest.skip("only root may mount a small file system")
    folder.mkdir(mode=0o700)
    words = [
        "/bin/mount",
        "-t",
        "tmpfs",
        "-o",
        "size=16m,mode=0700",
        "none",
        str(folder),
    ]
    mounted = subprocess.run(words, check=False, capture_output=True)  # noqa: S603
    if mounted.returncode != 0:
        pytest.skip("no small file system can be mounted here")
    yield folder
    words = ["/bin/umount", "--lazy", str(folder)]
    subprocess.run(words, check=True)  # noqa: S603


@pytest.fixture
def yielding(
    cluster_of: Callable[..., Cluster], small_disk: Path
) -> Iterator[tuple[LiveBroker, Site]]:
    """A broker that holds all eight nodes, and the users beside it."""
    cluster = cluster_of(Variant.SHARED)
    broker = LiveBroker(cluster, small_disk, partition="main")
    broker.submit(8)
    try:
        assert broker.tick().done["leases asked for"] == 8
        beats = broker.folder.leases
        wait_for("8 agents", lambda: len(list(beats.glob("*/heartbeat.json"))) == 8)
        yield broker, Site(cluster, small_disk.parent, "main")
    finally:
        cluster.clear()


def full(broker: LiveBroker) -> None:
    """Let there be no byte left."""
    with suppress(OSError), (broker.folder.path / "filling").open("wb") as file:
        while True:
            file.write(bytes(4_096))
            file.flush()


def corrupt(broker: LiveBroker) -> None:
    """Let the database, and each copy of it, be nothing that SQLite knows."""
    for path in broker.folder.path.glob(f"{DATABASE}*"):
        path.write_bytes(b"no database " * 1_000)


@pytest.mark.parametrize(("harm", "code"), [(full, 73), (corrupt, 65)])
def test_others_start_though_the_state_cannot_be_used(
    yielding: tuple[LiveBroker, Site], harm: Callable[[LiveBroker], None], code: int
) -> None:
    broker, site = yielding
    harm(broker)
    job_id = site.others_job(4, 5)

    with pytest.raises(FreeTrainError) as caught:
        broker.tick()

    assert exit_code(caught.value) == code
    assert "4 leases asked to leave" in error_line(caught.value)
    tell_and_check(site, job_id, harm.__name__)


def test_others_start_though_another_tick_hangs(
    yielding: tuple[LiveBroker, Site],
) -> None:
    broker, site = yielding
    job_id = site.others_job(4, 5)

    with (
        turn_in(broker.folder.path, TickProcess("elsewhere", 1, "boot")),
        pytest.raises(FreeTrainError) as caught,
    ):
        broker.tick()

    assert exit_code(caught.value) == 75
    tell_and_check(site, job_id, "another tick")


def tell_and_check(site: Site, job_id: int, how: str) -> None:
    job = site.wait_for_running(job_id)
    assert job.start_s is not None
    assert job.submit_s is not None
    waited_s = job.start_s - job.submit_s
    sys.stdout.write(f"\n{how}: {waited_s:.0f} s from sbatch to running\n")
    assert waited_s < _SOON_S
