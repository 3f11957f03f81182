"""How long a job waits for leases, beside jobs that wait for other things.

Each job is submitted alone, so that the cause of its wait is known: none on idle nodes;
jobs whose steps end at Slurm's first signal, the quickest there are; and leases in
which a trainer runs. In one shared partition also a job that has all nodes, alone and
together with leases that wait. Jobs take four nodes, or one GPU where jobs share nodes
(``parts``). slurmctld's log says what a wait is made of.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import NamedTuple

from freetrain.config.site import LeaseSettings
from slurm.batch import LeaseRequest, sbatch_argv
from tests.cluster.cluster import Cluster
from tests.cluster.settings import NODES, Variant
from tests.cluster.waiting import wait_for
from tests.e2e.stage import PROGRAM, TOP, Stage
from tests.soak.harm_runs import LEASE

_NAME = "ada"
_LIGHT = TOP / "tests" / "soak" / "light_program.py"
_OURS = "freetrain"
_WAITING = "freetrain-waiting"
_BEFORE_S = 10.0
_SETTLING_S = 6.0
"""Longer than the longest of Slurm's cycles, so that each job finds it at rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """What jobs and leases take.

    Attributes:
        job: Options of a job.
        filler: Options of one that leases, or preempted jobs, are as many of as fit.
        fill: How many fit.
        held: Nodes that somebody has all the time.
        trainer: Of the trainer that runs in the leases.
        variables: Of its program.
    """

    job: tuple[str, ...]
    filler: tuple[str, ...]
    fill: int
    held: tuple[str, ...] = ()
    nodes: str = ""
    launch: str = ""
    program: Path = _LIGHT
    variables: dict[str, str] = field(default_factory=dict)


_WHOLE = _Kind(job=("--nodes=4",), filler=("--exclusive",), fill=len(NODES))
_GPU = ("--gres=gpu:a100:1", "--mem=500")
_PARTS = _Kind(
    job=_GPU,
    filler=_GPU,
    fill=8,
    held=NODES[2:],
    nodes='gpus_per_lease = 1\ngpu_type = "a100"',
    launch='launcher = "srun"\nprocesses_per_node = 1\nahead = false',
    program=PROGRAM,
    variables={
        "DIGITS_EPOCHS": "40000",
        "DIGITS_COUNTED": "0",
        "DIGITS_STEP_S": "0.4",
    },
)


class _Wait(NamedTuple):
    """One job's wait, in seconds.

    Attributes:
        leaving_s: From its submission until the last job had gone that had to.
        given_s: From then until Slurm gave it its nodes.
        beginning_s: From then until its script ran.
    """

    leaving_s: float
    given_s: float
    beginning_s: float

    @property
    def total_s(self) -> float:
        return sum(self)


def meet(
    cluster: Cluster, folder: Path, *, repeats: int, tick_every_s: float
) -> Iterator[str]:
    """Yield a line for each kind of meeting: how many, median and most, seconds."""
    kind = _PARTS if Variant.PARTS in cluster.variants else _WHOLE
    others = _Others(cluster, folder, kind)
    others.hold()
    yield _line("idle nodes", [others.meet(lambda: None) for _ in range(repeats)])
    if Variant.SHARED not in cluster.variants:
        waits = [others.meet(others.fill) for _ in range(repeats)]
        yield _line("jobs that end at the first signal", waits)
        others.clear()
    elif kind is _WHOLE:
        waits = [others.follow(lambda: None) for _ in range(repeats)]
        yield _line("after somebody's end", waits)
        waits = [others.follow(others.ask_for_leases) for _ in range(repeats)]
        yield _line("the same, beside leases that wait", waits)
    stage = Stage(cluster, folder / "stage")
    stage.folder.mkdir()
    stage.set_up(lease=LEASE[Variant.SHARED in cluster.variants])
    stage.submit(
        _NAME,
        most=kind.fill,
        nodes=kind.nodes,
        launch=kind.launch,
        program=kind.program,
        **kind.variables,
    )
    with stage.ticking(tick_every_s):
        waits = [
            others.meet(lambda: _wait_for_all(stage, kind)) for _ in range(repeats)
        ]
        yield _line("leases in which a trainer runs", waits)
        stage.freetrain("cancel", _NAME)
        wait_for("leases to go", lambda: not stage.leases(), limit_s=600)


def _wait_for_all(stage: Stage, kind: _Kind) -> None:
    def has_all() -> bool:
        return int(stage.status()[_NAME]["nodes"]) == kind.fill

    wait_for("a trainer on all there is", has_all, limit_s=600, pause_s=1)


class _Others:
    """Other users' jobs, one at a time."""

    def __init__(self, cluster: Cluster, folder: Path, kind: _Kind) -> None:
        self._cluster = cluster
        self._folder = folder
        self._kind = kind
        self._count = 0

    def hold(self) -> None:
        """Let somebody have nodes all the time."""
        for node in self._kind.held:
            size = ("--exclusive", "--mem=0", f"--nodelist={node}", "--time=600")
            self._submit("main", "sleep 36000", *size)
        held = len(self._kind.held)
        wait_for("nodes to be held", lambda: self._running("main") == held)

    def meet(self, prepare: Callable[[], None]) -> _Wait:
        """Return how long after its submission a job runs, once all is prepared."""
        prepare()
        time.sleep(_SETTLING_S)
        job, done = self._one(*self._kind.job)
        return self._wait_of(job, _time_in(done))

    def follow(self, prepare: Callable[[], None]) -> _Wait:
        """Return how long after a job's end another begins that waited for it."""
        time.sleep(_SETTLING_S)
        every = (f"--nodes={len(NODES)}",)
        _, before = self._one(*every, script=f"sleep {_BEFORE_S:g}")
        wait_for("nodes to be taken", lambda: self._running("main"))
        prepare()
        job, done = self._one(*self._kind.job)
        began_s = _time_in(done)
        wait = self._wait_of(job, began_s)
        self._cluster.run("scancel", f"--name={_WAITING}")
        wait_for("no job", lambda: not self._running("main"), limit_s=600)
        return wait._replace(leaving_s=began_s - _time_in(before) - sum(wait[1:]))

    def _wait_of(self, job: str, began_s: float) -> _Wait:
        """Return what the wait of *job* was made of, by slurmctld's log."""
        log = self._cluster.folder / "log" / "slurmctld.log"
        times = list(_log_times(log.read_text(encoding="utf-8")))
        came_s = next(at_s for at_s, what, who in times if (what, who) == (_CAME, job))
        given_s = next(
            at_s for at_s, what, who in times if (what, who) == (_GIVEN, job)
        )
        gone_s = [s for s, what, _ in times if what == _GONE and came_s < s < given_s]
        free_s = max(gone_s, default=came_s)
        return _Wait(free_s - came_s, given_s - free_s, began_s - given_s)

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
        """Fill all there is with jobs that are preempted and end at once."""
        self.clear()
        fill = self._kind.fill
        every = (f"--array=0-{fill - 1}", *self._kind.filler, "--time=60")
        self._submit(_OURS, "srun --mem=0 sleep 3600", *every)
        wait_for("jobs on all there is", lambda: self._running(_OURS) == fill)

    def clear(self) -> None:
        """End them."""
        self._cluster.run("scancel", f"--partition={_OURS}")
        wait_for("no job", lambda: not self._running(_OURS), limit_s=600)

    def _running(self, partition: str) -> int:
        where = ("--noheader", f"--partition={partition}")
        rows = self._cluster.run("squeue", *where, "--states=running,completing")
        return len(rows.splitlines())

    def _one(self, *size: str, script: str = ":") -> tuple[str, Path]:
        """Submit a job; return its number, and where it writes its time at its end."""
        self._count += 1
        done = self._folder / f"done-{self._count}"
        write = f"{script}; date +%s.%N > {done}"
        return self._submit("main", write, *size, "--time=1"), done

    def _submit(self, partition: str, script: str, *options: str) -> str:
        quiet = ("--chdir=/", "--output=/dev/null", f"--partition={partition}")
        words = ("--parsable", *quiet, *options, f"--wrap={script}")
        return self._cluster.run("sbatch", *words).strip()


