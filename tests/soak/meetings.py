"""How long a job waits for leases, beside jobs that wait for other things.

Each job of four nodes is submitted alone, so that the cause of its wait is known: none
on idle nodes; jobs whose steps end at Slurm's first signal, the quickest there are; and
leases in which a trainer runs. In one shared partition also a job that has all nodes,
alone and together with leases that wait.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

from freetrain.config.site import LeaseSettings
from slurm.batch import LeaseRequest, sbatch_argv
from tests.cluster.cluster import Cluster
from tests.cluster.settings import NODES, Variant
from tests.cluster.waiting import wait_for
from tests.e2e.stage import TOP, Stage
from tests.soak.harm_runs import LEASE

_NAME = "ada"
_LIGHT = TOP / "tests" / "soak" / "light_program.py"
_OURS = "freetrain"
_WAITING = "freetrain-waiting"
_WIDTH = 4
_BEFORE_S = 10.0
_SETTLING_S = 6.0
"""Longer than the longest of Slurm's cycles, so that each job finds it at rest."""


def meet(
    cluster: Cluster, folder: Path, *, repeats: int, tick_every_s: float
) -> Iterator[str]:
    """Yield a line for each kind of meeting: how many, median and most, seconds."""
    others = _Others(cluster, folder)
    yield _line("idle nodes", [others.meet(lambda: None) for _ in range(repeats)])
    if Variant.SHARED not in cluster.variants:
        waits_s = [others.meet(others.fill) for _ in range(repeats)]
        yield _line("jobs that end at the first signal", waits_s)
        others.clear()
    else:
        waits_s = [others.follow(lambda: None) for _ in range(repeats)]
        yield _line("after somebody's end", waits_s)
        waits_s = [others.follow(others.ask_for_leases) for _ in range(repeats)]
        yield _line("the same, beside leases that wait", waits_s)
    stage = Stage(cluster, folder / "stage")
    stage.folder.mkdir()
    stage.set_up(lease=LEASE[Variant.SHARED in cluster.variants])
    stage.submit(_NAME, most=len(NODES), program=_LIGHT)
    with stage.ticking(tick_every_s):
        waits_s = [others.meet(lambda: _wait_for_all(stage)) for _ in range(repeats)]
        yield _line("leases in which a trainer runs", waits_s)
        stage.freetrain("cancel", _NAME)
        wait_for("leases to go", lambda: not stage.leases(), limit_s=600)


def _wait_for_all(stage: Stage) -> None:
    def has_all() -> bool:
        return int(stage.status()[_NAME]["nodes"]) == len(NODES)

    wait_for("a trainer on every node", has_all, limit_s=600, pause_s=1)


class _Others:
    """Other users' jobs, one at a time."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._count = 0

    def meet(self, prepare: Callable[[], None]) -> float:
        """Return how long after sbatch a job runs, once all is prepared, seconds."""
        prepare()
        time.sleep(_SETTLING_S)
        began_s = time.time()  # noqa: TID251 -- the real one
        return _time_in(self._one(_WIDTH)) - began_s

    def follow(self, prepare: Callable[[], None]) -> float:
        """Return how long after a job's end another begins that waited for it."""
        time.sleep(_SETTLING_S)
        before = self._one(len(NODES), f"sleep {_BEFORE_S:g}")
        wait_for("nodes to be taken", lambda: self._running("main"))
        prepare()
        began_s = _time_in(self._one(_WIDTH))
        self._cluster.run("scancel", f"--name={_WAITING}")
        wait_for("no job", lambda: not self._running("main"), limit_s=600)
        return began_s - _time_in(before)

    def ask_for_leases(self) -> None:
        """Ask for one on every node, as the tick does; they wait."""
        script = self._folder / "lease"
        script.write_text("#!/bin/sh\nexec sleep 60\n", encoding="ascii")
        request = LeaseRequest(
            name=_WAITING,
            comment="",
            partition="main",
            limit_min=1,
            nice=LeaseSettings().nice,
            script=str(script),
            tasks=len(NODES),
        )
        self._cluster.run(*sbatch_argv(request))

    def fill(self) -> None:
        """Fill every node with a job that is preempted and ends at once."""
        self.clear()
        last = len(NODES) - 1
        every = (f"--array=0-{last}", "--exclusive", "--time=60")
        self._submit(_OURS, "srun sleep 3600", *every)
        wait_for("jobs on every node", lambda: self._running(_OURS) == len(NODES))

    def clear(self) -> None:
        """End them."""
        self._cluster.run("scancel", f"--partition={_OURS}")
        wait_for("no job", lambda: not self._running(_OURS), limit_s=600)

    def _running(self, partition: str) -> int:
        where = ("--noheader", f"--partition={partition}")
        rows = self._cluster.run("squeue", *where, "--states=running,completing")
        return len(rows.splitlines())

    def _one(self, width: int, script: str = ":") -> Path:
        """Submit a job that writes its time to the returned file after *script*."""
        self._count += 1
        done = self._folder / f"done-{self._count}"
        size = (f"--nodes={width}", "--time=1")
        self._submit("main", f"{script}; date +%s.%N > {done}", *size)
        return done

    def _submit(self, partition: str, script: str, *options: str) -> None:
        quiet = ("--chdir=/", "--output=/dev/null", f"--partition={partition}")
        self._cluster.run("sbatch", *quiet, *options, f"--wrap={script}")


def _time_in(file: Path) -> float:
    """Return the Unix time that a job writes to *file*."""
    wait_for("the job", lambda: file.exists() and file.read_text(), limit_s=600)
    return float(file.read_text())


def _line(title: str, waits_s: Sequence[float]) -> str:
    each = ", ".join(f"{wait_s:.2f}" for wait_s in sorted(waits_s))
    return f"{title}: {median(waits_s):.2f} s, most {max(waits_s):.2f} ({each})"
