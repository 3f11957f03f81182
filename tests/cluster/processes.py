"""Starting daemons, and ending exactly those: by process number, never by name."""

import ctypes
import os
import select
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from freetrain.launch.base import LEASE_MARK, WORLD_MARK
from freetrain.processes import process_ids, status_of
from tests.cluster.waiting import wait_for

_PATIENCE_S = 30.0
_PATH = os.defpath + ":/usr/sbin:/sbin"
_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>

# The number is on disk before there is a daemon: whoever dies in between, `down`
# finds it. exec keeps the number.
_LAUNCH = 'cd / && echo $$ >"$0" && exec "$@"'


def start(
    argv: Sequence[str], *, pid_file: Path, log: Path, first: Path | None = None
) -> None:
    """Start a daemon that stays in the foreground, in a session of its own.

    Returns when its process number is on disk. Programs are looked for in *first*
    before anywhere else.
    """
    path = _PATH if first is None else f"{first}:{_PATH}"
    out = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    os.posix_spawn(
        "/bin/sh",
        ["sh", "-c", _LAUNCH, str(pid_file), *argv],
        {"PATH": path, "LC_ALL": "C", "TZ": "UTC"},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), out, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    wait_for(f"{pid_file} to be written", lambda: _read_pid(pid_file))


def is_running(pid_file: Path, *, folder: Path) -> bool:
    """Tell whether the daemon of *pid_file* lives and belongs to *folder*.

    One that lives and has no command line is in the middle of its exec: ours, most
    likely (a look at such a moment once called eight fresh slurmd dead).
    """
    pid = _read_pid(pid_file)
    if pid is None:
        return False
    is_nameless = not _proc(pid, "cmdline") and _parent(pid) is not None
    return is_nameless or _belongs(pid, folder)


def stop(pid_file: Path, *, folder: Path) -> None:
    """End the daemon of *pid_file*, kindly at first, and wait until it is gone.

    A number that now is somebody else's process is left alone: its command line
    does not name *folder*.
    """
    pid = _read_pid(pid_file)
    if pid is not None:
        _end(pid, folder, (signal.SIGTERM, signal.SIGKILL))
    pid_file.unlink(missing_ok=True)


def kill_job_processes(folder: Path) -> None:
    """Kill what jobs of the cluster in *folder* have left running.

    slurmstepd outlives its slurmd, and with proctrack/linuxproc a child that
    detached itself outlives its step. They are known by SLURM_CONF in their
    environment, and what they started by its ancestors. A child that both detached
    itself and emptied its environment is not found.
    """
    _kill_all(lambda: _job_processes(folder))


def processes() -> Iterator[tuple[int, list[str], list[str]]]:
    """Yield number, command line and environment of every process but this one."""
    for pid in process_ids():
        if pid != os.getpid():
            yield pid, proc_words(pid, "cmdline"), proc_words(pid, "environ")


def mentioning(text: str) -> dict[int, str]:
    """Return the command lines of processes that have *text* there, or in a variable.

    This one is left out.
    """
    return {
        pid: " ".join(argv)
        for pid, argv, environ in processes()
        if text in "\0".join((*argv, *environ))
    }


def remove_unused(folder: Path) -> None:
    """Remove *folder* once no process mentions it.

    Jobs write there after Slurm calls their nodes idle: what an agent detached, and the
    guards that sweep after it, would find no folder, or make it anew.

    Raises:
        TimeoutError: Some process went on; nothing was removed.
    """
    of = str(folder)
    wait_for(
        lambda: f"processes of {of} to end\n{describe(mentioning(of))}",
        lambda: not mentioning(of),
        pause_s=0.2,
    )
    shutil.rmtree(folder)


def proc_words(pid: int, what: str) -> list[str]:
    """Return the words of a file of /proc that ends each with a null byte."""
    return _proc(pid, what).split("\0")


