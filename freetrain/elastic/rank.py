"""The stub that a launcher starts as a rank where a spare may be listening.

Run as a file of its own, ``python -I -S rank.py COMMAND…``: it asks the spare of this
node's lease (``freetrain.elastic.spare``) for a process, and hands over all that makes
that process this rank: variables, folder, masks, standard files. Then it stands for the
process: it passes signals on, and ends as the process ends. Without an answer from a
spare it becomes COMMAND itself.

Every launch waits for one stub a rank, so it imports little: dataclasses, typing and
json would double its time.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

LEASE = "FREETRAIN_LEASE"
"""The variable that names the lease of a process' node."""

TAKEN = b"+"
"""A spare's answer once it has made a process."""

STATUS = struct.Struct("!i")
"""A spare's last message: how the process ended, as ``os.waitpid`` has it."""

PMI_FILE = b"PMI_FD"
"""The variable by which MPICH's launchers name the open file that they talk over."""

_PASSED_ON = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
)
_ANSWER_S = 2.0
_MOST_FILES = 4
_SIZE = struct.Struct("!Q")
_FILE = struct.Struct("i")
_PEER = struct.Struct("3i")  # pid, uid, gid


class ClosedError(Exception):
    """The other end is gone in the middle of a message."""


class RankRequest:
    """All that makes a process a certain rank, but for its open files.

    Attributes:
        variables: All variables.
        folder: Its working directory.
        blocked: Signals that are blocked, by number.
        processors: Processors that it may use.
    """

    __slots__ = ("blocked", "folder", "processors", "umask", "variables")

    def __init__(
        self,
        *,
        variables: dict[bytes, bytes],
        folder: bytes,
        umask: int,
        blocked: Sequence[int],
        processors: Sequence[int],
    ) -> None:
        """Take all fields; a dataclass would cost start-up time."""
        self.variables = variables
        self.folder = folder
        self.umask = umask
        self.blocked = tuple(blocked)
        self.processors = tuple(processors)


def spare_address(lease: str) -> str:
    """Return the address at which the spare of *lease* listens.

    An abstract name: it is gone with the process, and is this node's alone. Any user
    may take it or connect to it, so both ends check the other's user.
    """
    return f"\0freetrain-spare-{lease}"


