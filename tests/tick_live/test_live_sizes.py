"""A trainer whose speed falls beyond two nodes finds that out, on a real Slurm.

Its program tells neither speeds nor times. Which sizes it ran on, and since when, is
printed; ``pytest -s`` shows it.
"""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import structs

from freetrain.config.job import TrainerJob
from freetrain.tick.status_report import StatusReport
from tests.cluster.broker import LiveBroker
from tests.cluster.cluster import Cluster
from tests.tick_live.stepping import stepping_job

pytestmark = [pytest.mark.slurm, pytest.mark.long]

BEST = 2
SLEEPS_S = {1: 0.6} | {n: 0.15 * n for n in range(2, 9)}
"""By node count. A step on two nodes takes half of its time on one, two thirds of its
time on three and a quarter of that on eight: ticks some seconds apart count few steps,
so that nearer speeds are told apart by chance."""

SOON_S = 600.0
SETTLED_S = 180.0
"""Longer than a trial, which is about the look-ahead of 120 s."""

PROGRAM = """\
#!/bin/sh
case $NODES in
{cases}
esac
step=$(cat {steps} || echo 0)
while sleep $pause; do
    step=$((step + 1))
    echo $step > {steps}
    echo "step $step"
done
"""


@pytest.fixture
def broker(cluster_of: Callable[..., Cluster], folder: Path) -> Iterator[LiveBroker]:
    cluster = cluster_of()
    broker = LiveBroker(cluster, folder, profile=True)
    # No lease ends within the test, so that all changes of size are choices.
    lease = structs.replace(broker.site.lease, longest_s=3_600.0)
    broker.site = structs.replace(broker.site, lease=lease)
    yield broker
    cluster.clear()


def falling(folder: Path) -> TrainerJob:
    """Return a trainer whose steps take ``SLEEPS_S``."""
    cases = "\n".join(f"{n}) pause={sleep_s};;" for n, sleep_s in SLEEPS_S.items())
    script = PROGRAM.format(cases=cases, steps=folder / "steps")
    return stepping_job(folder / "falling", script, "[nodes]\nmax = 8")


def test_a_trainer_whose_speed_falls_ends_on_its_best_size_untold(
    broker: LiveBroker, folder: Path
) -> None:
    broker.submit_job(falling(folder.parent))
    began_s = time.monotonic()
    sizes = [(0.0, 0)]  # since when, how many

    def is_settled(page: StatusReport) -> bool:
        (line,) = page.trainers
        now_s = time.monotonic() - began_s
        if line.nodes != sizes[-1][1]:
            sizes.append((now_s, line.nodes))
            sys.stdout.write(f"\n{now_s:5.0f} s: {line.nodes} nodes")
        since_s, nodes = sizes[-1]
        return nodes > 0 and now_s - since_s > SETTLED_S

    broker.ticks_until("a size that stays", is_settled, limit_s=2 * SOON_S, pause_s=3.0)

    since_s, nodes = sizes[-1]
    sys.stdout.write(f"\non its best size after {since_s:.0f} s\n")
    assert nodes == BEST
    assert since_s < SOON_S
    tried = [nodes for _, nodes in sizes[1:]]
    assert tried[0] == 1, "the smallest comes first"
    assert max(tried) > BEST, "no larger one was tried"