def describe(pids: Iterable[int]) -> str:
    """Return a line for each process: command, parent, state, age, and our marks.

    Its marks are the lease and the generation that its environment names.
    """
    return "\n".join(filter(None, map(_description, pids)))


def _description(pid: int) -> str:
    status = status_of(pid)
    if status is None:
        return ""
    up_s = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    age_s = up_s - status.started / os.sysconf("SC_CLK_TCK")
    marks = [
        word
        for word in proc_words(pid, "environ")
        if word.startswith((LEASE_MARK, WORLD_MARK, "SLURM_JOB_ID=", "SLURM_STEP_ID="))
    ]
    parent = " ".join(proc_words(status.parent, "cmdline")).strip()
    return (
        f"{pid} in state {status.state}, {age_s:.1f} s old, session {status.session}, "
        f"child of {status.parent} ({parent}): "
        f"{' '.join(proc_words(pid, 'cmdline')).strip()!r}; {' '.join(marks)}"
    )


def adopt_orphans() -> None:
    """Become the parent of every process below us that loses its own."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_descendants() -> None:
    """Kill every process below us, and let all of them leave the process table."""
    _kill_all(lambda: _with_descendants({os.getpid()}, dict(_parents())))
    reap_orphans()


def reap_orphans() -> None:
    """Let every child of ours that has ended leave the process table."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _kill_all(find: Callable[[], set[int]]) -> None:
    """Kill what *find* finds, until it finds nothing: some may start others."""
    for _ in range(10):
        pids = find() - {os.getpid()}
        if not pids:
            return
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                _wait(pid)


def _end(pid: int, folder: Path, signals: Sequence[signal.Signals]) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        # The handle is held before the check, so it is this process that is hit.
        if not _belongs(pid, folder):
            return
        for number in signals:
            signal.pidfd_send_signal(handle, number)
            if select.select([handle], [], [], _PATIENCE_S)[0]:
                break
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)
        _reap(pid)


def _wait(pid: int) -> None:
    handle = os.pidfd_open(pid)
    try:
        select.select([handle], [], [], _PATIENCE_S)
    finally:
        os.close(handle)


def _reap(pid: int) -> None:
    """Let a child of ours that has ended leave the process table."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _read_pid(pid_file: Path) -> int | None:
    try:
        return int(pid_file.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return None


def _belongs(pid: int, folder: Path) -> bool:
    return f"{folder}/" in _proc(pid, "cmdline")


def _job_processes(folder: Path) -> set[int]:
    """Return those of this cluster's steps and jobs, and all their descendants."""
    parents = dict(_parents())
    return _with_descendants(
        {pid for pid in parents if _is_of_a_job(pid, folder)}, parents
    )


def _with_descendants(pids: set[int], parents: Mapping[int, int]) -> set[int]:
    found = set(pids)
    grew = True
    while grew:
        children = {pid for pid, parent in parents.items() if parent in found}
        grew = not children <= found
        found |= children
    return found


def _is_of_a_job(pid: int, folder: Path) -> bool:
    """Tell steps and tasks from the shell of somebody who exported SLURM_CONF."""
    environ = "\0" + _proc(pid, "environ")
    if f"\0SLURM_CONF={folder}/slurm.conf\0" not in environ:
        return False
    return "\0SLURM_JOB_ID=" in environ or _proc(pid, "cmdline").startswith(
        "slurmstepd:"
    )


def _parents() -> Iterator[tuple[int, int]]:
    """Yield every process that is not a zombie, with its parent's number."""
    for pid in process_ids():
        parent = _parent(pid)
        if parent is not None:
            yield pid, parent


def _parent(pid: int) -> int | None:
    """Return the parent of *pid*; None where it has ended, a zombie included."""
    status = status_of(pid)
    return None if status is None or status.has_ended else status.parent


def _proc(pid: int, what: str) -> str:
    """Return a file of /proc, empty where the process is gone."""
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes().decode("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
