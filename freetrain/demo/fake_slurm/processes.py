"""The processes of the fake Slurm: installed, started, signalled, and supervised.

``install`` writes the programs into a folder, and ``at_work`` lets time go by there.
``bring_to`` brings state and processes to now: every program does so first. A job's
script runs below a supervisor, which leaves nothing behind. What process groups miss,
children that made a session of their own, is found by a mark in the environment, and by
descent: the supervisor inherits its orphans. Together they stand in for the control
groups that Slurm itself would use.
"""

from __future__ import annotations

import os
import pwd
import shlex
import signal
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.demo.fake_slurm.cluster import (
    FREETRAIN,
    MAIN,
    Deed,
    FakeCluster,
    FakeJobState,
    Order,
    Process,
    advance,
    end,
    opened,
    read,
    write,
)
from freetrain.processes import environments, process_ids, status_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from freetrain.demo.fake_slurm.cluster import ClusterPart, FakeJob


# ----------------------------------------------------------------------
# A fake Slurm in a folder

NAMES = (
    "sbatch",
    "scancel",
    "scontrol",
    "sdiag",
    "sinfo",
    "squeue",
    "srun",
    "sacctmgr",
)


def command(folder: Path, program: str) -> list[str]:
    """Return the command that is *program*, without its arguments."""
    top = Path(__file__).resolve().parents[3]
    code = (
        f"import sys; sys.path.insert(0, {str(top)!r}); from pathlib import Path; "
        f"from freetrain.demo.fake_slurm.commands import main; "
        f"sys.exit(main(Path({str(folder)!r}), {program!r}, sys.argv[1:]))"
    )
    return [sys.executable, "-I", "-S", "-c", code]


_PATIENCE_S = 10.0
_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class FakeSlurmFolder:
    """A fake Slurm in a folder of its own.

    Attributes:
        folder: Has ``bin`` with the programs, and their state.
    """

    folder: Path

    @property
    def path(self) -> str:
        """The folder to put first on the PATH."""
        return str(self.folder / "bin")

    def look(self) -> FakeCluster:
        """Return the state as the last program left it.

        Raises:
            OSError: It is gone.
        """
        return read(self.folder)

    def add(self, jobs: Sequence[FakeJob]) -> None:
        """Let other users' *jobs* arrive at their times; each gets a number.

        Raises:
            OSError: The state is gone or cannot be kept.
        """
        with opened(self.folder) as cluster:
            for job in jobs:
                job.job_id = cluster.take_id()
                cluster.jobs.append(job)

    def wire(self, leaves: Mapping[str, Sequence[str]]) -> None:
        """Put nodes below leaf switches, by the switches' names; none for no topology.

        Raises:
            OSError: The state is gone or cannot be kept.
        """
        with opened(self.folder) as cluster:
            cluster.leaves = {name: list(nodes) for name, nodes in leaves.items()}

    def promote(self, level: str) -> str:
        """Give our user an administrator's level; return the user's name.

        A coordinator has the level "None", as far as slurmctld's record of users shows.

        Raises:
            OSError: The state is gone or cannot be kept.
        """
        with opened(self.folder) as cluster:
            cluster.admin_level = "None" if level == "Coordinator" else level
            return cluster.user

    def limit(
        self,
        *,
        nodes: int | None = None,
        account: str = "physics",
        submitted: int | None = None,
        are_shown: bool = True,
    ) -> None:
        """Limit the nodes of all jobs of *account*, and the jobs that our user has.

        Raises:
            OSError: The state is gone or cannot be kept.
        """
        with opened(self.folder) as cluster:
            cluster.node_limits = {} if nodes is None else {account: nodes}
            cluster.submit_limit, cluster.shows_limits = submitted, are_shown

    def stop(self) -> None:
        """End every job, and return when no process of any is left.

        Raises:
            TimeoutError: Some still were after ten seconds, killed though they are.
        """
        until_s = time.monotonic() + _PATIENCE_S
        while alive := self._end_all():
            if time.monotonic() > until_s:
                raise TimeoutError(f"still there: {alive}; look in {self.folder}")
            time.sleep(_PAUSE_S)

    def _end_all(self) -> list[int]:
        """End every job; return the supervisors that are not done yet."""
        now_s = time.time()  # noqa: TID251 - the state's own clock
        with opened(self.folder) as cluster:
            for job in cluster.jobs:
                if job.is_pending or job.is_running:
                    orders = end(job, FakeJobState.CANCELLED, now_s)
                    carry_out(self.folder, cluster, orders)
                if job.is_completing:
                    signal_marked(mark_of(self.folder, job), signal.SIGKILL)
            bring_to(self.folder, cluster, now_s)
            there = [job.supervisor for job in cluster.jobs]
        return [process.pid for process in there if process and is_alive(process)]


