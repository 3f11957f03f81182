"""A trainer whose program refuses a size falls back to another, on a real Slurm."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from freetrain.state.files import EndingKind, generations, read_ending
from freetrain.tick.status_report import StatusReport
from tests.cluster.broker import LiveBroker
from tests.cluster.cluster import Cluster
from tests.tick_live.stepping import stepping_job

pytestmark = pytest.mark.slurm

PROGRAM = """\
#!/bin/sh
[ $NODES != 3 ] || { echo "a batch of 32 for 3 ranks"; exit 1; }
step=0
while sleep 0.1; do
    step=$((step + 1))
    echo "step $step"
done
"""

TABLES = """\
[nodes]
min = 2
max = 3
[restart]
attempts = 2
wait = "1s"
"""


@pytest.fixture
def broker(cluster_of: Callable[..., Cluster], folder: Path) -> Iterator[LiveBroker]:
    cluster = cluster_of()
    yield LiveBroker(cluster, folder)
    cluster.clear()


def test_a_third_node_on_which_the_program_fails_ends_no_training(
    broker: LiveBroker, folder: Path
) -> None:
    files = broker.folder.trainer("a")

    def steps(generation: int) -> int:
        log = files.logs / f"{generation:010d}.log"
        return log.read_text().count("step") if log.exists() else 0

    def failures() -> list[int]:
        endings = [read_ending(files, g) for g in generations(files.endings)]
        return [e.leases for e in endings if e and e.ended is EndingKind.FAILED]

    def trains(page: StatusReport) -> bool:
        (line,) = page.trainers
        return line.nodes == 2 and steps(line.generation) > 20

    def occupy(nodes: str) -> str:
        words = ("--parsable", "--partition=main", "--chdir=/", "--output=/dev/null")
        where = (f"--nodelist={nodes}", "--time=60", "--wrap=sleep 600")
        return broker.cluster.run("sbatch", *words, *where).strip()

    occupy("n[4-8]")
    third = occupy("n3")
    broker.submit_job(stepping_job(folder.parent / "refusing", PROGRAM, TABLES))
    broker.ticks_until("steps on two nodes", trains)
    broker.cluster.run("scancel", third)
    broker.ticks_until("its failures on three", lambda _: failures() == [3, 3])
    broker.ticks_until("steps on two nodes again", trains)
    page = broker.tick()

    assert [(line.state, line.sizes) for line in page.trainers] == [("wanted", (2,))]
    assert failures() == [3, 3]
