"""What a tick costs: with nothing to do, with nothing new, and of a huge machine.

``freetrain tick`` runs as a process of its own, against fake programs that print
files, so that what is measured is FreeTrain with its start, not Slurm.
"""

import os
import random
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from freetrain.config.site import PlannerSettings
from slurm.text import parse_squeue
from tests.bench.slurm_snapshot import generate
from tests.losscurve.reported import noisy, steps
from tests.slurm.clusters import recorded
from tests.tick.tick_worlds import tell, theirs, tick_world

_REPEATS = 5
_TRAINERS = 8
_REPORTED = 300
_FILES = {
    "nodes": "nodes.txt",
    "jobs": "jobs.txt",
    "reservations": "reservations.txt",
    "partitions": "partitions.txt",
    "sdiag": "sdiag-before.txt",
}


class Cost(NamedTuple):
    """What one tick took."""

    wall_s: float
    cpu_s: float
    peak_mib: float
    commands: int


def lines(shared: Path) -> Iterator[str]:
    """Yield a row for each case: the median of a few runs."""
    del shared
    ahead = '[planner]\npolicy = "lookahead"\n'
    by_losses = '[planner]\npriority = "slaq"\n'
    for case, make, trainers, planner in (
        ("nothing to do", _quiet, 0, ""),
        ("nothing to do, looking ahead", _quiet, 0, ahead),
        (
            f"{_TRAINERS} trainers under slaq that reported nothing new",
            _quiet,
            _TRAINERS,
            by_losses,
        ),
        ("10,000 nodes", _huge, 0, ""),
        ("10,000 nodes, looking ahead", _huge, 0, ahead),
    ):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "answers").mkdir()
            make(folder / "answers")
            _install(folder, planner)
            words = _with_trainers(folder, trainers) if trainers else ()
            costs = sorted(_tick(folder, *words) for _ in range(_REPEATS))
        middle = costs[_REPEATS // 2]
        peak_mib = max(cost.peak_mib for cost in costs)
        yield (
            f"tick, {case}: {middle.wall_s:.2f} s by the clock, {middle.cpu_s:.2f} s "
            f"of processor time, peak {peak_mib:.0f} MiB, {middle.commands} commands"
        )


def _quiet(folder: Path) -> None:
    for stem, file in _FILES.items():
        (folder / f"{stem}.txt").write_text(recorded("quiet", file), encoding="utf-8")


def _huge(folder: Path) -> None:
    generate(folder, random.Random(1))  # noqa: S311 -- load, not secrets
    jobs = parse_squeue((folder / "jobs.txt").read_text(encoding="utf-8"))
    waiting = [f"{job.job_id}|OK|(null)|" for job in jobs if job.is_pending]
    text = "\n".join(["JOBID|OVER_SUBSCRIBE|EXC_NODES|", *waiting, ""])
    (folder / "waiting.txt").write_text(text, encoding="utf-8")


def _with_trainers(folder: Path, count: int) -> tuple[str, ...]:
    """Submit trainers that report losses, and let a tick see them; return options.

    A job of another user has all nodes, so that no lease is asked for: the ticks that
    are measured see another cluster, and would refuse state with leases of this one.
    """
    world = tick_world(folder, planner=PlannerSettings(priority="slaq"))
    everywhere = [f"n{k}" for k in range(1, 9)]
    world.slurm.standin.add([theirs(world, wanted=everywhere, due_s=world.now_s)])
    for k in range(count):
        world.submit(f"trainer-{k}")
        losses = 0.2 + steps(_REPORTED) ** -(0.3 + 0.05 * k)
        reported = noisy(losses, noise=0.01, seed=k).tolist()
        tell(world.folder.trainer(f"trainer-{k}").run, *reported)
    world.tick()
    return ("--dry-run",)


def _install(folder: Path, planner: str) -> None:
    """Write programs that print the files, and a configuration."""
    answers = folder / "answers"
    config = recorded("quiet", "config.txt")
    (answers / "config.txt").write_text(config, encoding="utf-8")
    version = recorded("quiet", "version.txt")
    (answers / "version.txt").write_text(version, encoding="utf-8")
    stems = {
        "sinfo": "version",
        "squeue": "$(case $* in *PENDING*) echo waiting;; *) echo jobs;; esac)",
        "sdiag": "sdiag",
        "scontrol": "$(for last; do :; done; echo $last)",
    }
    (folder / "bin").mkdir()
    for program, stem in stems.items():
        path = folder / "bin" / program
        calls = shlex.quote(str(folder / "calls"))
        place = shlex.quote(str(answers))
        text = f'#!/bin/sh\necho >> {calls}\nexec cat {place}/"{stem}.txt"\n'
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
    state = f'state_directory = "{folder}/state"\n[lease]\npartition = "freetrain"\n'
    state += planner
    (folder / "freetrain.toml").write_text(state, encoding="utf-8")


def _tick(folder: Path, *more: str) -> Cost:
    calls = folder / "calls"
    calls.unlink(missing_ok=True)
    environ = {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.defpath}",
        "HOME": str(folder),
        "PYTHONPATH": str(Path.cwd()),
    }
    words = [sys.executable, "-m", "freetrain", "tick"]
    words += ["--config", str(folder / "freetrain.toml"), *more]
    began_s = time.perf_counter()
    child = os.posix_spawn(
        words[0],
        words,
        environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, used = os.wait4(child, 0)
    if status:
        raise ChildProcessError(f"the tick ended with {status}")
    return Cost(
        wall_s=time.perf_counter() - began_s,
        cpu_s=used.ru_utime + used.ru_stime,
        peak_mib=used.ru_maxrss / 1024,
        commands=len(calls.read_text(encoding="ascii")),
    )