def is_spare_listening(lease: str) -> bool:
    """Tell whether a spare of *lease* listens on this node."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as spare:
        spare.settimeout(_ANSWER_S)
        with suppress(OSError):
            spare.connect(spare_address(lease))
            return is_of_this_user(spare)
    return False


def is_of_this_user(peer: socket.socket) -> bool:
    """Tell whether the process at the other end belongs to this user."""
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return bool(_PEER.unpack(credentials)[1] == os.geteuid())


def send_request(peer: socket.socket, request: RankRequest) -> None:
    """Send *request*, and this process' standard files and PMI's.

    Raises:
        OSError: The other end is gone, or one of the files is not open.
    """
    lists = [_joined(request.blocked), _joined(request.processors)]
    texts = [b"%d" % request.umask, *lists, request.folder]
    texts += [b"%s=%s" % variable for variable in request.variables.items()]
    content = b"\0".join(texts)
    pmi = request.variables.get(PMI_FILE, b"")
    numbers = (0, 1, 2, int(pmi)) if pmi.isdigit() else (0, 1, 2)
    files = b"".join(map(_FILE.pack, numbers))
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, files)
    peer.sendmsg([_SIZE.pack(len(content))], [rights])
    peer.sendall(content)


def receive_request(peer: socket.socket) -> tuple[RankRequest, tuple[int, ...]]:
    """Return the request, and the numbers that its files have here, in order.

    Raises:
        ClosedError: The other end is gone.
        OSError, ValueError: The message is no request.
    """
    room = socket.CMSG_SPACE(_MOST_FILES * _FILE.size)
    head, rights, _, _ = peer.recvmsg(_SIZE.size, room)
    here = _FILE.iter_unpack(b"".join(content for *_, content in rights))
    files = tuple(file for (file,) in here)
    try:
        if len(head) < _SIZE.size:
            raise ClosedError  # noqa: TRY301 - the files are closed below
        return _parsed(_exactly(peer, _SIZE.unpack(head)[0])), files
    except BaseException:
        for file in files:
            os.close(file)
        raise


def _parsed(content: bytes) -> RankRequest:
    umask, blocked, processors, folder, *variables = content.split(b"\0")
    return RankRequest(
        variables=dict(_pair(variable) for variable in variables if variable),
        folder=folder,
        umask=int(umask),
        blocked=_numbers(blocked),
        processors=_numbers(processors),
    )


def _pair(text: bytes) -> tuple[bytes, bytes]:
    name, _, value = text.partition(b"=")
    return name, value


def _joined(numbers: Sequence[int]) -> bytes:
    return b",".join(b"%d" % number for number in numbers)


def _numbers(text: bytes) -> tuple[int, ...]:
    return tuple(map(int, text.split(b","))) if text else ()


def _exactly(peer: socket.socket, size: int) -> bytes:
    parts = []
    while size and (part := peer.recv(size)):
        parts.append(part)
        size -= len(part)
    if size:
        raise ClosedError
    return b"".join(parts)


class Stub:
    """Stands for a process that a spare made."""

    def __init__(self, spare: socket.socket) -> None:
        """Take the connection to the spare."""
        self._spare = spare
        self._woken, self._wakes = socket.socketpair()
        self._wakes.settimeout(0.0)  # as signal.set_wakeup_fd wants it
        self._before = {number: signal.getsignal(number) for number in _PASSED_ON}

    def keep_signals(self) -> None:
        """Keep signals for the process from now on; blocked ones stay blocked."""
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        for number in _PASSED_ON:
            signal.signal(number, lambda *_: None)

    def restore_signals(self) -> None:
        """Put the old handlers back, and send the signals that came meanwhile again."""
        signal.set_wakeup_fd(-1)
        for passed_on, before in self._before.items():
            signal.signal(passed_on, before)
        self._woken.settimeout(0.0)
        with suppress(BlockingIOError):
            for number in self._woken.recv(64):
                os.kill(os.getpid(), number)

    def wait(self) -> int:
        """Pass signals on until the process has ended; return its wait status.

        Raises:
            ClosedError, OSError: The spare is gone, and with it the process.
        """
        status = b""
        while len(status) < STATUS.size:
            ready = select.select([self._spare, self._woken], [], [])[0]
            if self._woken in ready:
                with suppress(OSError):  # it has ended; its status is read below
                    self._spare.sendall(self._woken.recv(64))
            if self._spare in ready:
                status += _exactly(self._spare, 1)
        return int(STATUS.unpack(status)[0])


def _ask_spare() -> Stub | None:
    """Return the stub of a process that a spare made; None where no spare did."""
    spare = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    spare.settimeout(_ANSWER_S)
    try:
        spare.connect(spare_address(os.environ[LEASE]))
    except (OSError, KeyError):
        return None
    stub = Stub(spare)
    stub.keep_signals()  # from before the process exists
    with suppress(OSError):
        if is_of_this_user(spare):
            send_request(spare, _this_process())
            if spare.recv(1) == TAKEN:
                spare.settimeout(None)
                return stub
    spare.close()
    stub.restore_signals()
    return None


def _this_process() -> RankRequest:
    umask = os.umask(0o077)
    os.umask(umask)
    return RankRequest(
        variables=dict(os.environb),
        folder=os.getcwdb(),  # noqa: PTH109 -- pathlib takes longer than all of this
        umask=umask,
        blocked=sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        processors=sorted(os.sched_getaffinity(0)),
    )


def _end_as(status: int) -> int:
    """Return the exit status in *status*, or end by the same signal."""
    if not os.WIFSIGNALED(status):
        return os.waitstatus_to_exitcode(status)
    number = os.WTERMSIG(status)
    with suppress(OSError):  # there is nothing to set for KILL
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return 128 + number


def main(argv: Sequence[str]) -> int:
    """Be the rank that *argv* names: as the stub of a spare's process, or itself."""
    command = list(argv[1:])
    stub = _ask_spare()
    if stub is None:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
            signal.signal(number, signal.SIG_DFL)
        os.execvp(command[0], command)  # noqa: S606 -- a list, and no shell
    try:
        return _end_as(stub.wait())
    except (ClosedError, OSError):
        sys.stderr.write("freetrain: the spare of this rank is gone, and the rank\n")
        return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
