"""A spare: a process that waits in ``join`` with all imports done, and forks ranks.

The next world's ranks begin where the spare waits: everything that a program does
before it joins, its imports and its data above all, was done while the last world
trained. The stub ``freetrain.elastic.rank``, which the launcher starts as a rank, asks
the spare for the fork.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import select
import selectors
import signal
import socket
import sys
import threading
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from stat import S_ISFIFO, S_ISREG, S_ISSOCK
from typing import TYPE_CHECKING, NoReturn

from freetrain.elastic.contract import SPARE, WITH_MPI
from freetrain.elastic.files import warn
from freetrain.elastic.rank import (
    LEASE,
    PMI_FILE,
    STATUS,
    TAKEN,
    ClosedError,
    is_of_this_user,
    receive_request,
    spare_address,
)
from freetrain.elastic.world import is_loaded_mpi_found, load_mpi

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping, Sequence

    from freetrain.elastic.rank import RankRequest

WORLD = "FREETRAIN_WORLD"
"""Names the generation that a process belongs to, ``TRAINER/G``."""

UNFIT = 69
"""The exit status of a process that cannot be a spare."""

_STANDARD = 2  # files up to here are replaced by a rank's own
_REQUEST_WITHIN_S = 2.0
_BACKLOG = 4_096  # more ranks than a node has
_DRIVERS = ("/dev/nvidia-uvm", "/dev/kfd")  # torch.cuda.is_available() is enough
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_ENV_START, _ENV_END = 47, 48  # fields of stat(5) after the name, from 0


def become_a_rank(variables: MutableMapping[str, str]) -> None:
    """Wait, and return in each forked rank.

    The spare itself never returns: it must not run the rest of the program, nor its
    exit handlers.

    Args:
        variables: This process' own variables, ``os.environ``; replaced by the
            rank's before the return.
    """
    why = _why_unfit(variables)
    if why:
        warn(
            f"{why} before elastic.join(), and a process that did so cannot be made a "
            f"rank. This spare ends, and ranks start without one. Do that after "
            f"join(), or set spare = false."
        )
        _leave(UNFIT)
    try:
        mark_environ(variables[WORLD])  # ranks will have to do it too
        spare = _Spare(variables[LEASE], variables[WORLD])
    except (OSError, ValueError, KeyError) as error:
        warn(f"this process cannot be a spare: {error!r}. Ranks start without one.")
        _leave(UNFIT)
    if WITH_MPI in variables[SPARE].split(","):
        load_mpi()
    _flush()  # else ranks would print the same text again
    # Ranks share its memory until it is written to, and the garbage collector writes.
    gc.freeze()
    request = spare.wait()
    if request is None:
        _leave(0)
    variables.clear()
    for name, text in request.variables.items():
        variables[os.fsdecode(name)] = os.fsdecode(text)
    if not is_loaded_mpi_found(variables.get("LD_LIBRARY_PATH", "")):
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606


def _why_unfit(variables: MutableMapping[str, str]) -> str:
    """Return what the program did that does not survive a fork; empty if nothing."""
    if asked := asked_variables(variables):
        return f"its rank was looked for ({', '.join(asked)})"
    mpi, torch = sys.modules.get("mpi4py.MPI"), sys.modules.get("torch")
    if mpi is not None and mpi.Is_initialized():
        return "MPI was started, as importing mpi4py.MPI does,"
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA was started"
    if threading.active_count() > 1:
        return "a thread was started"
    return next(_shared_files(), "")


def _shared_files() -> Iterator[str]:
    """Name open files whose position all forked ranks would share."""
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            where = str(entry.readlink())
            if where.startswith(_DRIVERS):
                yield f"CUDA or ROCm was started ({where} is open)"
            mode = entry.stat().st_mode
            is_shared = S_ISREG(mode) or S_ISSOCK(mode) or S_ISFIFO(mode)
            if is_shared and int(entry.name) > _STANDARD:
                yield f"{where} was opened"


# A program that was not written for spares may take its rank, or its device, from a
# variable before it joins; all forks would have the spare's, which has none.

_OF_A_RANK = re.compile(
    rb"(LOCAL_|GLOBAL_|GROUP_|NODE_)?RANK|(LOCAL_)?WORLD_SIZE|MASTER_(ADDR|PORT)"
    rb"|(OMPI|PMI|PMIX|PMI2|MPI|SLURM)_.*(RANK|SIZE|PROCID|LOCALID|NODEID|NTASKS).*"
)


class _Noting(dict[bytes, bytes]):
    """The variables of a process; notes which of a rank's were asked for."""

    def __init__(self, variables: dict[bytes, bytes]) -> None:
        super().__init__(variables)
        self.asked: set[bytes] = set()

    def __getitem__(self, name: bytes) -> bytes:
        if _OF_A_RANK.fullmatch(name):
            self.asked.add(name)
        return super().__getitem__(name)


