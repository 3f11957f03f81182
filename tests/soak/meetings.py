"""How long a job waits that meets leases, beside one that meets nobody.

Each job of four nodes is submitted by itself, so that what it waits for is known: for
nobody on idle nodes; for jobs whose steps end at Slurm's first signal, which is as
quick as anybody leaves; and for leases in which a trainer runs.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

from tests.cluster.settings import NODES, Variant
from tests.cluster.waiting import wait_for
from tests.e2e.stage import Stage
from tests.soak.harm_runs import LEASE, LIGHT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.cluster.cluster import Cluster

_NAME = "ada"
_WIDTH = 4
_SETTLING_S = 6.0
"""Longer than the longest of Slurm's cycles, so that each job finds it at rest."""


def meet(
    cluster: Cluster, folder: Path, *, repeats: int, tick_every_s: float
) -> Iterator[str]:
    """Yield a line for each kind of meeting: how many, median and most, seconds."""
    others = _Others(cluster, folder)
    yield _told("idle nodes", [others.meet(lambda: None) for _ in range(repeats)])
    if Variant.SHARED not in cluster.variants:
        waits_s = [others.meet(others.fill) for _ in range(repeats)]
        yield _told("jobs that end at the first signal", waits_s)
        others.clear()
    stage = Stage(cluster, folder / "stage")
    stage.folder.mkdir()
    stage.set_up(lease=LEASE[Variant.SHARED in cluster.variants])
    stage.submit(_NAME, most=len(NODES), program=LIGHT)
    with stage.ticking(tick_every_s):
        waits_s = [others.meet(lambda: _wait_for_all(stage)) for _ in range(repeats)]
        yield _told("leases in which a trainer runs", waits_s)
        stage.freetrain("cancel", _NAME)
        wait_for("leases to go", lambda: not stage.leases(), limit_s=600)


def _wait_for_all(stage: Stage) -> None:
    def has_all() -> bool:
        return int(stage.status()[_NAME]["nodes"]) == len(NODES)

    wait_for("a trainer on every node", has_all, limit_s=600, pause_s=1)


class _Others:
    """Other people's jobs, one at a time."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._count = 0

    def meet(self, prepare: Callable[[], None]) -> float:
        """Return how long after sbatch a job runs, once all is prepared, seconds."""
        prepare()
        time.sleep(_SETTLING_S)
        self._count += 1
        began = self._folder / f"began-{self._count}"
        began_s = time.time()  # noqa: TID251 -- the real one
        self._submit("main", f"date +%s.%N > {began}", f"--nodes={_WIDTH}", "--time=1")
        wait_for("the job", lambda: began.exists() and began.read_text(), limit_s=600)
        return float(began.read_text()) - began_s

    def fill(self) -> None:
        """Have every node held by a job that is preempted, and leaves at once."""
        self.clear()
        last = len(NODES) - 1
        every = (f"--array=0-{last}", "--exclusive", "--time=60")
        self._submit("freetrain", "srun sleep 3600", *every)
        wait_for("jobs on every node", lambda: self._running() == len(NODES))

    def clear(self) -> None:
        """End them."""
        self._cluster.run("scancel", "--partition=freetrain")
        wait_for("no job", lambda: self._running() == 0, limit_s=600)

    def _running(self) -> int:
        said = self._cluster.run(
            "squeue",
            "--noheader",
            "--partition=freetrain",
            "--states=running,completing",
        )
        return len(said.splitlines())

    def _submit(self, partition: str, script: str, *options: str) -> None:
        quiet = ("--chdir=/", "--output=/dev/null", f"--partition={partition}")
        self._cluster.run("sbatch", *quiet, *options, f"--wrap={script}")


def _told(what: str, waits_s: Sequence[float]) -> str:
    each = ", ".join(f"{wait_s:.2f}" for wait_s in sorted(waits_s))
    return f"{what}: {median(waits_s):.2f} s, most {max(waits_s):.2f} ({each})"
