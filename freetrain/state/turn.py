"""The turn to change the state: numbered files, taken one after the other by link(2).

``turns/0000000007`` is the seventh turn. To take the eighth is to create its file,
which only one process can do, on NFS too and whether or not its locks work. No file of
a turn is ever taken over: where a holder is dead, the next number is taken, so that two
who find it dead cannot both follow it. A holder rewrites its file every few seconds,
and at its end marks it as free; a tick that was frozen finds a later number and stops.

A holder is dead where its process is gone from this host. On another host it is dead
where its file has not changed for ``TURN_SILENT_S``. That is measured by files that
this host writes, from one try to the next: clocks of two hosts are never compared.
"""

from __future__ import annotations

import json
import os
import re
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.elastic.files import create_once

if TYPE_CHECKING:
    from collections.abc import Callable

TURNS = "turns"

TURN_BEAT_S = 5.0
"""A holder shows that it lives so often."""

TURN_SILENT_S = 45.0
"""A holder that shows nothing for so long is dead: less than from one tick of cron to
the next, so that one tick is lost at most."""

_KEPT = 4
_NUMBER = re.compile(r"[0-9]{10}", re.ASCII)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")


@dataclass(frozen=True, slots=True)
class TickProcess:
    """A process that ticks: its host, its number there, and where that number counts.

    Attributes:
        boot_id: The host's boot and, as containers number their own processes, the
            namespace of the number. Processes of another one may be alive unseen.
    """

    host: str
    pid: int
    boot_id: str


def this_process() -> TickProcess:
    """Return this process; its boot is empty where the kernel does not say."""
    boot_id = ""
    with suppress(OSError):
        boot_id = _BOOT_ID.read_text(encoding="ascii").strip()
        boot_id += f" {_NAMESPACE.readlink()}"
    return TickProcess(os.uname().nodename, os.getpid(), boot_id)


