"""A process that waits in ``join`` with all imports done, and becomes ranks by forking.

The next world's ranks begin where it waits: what a program does before it joins, its
imports and its data above all, was done while the last world trained. What asks for a
rank is ``freetrain.elastic.rank``, which the launcher started in its place.
"""

from __future__ import annotations

import ctypes
import gc
import os
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

from freetrain.elastic.files import WORLD, warn, wear
from freetrain.elastic.rank import (
    LEASE,
    PMI_FILE,
    STATUS,
    TAKEN,
    ClosedError,
    address,
    is_of_this_user,
    receive_asked,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping, Sequence

    from freetrain.elastic.rank import Asked

UNFIT = 69
"""The exit status of one that cannot be a spare."""

_STANDARD = 2  # files up to here are replaced by a rank's own
_PATIENCE_S = 2.0
_MOST_WAITING = 4_096  # more ranks than a node has
_DRIVERS = ("/dev/nvidia-uvm", "/dev/kfd")  # torch.cuda.is_available() is enough
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def become_a_rank(variables: MutableMapping[str, str]) -> None:
    """Wait; return in each process that is to be a rank, as that rank.

    The spare itself never returns: nothing that the program does after it joined,
    or on its way out, is for it to do.

    Args:
        variables: This process' own variables, ``os.environ``; the rank's when it
            returns.
    """
    why = _why_unfit()
    if why:
        warn(
            f"{why} before elastic.join(), and a process that did so cannot be made a "
            f"rank. This spare ends, and ranks start without one. Do that after "
            f"join(), or set spare = false."
        )
        _leave(UNFIT)
    try:
        wear(variables[WORLD])  # as ranks will have to
        spare = _Spare(variables[LEASE], variables[WORLD])
    except (OSError, ValueError, KeyError) as error:
        warn(f"this process cannot be a spare: {error!r}. Ranks start without one.")
        _leave(UNFIT)
    _flush()  # else ranks would say it again
    # Ranks share its memory for as long as nobody writes there, and the collector does.
    gc.freeze()
    asked = spare.wait()
    if asked is None:
        _leave(0)
    told = asked.variables.items()
    variables.clear()
    variables.update({os.fsdecode(name): os.fsdecode(text) for name, text in told})


def _why_unfit() -> str:
    """Return what the program did that does not survive a fork; mostly nothing."""
    mpi, torch = sys.modules.get("mpi4py.MPI"), sys.modules.get("torch")
    if mpi is not None and mpi.Is_initialized():
        return "MPI was started, as importing mpi4py.MPI does,"
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA was started"
    if threading.active_count() > 1:
        return "a thread was started"
    return next(_shared(), "")


def _shared() -> Iterator[str]:
    """Tell of open files whose position all ranks that are made here would share."""
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            where = str(entry.readlink())
            if where.startswith(_DRIVERS):
                yield f"CUDA or ROCm was started ({where} is open)"
            mode = entry.stat().st_mode
            is_shared = S_ISREG(mode) or S_ISSOCK(mode) or S_ISFIFO(mode)
            if is_shared and int(entry.name) > _STANDARD:
                yield f"{where} was opened"


class _Spare:
    """Makes ranks, and minds them."""

    def __init__(self, lease: str, world: str) -> None:
        self._trainer = world.rpartition("/")[0]
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(address(lease))
        self._listener.listen(_MOST_WAITING)
        self._woken, self._wakes = socket.socketpair()
        self._wakes.settimeout(0.0)
        self._ranks: dict[socket.socket, int] = {}
        self._is_ending = False
        self._selector = selectors.DefaultSelector()

    def wait(self) -> Asked | None:
        """Make ranks; return in each what it is to be, None in the spare at its end."""
        heard = (signal.SIGTERM, signal.SIGCHLD)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        before = {one: signal.signal(one, lambda *_: None) for one in heard}
        for one in (self._listener, self._woken):
            self._selector.register(one, selectors.EVENT_READ)
        while self._ranks or not self._is_ending:
            asked = self._turn()
            if asked is not None:
                for number, handler in before.items():
                    signal.signal(number, handler)
                return asked
        return None

    def _turn(self) -> Asked | None:
        for key, _ in self._selector.select():
            if key.fileobj is self._woken:
                self._hear()
            elif key.fileobj is self._listener:
                asked = self._admit()
                if asked is not None:
                    return asked
            else:
                self._pass_on(key.fileobj)
        return None

    def _admit(self) -> Asked | None:
        """Make a rank for who has come; return in it what it is to be."""
        with suppress(OSError):
            peer, _ = self._listener.accept()
            peer.settimeout(_PATIENCE_S)
            try:
                asked, here = self._receive(peer)
            except (ClosedError, OSError, ValueError):
                peer.close()
                return None
            spare = os.getpid()
            try:
                pid = os.fork() if _is_waiting(peer) else None
            except OSError:
                pid = None
            if pid == 0:
                self._be(asked, (peer, here), spare=spare)
                return asked
            # Kept here, they would be open for as long as this process is.
            for one in here:
                os.close(one)
            if pid is None:
                peer.close()
            else:
                self._mind(pid, peer)
        return None

    def _receive(self, peer: socket.socket) -> tuple[Asked, tuple[int, ...]]:
        if not is_of_this_user(peer):
            raise ClosedError
        asked, here = receive_asked(peer)
        if _world(asked).rpartition("/")[0] == self._trainer:
            return asked, here
        for one in here:
            os.close(one)
        raise ClosedError

    def _mind(self, pid: int, peer: socket.socket) -> None:
        self._ranks[peer] = pid
        self._selector.register(peer, selectors.EVENT_READ)
        with suppress(OSError):
            peer.sendall(TAKEN)

    def _pass_on(self, peer: object) -> None:
        """Give a rank the signals that came for it; kill one that nobody stands for."""
        if not isinstance(peer, socket.socket) or peer not in self._ranks:
            return  # it has ended in this very turn
        try:
            numbers = peer.recv(64)
        except OSError:
            numbers = b""
        if not numbers:
            self._selector.unregister(peer)
        # Not reaped before _hear, so that the number is still this rank's.
        for number in numbers or (signal.SIGKILL,):
            with suppress(OSError):
                os.kill(self._ranks[peer], number)

    def _hear(self) -> None:
        self._is_ending |= signal.SIGTERM in self._woken.recv(4096)
        if self._is_ending and self._listener.fileno() >= 0:
            self._selector.unregister(self._listener)
            self._listener.close()
        for peer, pid in list(self._ranks.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._tell(peer, status)

    def _tell(self, peer: socket.socket, status: int) -> None:
        del self._ranks[peer]
        with suppress(KeyError):
            self._selector.unregister(peer)
        with suppress(OSError):
            peer.sendall(STATUS.pack(status))
        peer.close()

    def _be(
        self, asked: Asked, came: tuple[socket.socket, Sequence[int]], *, spare: int
    ) -> None:
        """Make this fork the rank of *asked*, but for its variables."""
        peer, here = came
        try:
            os.setpgid(0, 0)  # what is done to its group is not done to the spare
            signal.set_wakeup_fd(-1)
            _die_with(spare)
            self._selector.close()
            own = (self._listener, self._woken, self._wakes)
            for one in (*own, peer, *self._ranks):
                one.close()
            _take_on(asked, here)
        except BaseException as error:  # noqa: BLE001 - else it would be a second spare
            warn(f"a spare could not become a rank: {error!r}")
            _leave(1)


def _is_waiting(peer: socket.socket) -> bool:
    """Tell whether who asked still wants a process, and has not helped itself."""
    is_readable = bool(select.select([peer], [], [], 0.0)[0])
    return not is_readable or peer.recv(1, socket.MSG_PEEK) != b""


def _die_with(spare: int) -> None:
    """Have this process killed when the spare is: nobody would mind it any more."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != spare:
        os.kill(os.getpid(), signal.SIGKILL)


def _take_on(asked: Asked, here: Sequence[int]) -> None:
    for wanted, one in enumerate(here[: _STANDARD + 1]):
        os.dup2(one, wanted)
        os.close(one)
    for one in here[_STANDARD + 1 :]:
        asked.variables[PMI_FILE] = b"%d" % one
    os.chdir(asked.folder)
    os.umask(asked.umask)
    os.sched_setaffinity(0, asked.processors)
    wear(_world(asked))
    if isinstance(sys.stdout, TextIOWrapper):  # it was made for the spare's output
        sys.stdout.reconfigure(line_buffering=os.isatty(1))
    signal.pthread_sigmask(signal.SIG_SETMASK, asked.blocked)


def _world(asked: Asked) -> str:
    return os.fsdecode(asked.variables.get(WORLD.encode(), b""))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def _leave(status: int) -> NoReturn:
    _flush()
    os._exit(status)
