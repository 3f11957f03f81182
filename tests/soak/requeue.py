"""Work lost to the same jobs of others: requeued jobs, and FreeTrain's trainers.

Jobs of one node that Slurm requeues, as many as there are nodes, save every so often;
once more they also save when Slurm tells them that they must go. FreeTrain's trainers
commit as often. The jobs of others, which preempt all of these, are the same.
"""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.cluster.cluster import Cluster
from tests.cluster.settings import NODES
from tests.cluster.waiting import wait_for
from tests.e2e.others import Run, live_through, make_workload
from tests.e2e.stage import TOP, Stage
from tests.soak.counted_program import STEP_S
from tests.soak.harm_runs import LEASE, Measurement

PROGRAM = TOP / "tests" / "soak" / "counted_program.py"
TRAINERS = ("ada", "ben", "cleo")
SAVE_EVERY_S = 60.0


class Work(NamedTuple):
    """Node-seconds of training.

    Attributes:
        done: All that were done.
        lost: Those that were done and then not there any more.
    """

    done: float
    lost: float

    def __add__(self, other: object) -> "Work":
        """Add up, field by field."""
        if not isinstance(other, Work):
            return NotImplemented
        return Work(self.done + other.done, self.lost + other.lost)


def work_of(notes: Path, saved: int) -> Work:
    """Return the work of one training by the notes of its attempts.

    Args:
        notes: A file for each attempt and rank: where it began, and its last step.
        saved: Steps that are saved at the end.
    """
    ranks: dict[int, list[tuple[int, int]]] = {}
    for path in notes.glob("[0-9]*-[0-9]*"):
        if not path.suffix:
            begun, last = map(int, path.read_text("ascii").split())
            ranks.setdefault(int(path.name.split("-")[0]), []).append((begun, last))
    attempts = [ranks[number] for number in sorted(ranks)]
    goes_on = [each[0][0] for each in attempts[1:]] + [saved]
    done = lost = 0.0
    for attempt, kept in zip(attempts, goes_on, strict=True):
        for begun, last in attempt:
            done += (last - begun) * STEP_S
            lost += max(0, last - kept) * STEP_S
    return Work(done, lost)


def measure_requeue(
    cluster: Cluster, folder: Path, wanted: Measurement
) -> Iterator[str]:
    """Yield the lines of a report, each as soon as it is known."""
    yield f"saved every {SAVE_EVERY_S:g} s; seed {wanted.seed}, {wanted.span_s:g} s"
    yield "| | node-s trained | of it lost | share | attempts |"
    yield "|---|---|---|---|---|"
    cluster.run("scontrol", "update", "partitionname=freetrain", "preemptmode=requeue")
    for name, heeds in (("requeued", False), ("requeued, heed TERM", True)):
        yield _row(name, *_requeued(cluster, folder / name, wanted, heeds=heeds))
    cluster.run("scontrol", "update", "partitionname=freetrain", "preemptmode=cancel")
    yield _row("FreeTrain", *_freetrain(cluster, folder / "freetrain", wanted))


def _requeued(
    cluster: Cluster, folder: Path, wanted: Measurement, *, heeds: bool
) -> tuple[Work, int]:
    folder.mkdir()
    places = [folder / node for node in NODES]
    for place in places:
        words = [sys.executable, "-m", "tests.soak.counted_program", str(place)]
        words += ["--requeue", str(SAVE_EVERY_S), *["--heeds"] * heeds]
        script = folder / "job"
        script.write_text(f"#!/bin/sh\nexec srun {shlex.join(words)}\n")
        what = ["--partition=freetrain", "--nodes=1", "--exclusive", "--requeue"]
        what += ["--time=240", f"--job-name={place.name}"]
        where = (f"--chdir={TOP}", "--output=/dev/null", "--export=PATH")
        cluster.run("sbatch", *what, *where, str(script))
    _live(cluster, folder, wanted)
    running = cluster.run("squeue", "--noheader", "--states=R", "--format=%j").split()
    cluster.clear()
    found = Work(0.0, 0.0)
    for place in places:
        saved = place / "saved"
        kept = int(saved.read_text("ascii")) if saved.exists() else 0
        if place.name in running:  # the end of the measurement takes nothing
            attempts = [int(path.name[:-2]) for path in place.glob("*-0")]
            last = place / f"{max(attempts)}-0"
            kept = int(last.read_text("ascii").split()[1])
        found += work_of(place, kept)
    return found, sum(len(list(place.glob("*-0"))) for place in places)


def _freetrain(cluster: Cluster, folder: Path, wanted: Measurement) -> tuple[Work, int]:
    folder.mkdir()
    stage = Stage(cluster, folder)
    stage.set_up(lease=LEASE[False])
    for name in TRAINERS:
        script = folder / f"{name}.py"
        script.write_text(
            "from pathlib import Path\n"
            "from tests.soak.counted_program import train_elastic\n"
            f"notes = Path({str(folder / name)!r})\n"
            "notes.mkdir(exist_ok=True)\n"
            "train_elastic(notes)\n"
        )
        stage.submit(name, most=8, program=script, every=f"{SAVE_EVERY_S:g}s")
    with stage.ticking(wanted.tick_every_s):
        _live(cluster, folder, wanted)
        stage.freetrain("cancel", *TRAINERS)
        wait_for("leases to go", lambda: not stage.leases(), limit_s=600, pause_s=1)
    found, worlds = Work(0.0, 0.0), 0
    for name in TRAINERS:
        place = folder / name
        attempts = [int(path.name[:-2]) for path in place.glob("*-0")]
        last = place / f"{max(attempts)}-0"
        found += work_of(place, int(last.read_text("ascii").split()[1]))
        worlds += len(attempts)
    return found, worlds


def _live(cluster: Cluster, folder: Path, wanted: Measurement) -> Run:
    workload = make_workload(
        wanted.seed, span_s=wanted.span_s, time_scale=wanted.time_scale
    )
    (folder / "others").mkdir()
    return live_through(cluster, workload, folder / "others", span_s=wanted.span_s)


def _row(name: str, work: Work, attempts: int) -> str:
    share = work.lost / work.done if work.done else 0.0
    return f"| {name} | {work.done:.0f} | {work.lost:.0f} | {share:.1%} | {attempts} |"