def is_alive(pid: int) -> bool:
    """Tell whether a process of this host lives; another user's process does."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


@dataclass(frozen=True, slots=True)
class TurnHolder:
    """The content of a turn's file.

    Attributes:
        host: Of the process that holds the turn; empty where the file is unreadable.
        pid: Its number there.
        boot_id: That host's boot.
        beat: Counts up while the process lives.
        is_free: Whether it has given the turn up.
    """

    host: str = ""
    pid: int = 0
    boot_id: str = ""
    beat: int = 0
    is_free: bool = False


class StateTurn:
    """A turn that this process has taken.

    Attributes:
        number: Later turns have higher ones.
        path: Its file, rewritten every few seconds.
        taken_s: When it was taken, Unix time by the file server's clock.
    """

    def __init__(self, folder: Path, number: int, holder: TurnHolder) -> None:
        self.number = number
        self.path = turn_file(folder, number)
        self.taken_s = self.path.stat().st_mtime
        self._folder = folder
        self._holder = holder
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._beat, name="freetrain-turn", daemon=True
        )
        self._thread.start()

    def is_held(self) -> bool:
        """Tell whether no later turn was taken, as this process seemed dead.

        Raises:
            OSError: The folder cannot be listed, so that it is unknown.
        """
        return newest_turn(self._folder) == self.number

    def is_followed_by(self, number: int) -> bool:
        """Tell whether the file of the later turn *number* is there.

        A file that is asked for by name is seen where a list of the folder is old.
        """
        return turn_file(self._folder, number).exists()

    def release(self) -> None:
        """Let the next process have its turn; it finds a dead one where this fails."""
        self._ended.set()
        self._thread.join()
        with suppress(OSError):
            self._rewrite(replace(self._holder, is_free=True))

    def _beat(self) -> None:
        beats = self._holder.beat
        while not self._ended.wait(TURN_BEAT_S):
            beats += 1
            with suppress(OSError):  # the next beat may succeed
                if not self.is_held():
                    return
                self._rewrite(replace(self._holder, beat=beats))

    def _rewrite(self, holder: TurnHolder) -> None:
        name = f".{self.path.name}.{os.urandom(8).hex()}"
        temporary = self.path.with_name(name)
        try:
            temporary.write_bytes(_render(holder))
            temporary.replace(self.path)
        finally:
            with suppress(OSError):
                temporary.unlink()


def take_turn(
    state: Path,
    process: TickProcess,
    *,
    is_alive: Callable[[int], bool] = is_alive,
    silent_s: float = TURN_SILENT_S,
) -> StateTurn | TurnHolder:
    """Take the next turn in the state directory *state*.

    Args:
        state: The state directory.
        process: This process.
        is_alive: Tells whether a process of this host lives.
        silent_s: A holder on another host is dead after so long.

    Returns:
        The turn; or the process that holds the last one, or may.

    Raises:
        OSError: The folder cannot be read or written.
    """
    folder = state / TURNS
    folder.mkdir(mode=0o700, exist_ok=True)
    last = newest_turn(folder)
    if last:
        holder = read_holder(folder, last)
        is_dead = (
            holder.is_free
            or _is_gone(holder, process, is_alive)
            or _has_been_silent(folder, last, holder, process, silent_s)
        )
        if not is_dead:
            return holder
    mine = TurnHolder(**asdict(process))
    if not create_once(turn_file(folder, last + 1), _render(mine)):
        return read_holder(folder, last + 1)
    newest = newest_turn(folder)
    if newest != last + 1:  # this process slept since it listed the folder
        return read_holder(folder, newest)
    _remove_old(folder, newest)
    return StateTurn(folder, newest, mine)


def newest_turn(folder: Path) -> int:
    """Return the number of the last turn in *folder*; 0 for none.

    Raises:
        OSError: The folder cannot be listed.
    """
    return max(_numbers(folder), default=0)


def turn_file(folder: Path, number: int) -> Path:
    """Return the file of turn *number*."""
    return folder / f"{number:010d}"


def read_holder(folder: Path, number: int) -> TurnHolder:
    """Return who holds turn *number*; an unreadable file says nothing.

    A turn whose file is gone by now was held by a process that has ended.
    """
    try:
        found = json.loads(turn_file(folder, number).read_bytes())
        return TurnHolder(**found)
    except FileNotFoundError:
        return TurnHolder(is_free=True)
    except (OSError, ValueError, TypeError):
        return TurnHolder()


def _numbers(folder: Path) -> list[int]:
    names = [entry.name for entry in folder.iterdir()]
    return [int(name) for name in names if _NUMBER.fullmatch(name)]


def _render(holder: TurnHolder) -> bytes:
    return json.dumps(asdict(holder)).encode()


def _is_gone(
    holder: TurnHolder, process: TickProcess, is_alive: Callable[[int], bool]
) -> bool:
    """Tell whether *holder* was a process of this host that lives no more."""
    if (holder.host, holder.boot_id) != (process.host, process.boot_id):
        return False
    return holder.pid == process.pid or not is_alive(holder.pid)


def _has_been_silent(
    folder: Path,
    number: int,
    holder: TurnHolder,
    process: TickProcess,
    silent_s: float,
) -> bool:
    """Tell whether *holder* has shown the same for long, as this host saw it."""
    seen = folder / f"seen.{process.host}"
    now = seen.with_name(f".{seen.name}.{os.urandom(8).hex()}")
    mark = f"{number} {holder.host} {holder.pid} {holder.beat}"
    try:
        # Both times are of files that this host wrote, by whichever clock.
        now.write_text(mark, encoding="utf-8")
        now_s = now.stat().st_mtime
        with suppress(OSError, ValueError):
            if seen.read_text(encoding="utf-8") == mark:
                return now_s - seen.stat().st_mtime >= silent_s
        now.replace(seen)
        return False
    finally:
        with suppress(OSError):
            now.unlink()


def _remove_old(folder: Path, newest: int) -> None:
    for number in _numbers(folder):
        if number <= newest - _KEPT:
            with suppress(OSError):
                turn_file(folder, number).unlink()