def _time_in(file: Path) -> float:
    """Return the Unix time that a job writes to *file*."""
    wait_for("the job", lambda: file.exists() and file.read_text(), limit_s=600)
    return float(file.read_text())


_CAME, _GIVEN, _GONE = "came", "given", "gone"
_LOGGED = re.compile(
    r"\[(?P<at>[-0-9T:.]+)\] (?:"
    r"_slurm_rpc_submit_batch_job: JobId=(?P<came>\d+) "
    r"|sched: Allocate JobId=(?P<given>\d+)"
    r"|sched/backfill: _start_job: Started JobId=(?P<begun>\d+)"
    r"|_job_complete: JobId=(?P<gone>\d+)\S* done)"
)


def _log_times(log: str) -> Iterator[tuple[float, str, str]]:
    """Yield when what became of which job: Unix time, one of three words, number."""
    for found in map(_LOGGED.match, log.splitlines()):
        if found is None:
            continue
        at = datetime.fromisoformat(found["at"]).astimezone(UTC).timestamp()
        if found["came"]:
            yield at, _CAME, found["came"]
        elif found["gone"]:
            yield at, _GONE, found["gone"]
        else:
            yield at, _GIVEN, found["given"] or found["begun"]


def _line(title: str, waits: Sequence[_Wait]) -> str:
    waits_s = sorted(wait.total_s for wait in waits)
    each = ", ".join(f"{wait_s:.2f}" for wait_s in waits_s)
    parts = " + ".join(f"{median(part):.2f}" for part in zip(*waits, strict=True))
    return (
        f"{title}: {median(waits_s):.2f} s, most {max(waits_s):.2f} ({each}); medians "
        f"of leaving, being given and beginning {parts}"
    )