def watch_variables() -> None:
    """Note from now on which variables the program asks for."""
    own = vars(os.environ)
    own["_data"] = _Noting(own["_data"])


def asked_variables(variables: MutableMapping[str, str]) -> tuple[str, ...]:
    """Return the variables of a rank that were asked for; none where none watched."""
    found = getattr(variables, "_data", None)
    if not isinstance(found, _Noting):
        return ()
    return tuple(sorted(map(os.fsdecode, found.asked)))


class _Spare:
    """Forks ranks for the stubs that ask, passes signals on, and reports their ends."""

    def __init__(self, lease: str, world: str) -> None:
        self._trainer = world.rpartition("/")[0]
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(spare_address(lease))
        self._listener.listen(_BACKLOG)
        self._woken, self._wakes = socket.socketpair()
        self._wakes.settimeout(0.0)
        self._ranks: dict[socket.socket, int] = {}
        self._is_ending = False
        self._selector = selectors.DefaultSelector()

    def wait(self) -> RankRequest | None:
        """Fork ranks; return its request in each, and None in the spare at its end."""
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        before = {
            number: signal.signal(number, lambda *_: None)
            for number in (signal.SIGTERM, signal.SIGCHLD)
        }
        for readable in (self._listener, self._woken):
            self._selector.register(readable, selectors.EVENT_READ)
        while self._ranks or not self._is_ending:
            request = self._handle_events()
            if request is not None:
                for number, handler in before.items():
                    signal.signal(number, handler)
                return request
        return None

    def _handle_events(self) -> RankRequest | None:
        for key, _ in self._selector.select():
            if key.fileobj is self._woken:
                self._handle_signals()
            elif key.fileobj is self._listener:
                request = self._admit()
                if request is not None:
                    return request
            else:
                self._pass_on(key.fileobj)
        return None

    def _admit(self) -> RankRequest | None:
        """Fork a rank for the stub that connects; return its request in the rank."""
        with suppress(OSError):
            peer, _ = self._listener.accept()
            peer.settimeout(_REQUEST_WITHIN_S)
            try:
                request, files = self._receive(peer)
            except (ClosedError, OSError, ValueError):
                peer.close()
                return None
            spare = os.getpid()
            try:
                pid = os.fork() if _is_waiting(peer) else None
            except OSError:
                pid = None
            if pid == 0:
                self._become(request, (peer, files), spare=spare)
                return request
            # Kept here, they would be open for as long as this process is.
            for file in files:
                os.close(file)
            if pid is None:
                peer.close()
            else:
                self._watch(pid, peer)
        return None

    def _receive(self, peer: socket.socket) -> tuple[RankRequest, tuple[int, ...]]:
        if not is_of_this_user(peer):
            raise ClosedError
        request, files = receive_request(peer)
        if _world(request).rpartition("/")[0] == self._trainer:
            return request, files
        for file in files:
            os.close(file)
        raise ClosedError

    def _watch(self, pid: int, peer: socket.socket) -> None:
        self._ranks[peer] = pid
        self._selector.register(peer, selectors.EVENT_READ)
        with suppress(OSError):
            peer.sendall(TAKEN)

    def _pass_on(self, peer: object) -> None:
        """Send a rank the signals of its stub; kill it where the stub is gone."""
        if not isinstance(peer, socket.socket) or peer not in self._ranks:
            return  # it has ended among these events
        try:
            numbers = peer.recv(64)
        except OSError:
            numbers = b""
        if not numbers:
            self._selector.unregister(peer)
        # Not reaped before _handle_signals, so that the number is still this rank's.
        for number in numbers or (signal.SIGKILL,):
            with suppress(OSError):
                os.kill(self._ranks[peer], number)

    def _handle_signals(self) -> None:
        self._is_ending |= signal.SIGTERM in self._woken.recv(4096)
        if self._is_ending and self._listener.fileno() >= 0:
            self._selector.unregister(self._listener)
            self._listener.close()
        for peer, pid in list(self._ranks.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._report_end(peer, status)

    def _report_end(self, peer: socket.socket, status: int) -> None:
        del self._ranks[peer]
        with suppress(KeyError):
            self._selector.unregister(peer)
        with suppress(OSError):
            peer.sendall(STATUS.pack(status))
        peer.close()

    def _become(
        self,
        request: RankRequest,
        connection: tuple[socket.socket, Sequence[int]],
        *,
        spare: int,
    ) -> None:
        """Make this fork the rank of *request*, but for its variables."""
        peer, files = connection
        try:
            os.setpgid(0, 0)  # a signal to its group must not reach the spare
            signal.set_wakeup_fd(-1)
            _die_with(spare)
            self._selector.close()
            own = (self._listener, self._woken, self._wakes)
            for connected in (*own, peer, *self._ranks):
                connected.close()
            _take_on(request, files)
        except BaseException as error:  # noqa: BLE001 - else it would be a second spare
            warn(f"a spare could not become a rank: {error!r}")
            _leave(1)


def _is_waiting(peer: socket.socket) -> bool:
    """Tell whether the stub still waits, and has not become the program itself."""
    is_readable = bool(select.select([peer], [], [], 0.0)[0])
    return not is_readable or peer.recv(1, socket.MSG_PEEK) != b""


def _die_with(spare: int) -> None:
    """Have the kernel kill this process with the spare, which watches it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != spare:
        os.kill(os.getpid(), signal.SIGKILL)


def _take_on(request: RankRequest, files: Sequence[int]) -> None:
    for number, file in enumerate(files[: _STANDARD + 1]):
        os.dup2(file, number)
        os.close(file)
    for file in files[_STANDARD + 1 :]:
        request.variables[PMI_FILE] = b"%d" % file
    os.chdir(request.folder)
    os.umask(request.umask)
    os.sched_setaffinity(0, request.processors)
    mark_environ(_world(request))
    if isinstance(sys.stdout, TextIOWrapper):  # it was made for the spare's output
        sys.stdout.reconfigure(line_buffering=os.isatty(1))
    signal.pthread_sigmask(signal.SIG_SETMASK, request.blocked)


def _world(request: RankRequest) -> str:
    return os.fsdecode(request.variables.get(WORLD.encode(), b""))


# The variable by which agents know the owner of a process, as the kernel shows it.


def mark_environ(world: str) -> None:
    """Have ``/proc/PID/environ`` show *world*, padded with zeros.

    The kernel shows the memory that a process got its variables in when it was
    started, so that a fork still shows its parent's.

    Args:
        world: A trainer and one of its generations, ``TRAINER/G``.

    Raises:
        OSError: This process may not write there.
        ValueError: There is no such variable, or it has no room for *world*.
    """
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
    with Path("/proc/self/mem").open("r+b", buffering=0) as memory:
        memory.seek(start)
        there = b"\0" + memory.read(end - start)
        name = f"\0{WORLD}=".encode()
        at = there.index(name) + len(name)
        mark = _filled(os.fsencode(world), there.index(b"\0", at) - at)
        memory.seek(start + at - 1)
        memory.write(mark)


def _filled(world: bytes, room: int) -> bytes:
    trainer, _, generation = world.rpartition(b"/")
    mark = b"%s/%s" % (trainer, generation.zfill(room - len(trainer) - 1))
    if len(mark) != room:
        raise ValueError(f"there is no room for {world!r}")
    return mark


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def _leave(status: int) -> NoReturn:
    _flush()
    os._exit(status)
