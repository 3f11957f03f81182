"""The process beside each job: it runs the script, and leaves nothing behind.

It ends the job's processes when the script is over, when the job is ended, and when
the stand-in itself is gone: its keeper killed, or its folder removed.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from freetrain.standin.environment import bare, mark_of, of_job
from freetrain.standin.keeping import opened
from freetrain.standin.processes import (
    inherit_orphans,
    is_alive,
    process_of,
    reap,
    signal_descendants,
    signal_marked,
)

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.standin.records import Cluster, Job

LOOK_S = 0.25
_SWEEP_PAUSE_S = 0.02
_EXITS = "exits"
_NOT_STARTED = 127


def exits(folder: Path) -> dict[int, int]:
    """Return the status of each script that is over, by its job's raw number."""
    found = {}
    for path in (folder / _EXITS).iterdir():
        number, _, status = path.name.partition("-")
        if number.isdecimal():
            found[int(number)] = int(status)
    return found


def create(folder: Path) -> None:
    """Make the folder that supervisors report to."""
    (folder / _EXITS).mkdir()


def supervise(folder: Path, job_id: int) -> None:
    """Run the script of a job that was just started, and see to its end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    inherit_orphans()
    with opened(folder) as cluster:  # so that nobody ends it between look and start
        job = _ours(cluster, job_id)
        if job is None:
            return
        script = _start(cluster, job, of_job(folder, job))
        job.batch = process_of(script)
    status = _wait(folder, cluster, script)
    is_killed = status is None or os.WIFSIGNALED(status)
    _sweep(mark_of(folder, job), patience_s=0.0 if is_killed else cluster.kill_wait_s)
    code = os.waitstatus_to_exitcode(status or 0)
    if folder.exists():
        (folder / _EXITS / f"{job_id}-{abs(code)}").touch()


def _wait(folder: Path, cluster: Cluster, script: int) -> int | None:
    """Return the script's wait status; None where the stand-in went first."""
    while True:
        ended = reap()
        if script in ended:
            return ended[script]
        keeper = cluster.keeper
        if (keeper is not None and not is_alive(keeper)) or not folder.exists():
            return None
        signal.sigtimedwait([signal.SIGCHLD], LOOK_S)


def _sweep(mark: str, *, patience_s: float) -> None:
    """End all that bears *mark* or descends from us: TERM, then KILL."""
    until_s = time.monotonic() + patience_s
    if patience_s:
        _signal_left(mark, signal.SIGTERM)
    while _signal_left(mark, 0 if time.monotonic() < until_s else signal.SIGKILL):
        time.sleep(_SWEEP_PAUSE_S)
        reap()


def _signal_left(mark: str, number: int) -> int:
    return signal_descendants(number) + signal_marked(mark, number)


def _ours(cluster: Cluster, job_id: int) -> Job | None:
    """Return the job that this very process supervises; None where it is over."""
    for job in cluster.jobs:
        if job.job_id == job_id and job.is_running and job.supervisor is not None:
            return job if job.supervisor.pid == os.getpid() else None
    return None


def _start(cluster: Cluster, job: Job, told: dict[str, str]) -> int:
    """Start the script in a session of its own, and return its number."""
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home needs another import
    environ = bare(cluster.user, home) | job.environment | told
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        os.chdir(job.directory)
        output = os.open(
            _output(job), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC, 0o600
        )
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.execve(job.script, [job.script, *job.arguments], environ)  # noqa: S606
    finally:
        os._exit(_NOT_STARTED)


def _output(job: Job) -> str:
    """Return where the output goes, with what ``%j`` and the like stand for."""
    values = {
        "%%": "%",
        "%j": str(job.job_id),
        "%A": str(job.array_id or job.job_id),
        "%a": str(max(job.task, 0)),
        "%N": job.nodes[0],
        "%x": job.name,
    }
    pieces = job.output.split("%%")
    for sign, value in values.items():
        pieces = [piece.replace(sign, value) for piece in pieces]
    return "%".join(pieces)
