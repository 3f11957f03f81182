"""The stand-in's processes: started, signalled, found, and supervised to their end.

What process groups miss, children that made a session of their own, is found by a
mark in the environment, and by descent: the supervisor of a job inherits its orphans.
Together they stand in for the control groups that Slurm itself would use.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from freetrain.demo.fake_slurm.cluster import Process, opened
from freetrain.processes import environments, process_ids, status_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from freetrain.demo.fake_slurm.cluster import FakeCluster, FakeJob


# Processes: started, looked at, signalled, and found.

MARK = "FREETRAIN_STANDIN_JOB"
_SET_CHILD_SUBREAPER = 36


def process_of(pid: int) -> Process | None:
    """Return the process that has the number *pid* now; None where none has."""
    status = status_of(pid)
    return None if status is None else Process(pid, status.started)


def is_alive(process: Process) -> bool:
    """Tell whether *process* still runs; one that only waits to be reaped does not."""
    status = status_of(process.pid)
    if status is None or status.has_ended:
        return False
    return status.started == process.started


def detach(argv: Sequence[str], environ: Mapping[str, str]) -> Process:
    """Start *argv* in a session of its own, without our input and outputs.

    Raises:
        OSError: It cannot be started.
    """
    quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
    pid = os.posix_spawn(
        argv[0],
        list(argv),
        dict(environ),
        file_actions=quiet,
        setsid=True,
        setsigdef=[signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
        setsigmask=[],
    )
    return process_of(pid) or Process(pid, 0)


def signal_group(process: Process, number: int) -> None:
    """Send a signal to the group that *process* leads, if it is still that one.

    The leader may be gone and its children not: its number is then still taken, as
    that of the group.
    """
    now = process_of(process.pid)
    if now is None or now == process:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def signal_marked(mark: str, number: int) -> int:
    """Send a signal to every process that bears *mark*; return how many there were."""
    found = list(_marked(mark))
    for pid in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return len(found)


def inherit_orphans() -> None:
    """Make this process the parent of every orphan among its descendants.

    Raises:
        OSError: The kernel refused.
    """
    import ctypes  # noqa: PLC0415 - for supervisors only; programs start without

    if ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def signal_descendants(number: int) -> int:
    """Send a signal to all that descend from us; return how many there were."""
    children: dict[int, list[int]] = {}
    for pid in process_ids():
        status = status_of(pid)
        if status is not None and not status.has_ended:
            children.setdefault(status.parent, []).append(pid)
    found = children.get(os.getpid(), [])
    for pid in found:  # grows as it goes
        found += children.get(pid, [])
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return len(found)


def reap() -> dict[int, int]:
    """Take note of children that have ended; return their wait statuses."""
    ended = {}
    with suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            ended[child[0]] = child[1]
    return ended


def _marked(mark: str) -> Iterator[int]:
    wanted = f"{MARK}={mark}\0".encode()
    for pid, environ in environments(wanted):
        if b"\0" + wanted in b"\0" + environ and pid != os.getpid():
            yield pid


# The environment that batch scripts and steps find.


def mark_of(folder: Path, job: FakeJob) -> str:
    """Return what marks the processes of *job*."""
    return f"{folder}:{job.job_id}"


def bare(user: str, home: str) -> dict[str, str]:
    """Return what a user finds after logging in."""
    path = f"/usr/local/bin{os.pathsep}/usr/bin{os.pathsep}/bin"
    return {"HOME": home, "USER": user, "LOGNAME": user, "PATH": path}


def of_job(folder: Path, job: FakeJob) -> dict[str, str]:
    """Return the variables that tell a batch script of its job."""
    start_s = job.start_s or 0.0
    told = {
        "SLURM_JOB_ID": job.job_id,
        "SLURM_JOBID": job.job_id,
        "SLURM_JOB_NAME": job.name,
        "SLURM_JOB_USER": job.user,
        "SLURM_JOB_PARTITION": job.partition,
        "SLURM_JOB_NODELIST": ",".join(job.nodes),
        "SLURM_JOB_NUM_NODES": 1,
        "SLURM_JOB_START_TIME": int(start_s),
        "SLURM_JOB_END_TIME": int(start_s + job.limit_s),
        "SLURM_NNODES": 1,
        "SLURM_NODEID": 0,
        "SLURM_PROCID": 0,
        "SLURM_LOCALID": 0,
        "SLURM_SUBMIT_DIR": job.directory,
        "SLURMD_NODENAME": job.nodes[0] if job.nodes else "",
        MARK: mark_of(folder, job),
    }
    if job.array_id:
        told |= {"SLURM_ARRAY_JOB_ID": job.array_id, "SLURM_ARRAY_TASK_ID": job.task}
    return {name: str(value) for name, value in told.items()}


def of_step(folder: Path, job: FakeJob, number: int) -> dict[str, str]:
    """Return the variables that tell a step of itself."""
    told = {
        "SLURM_STEP_ID": number,
        "SLURM_STEPID": number,
        "SLURM_STEP_NODELIST": ",".join(job.nodes),
        "SLURM_STEP_NUM_NODES": 1,
        "SLURM_STEP_NUM_TASKS": 1,
        "SLURM_NTASKS": 1,
    }
    return of_job(folder, job) | {name: str(value) for name, value in told.items()}


def without_slurm(environ: Mapping[str, str]) -> dict[str, str]:
    """Return *environ* without what an outer job told."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(("SLURM_", "SLURMD_"))
    }


# The process beside each job: it runs the script, and leaves nothing behind.

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


def _wait(folder: Path, cluster: FakeCluster, script: int) -> int | None:
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


def _ours(cluster: FakeCluster, job_id: int) -> FakeJob | None:
    """Return the job that this very process supervises; None where it is over."""
    for job in cluster.jobs:
        if job.job_id == job_id and job.is_running and job.supervisor is not None:
            return job if job.supervisor.pid == os.getpid() else None
    return None


def _start(cluster: FakeCluster, job: FakeJob, told: dict[str, str]) -> int:
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


def _output(job: FakeJob) -> str:
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