def install(
    folder: Path,
    *,
    now_s: float,
    runs_jobs: bool = True,
    user: str = "",
    parts: Sequence[ClusterPart] = (MAIN, FREETRAIN),
) -> FakeSlurmFolder:
    """Write the programs into *folder*, which must exist; nothing runs yet.

    Args:
        folder: Empty.
        now_s: Unix time.
        runs_jobs: Whether scripts are run; where not, jobs last until ended.
        user: Whose jobs they are; empty for our own user.
        parts: The partitions.

    Raises:
        OSError: They cannot be written.
    """
    folder = folder.resolve()
    cluster = FakeCluster(
        user=user or pwd.getpwuid(os.getuid()).pw_name,
        uid=os.getuid(),
        parts=list(parts),
        runs_jobs=runs_jobs,
        keeper=process_of(os.getpid()),
        since_s=now_s,
        planned_s=now_s,
    )
    (folder / _EXITS).mkdir()
    write(folder, cluster)
    (folder / "bin").mkdir()
    for name in NAMES:
        path = folder / "bin" / name
        words = shlex.join(command(folder, name))
        path.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
        path.chmod(0o700)
    return FakeSlurmFolder(folder)


@contextmanager
def at_work(slurm: FakeSlurmFolder) -> Iterator[FakeSlurmFolder]:
    """Let time go by on *slurm* while the block runs; leave none of its processes.

    They also end by themselves within a second where this process is killed, or where
    the folder is removed.
    """
    import subprocess  # noqa: PLC0415 - programs start without

    controller = subprocess.Popen(  # noqa: S603 - our own words, no shell
        command(slurm.folder, "control"),
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C reaches the keeper only, which then stops us
    )
    try:
        yield slurm
    finally:
        slurm.stop()
        controller.kill()
        controller.wait()


# ----------------------------------------------------------------------
# Time goes by: state and processes are brought to now

_TICK_S = 0.1


def control(folder: Path) -> int:
    """Bring the state to now again and again, until the keeper or the folder is gone.

    Every other program brings it to now once; this one lets things happen in time.
    """
    while True:
        try:
            with opened(folder) as cluster:
                bring_to(folder, cluster, machine_now_s())
        except FileNotFoundError:
            return 0
        if cluster.keeper is not None and not is_alive(cluster.keeper):
            return 0
        reap()
        time.sleep(_TICK_S)


def bring_to(folder: Path, cluster: FakeCluster, now_s: float) -> None:
    """Bring *cluster* to *now_s*, and start and signal processes as it says."""
    lost = _lost(cluster)  # first: a supervisor reports, then goes
    exits = exit_statuses(folder)
    for job in cluster.jobs:
        if job.job_id in lost.keys() - exits.keys():
            signal_marked(mark_of(folder, job), signal.SIGKILL)
    carry_out(folder, cluster, advance(cluster, now_s, exits=lost | exits))


def _lost(cluster: FakeCluster) -> dict[int, int]:
    """Return the jobs whose supervisor was killed and cannot report their end."""
    return {
        job.job_id: 1
        for job in cluster.jobs
        if job.supervisor is not None and not is_alive(job.supervisor)
    }


def carry_out(folder: Path, cluster: FakeCluster, orders: Sequence[Order]) -> None:
    """Start and signal processes.

    The state is written before anything is signalled: scancel may be part of the
    very job that it kills.
    """
    signals = [order for order in orders if order.deed is not Deed.START]
    for order in orders:
        if order.deed is Deed.START:
            _start_supervisor(folder, order)
    if signals:
        write(folder, cluster)
    for order in signals:
        _signal(folder, order)


def _start_supervisor(folder: Path, order: Order) -> None:
    # A bare environment: a supervisor that a lease's own call happened to start must
    # not be taken for a process of that lease.
    words = [*command(folder, "supervise"), str(order.job.job_id)]
    order.job.supervisor = detach(words, {"HOME": os.environ.get("HOME", "/")})


def _signal(folder: Path, order: Order) -> None:
    number = signal.Signals[f"SIG{order.signal}"]
    for process in order.job.steps:
        signal_group(process, number)
    if order.deed is Deed.SIGNAL_ALL and order.job.batch is not None:
        signal_group(order.job.batch, number)
    if number == signal.SIGKILL:
        signal_marked(mark_of(folder, order.job), number)


def machine_now_s() -> float:
    """Return the Unix time by the machine's clock."""
    return time.time()  # noqa: TID251 - whole programs: this is the edge


# ----------------------------------------------------------------------
# Processes: started, looked at, signalled, and found

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
    """Send a signal to every process that bears *mark*; return how many there were.

    Where some may not have been seen, they count as one more.
    """
    count = 0
    try:
        for pid in _marked(mark):
            count += 1
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
    except OSError:
        count += 1
    return count


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


# ----------------------------------------------------------------------
# The environment that batch scripts and steps find


def mark_of(folder: Path, job: FakeJob) -> str:
    """Return the text that marks the processes of *job*."""
    return f"{folder}:{job.job_id}"


def login_environment(user: str, home: str) -> dict[str, str]:
    """Return the variables that a user finds after logging in."""
    path = f"/usr/local/bin{os.pathsep}/usr/bin{os.pathsep}/bin"
    return {"HOME": home, "USER": user, "LOGNAME": user, "PATH": path}


def job_environment(folder: Path, job: FakeJob) -> dict[str, str]:
    """Return the variables that describe its job to a batch script."""
    start_s = job.start_s or 0.0
    described = {
        "SLURM_STEP_ID": -5,  # the batch script's, as from 26.05 on
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
        described |= {
            "SLURM_ARRAY_JOB_ID": job.array_id,
            "SLURM_ARRAY_TASK_ID": job.task,
        }
    return {name: str(value) for name, value in described.items()}


def step_environment(folder: Path, job: FakeJob, number: int) -> dict[str, str]:
    """Return the variables that describe a step to itself."""
    described = {
        "SLURM_STEP_ID": number,
        "SLURM_STEPID": number,
        "SLURM_STEP_NODELIST": ",".join(job.nodes),
        "SLURM_STEP_NUM_NODES": 1,
        "SLURM_STEP_NUM_TASKS": 1,
        "SLURM_NTASKS": 1,
    }
    return job_environment(folder, job) | {
        name: str(value) for name, value in described.items()
    }


def without_slurm(environ: Mapping[str, str]) -> dict[str, str]:
    """Return *environ* without the variables of an outer job."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(("SLURM_", "SLURMD_"))
    }


# ----------------------------------------------------------------------
# The supervisor of a job: it runs the script, and leaves nothing behind

LOOK_S = 0.25
_SWEEP_PAUSE_S = 0.02
_EXITS = "exits"
_NOT_STARTED = 127


def exit_statuses(folder: Path) -> dict[int, int]:
    """Return the status of each script that is over, by its job's raw number."""
    found = {}
    for path in (folder / _EXITS).iterdir():
        number, _, status = path.name.partition("-")
        if number.isdecimal():
            found[int(number)] = int(status)
    return found


def supervise(folder: Path, job_id: int) -> None:
    """Run the script of a job that was just started, and report its exit status."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    inherit_orphans()
    job = None
    try:
        with opened(folder) as cluster:  # locked: no program ends the job meanwhile
            job = _ours(cluster, job_id)
            if job is None:
                return
            script = _start_script(cluster, job, job_environment(folder, job))
            job.batch = process_of(script)
    except OSError:  # the folder was removed meanwhile, or the disk is full
        if job is not None:
            _sweep(mark_of(folder, job), patience_s=0.0)
        return
    status = _wait(folder, cluster, script)
    is_killed = status is None or os.WIFSIGNALED(status)
    _sweep(mark_of(folder, job), patience_s=0.0 if is_killed else cluster.kill_wait_s)
    code = os.waitstatus_to_exitcode(status or 0)
    if folder.exists():
        (folder / _EXITS / f"{job_id}-{abs(code)}").touch()


def _wait(folder: Path, cluster: FakeCluster, script: int) -> int | None:
    """Return the script's wait status; None if keeper or folder went first."""
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


def _start_script(cluster: FakeCluster, job: FakeJob, described: dict[str, str]) -> int:
    """Start the script in a session of its own, and return its number."""
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home needs another import
    environ = login_environment(cluster.user, home) | job.environment | described
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
