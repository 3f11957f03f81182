"""Runs several commands as one: starts all, passes signals on, ends all together.

Run as a file of its own, ``python -I -S starter.py ORDERS.json``, so that it starts
quickly and whatever the program's variables do to Python's paths; hence it imports
nothing but the standard library. One runs on the head's node, with a command for each
node, and one on each node, with a command for each rank.

A request to stop goes from the head's starter to the others by a file: a signal that
srun passes on reaches every process of the step, and torchrun and other programs that
do not handle it would end.

It exits with 0 if every command did. When a command fails, the others are ended, and
its status is the starter's.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_END_S = 5.0
_LOOK_EVERY_S = 0.1
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_SHELL_SIGNAL_BASE = 128
_MARKS = (b"FREETRAIN_LEASE", b"FREETRAIN_WORLD")


@dataclass(frozen=True, slots=True)
class Command:
    """A command to run.

    Attributes:
        argv: Its words; no shell sees them.
        environment: Variables beside the starter's own.
        name: Names it in the message where it fails.
    """

    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """The orders of one starter.

    Attributes:
        commands: The commands to run.
        hears: The signals by which the starter is asked to stop.
        sends: The signal by which it asks the commands to stop.
        to_children: Whether it asks the processes that the commands started instead:
            torchrun ends its workers with an error when asked itself.
        is_contained: Whether the commands run in containers: torchrun's workers may be
            no descendants of theirs then, and are found by their variables.
        is_shielded: Whether TERM is kept from the commands: Slurm sends it to every
            process of a step that it preempts, and most end by it.
        has_groups: Whether each command leads a process group of its own, which a
            signal for the starter's does not reach: Open MPI's daemons signal groups.
        announces: A file that the starter creates when asked to stop, instead of
            asking the commands; empty for none.
        heeds: A file whose existence asks the starter to stop; empty for none.
    """

    commands: tuple[Command, ...]
    hears: tuple[str, ...]
    sends: str
    to_children: bool = False
    is_contained: bool = False
    is_shielded: bool = False
    has_groups: bool = False
    announces: str = ""
    heeds: str = ""


def render_orders(orders: Orders) -> str:
    """Return *orders* as the text of a file."""
    return json.dumps(asdict(orders), indent=1) + "\n"


def parse_orders(text: str) -> Orders:
    """Return the orders in *text*.

    Raises:
        ValueError, TypeError, KeyError: There are none.
    """
    fields = json.loads(text)
    commands = tuple(
        Command(
            tuple(command["argv"]),
            tuple((name, value) for name, value in command["environment"]),
            command["name"],
        )
        for command in fields.pop("commands")
    )
    return Orders(commands=commands, **fields | {"hears": tuple(fields["hears"])})


class Starter:
    """Runs the commands of its orders."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._running: dict[int, tuple[subprocess.Popen[bytes], str]] = {}
        self._heeds = orders.heeds
        self._unasked: set[int] = set()

    def run(self) -> int:
        """Run all commands to their ends and return the exit status.

        Signals are blocked except while it waits for them, so that none is lost.
        """
        asks = {signal.Signals[f"SIG{name}"] for name in self._orders.hears}
        ends = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP} - asks
        watched = asks | ends | {signal.SIGCHLD}
        signal.pthread_sigmask(signal.SIG_BLOCK, watched)
        shielded = {signal.SIGTERM} if self._orders.is_shielded else set()
        if self._orders.announces:
            Path(self._orders.announces).unlink(missing_ok=True)
        status = self._start(watched - shielded)
        while self._running and not status:
            number = self._next_signal(watched)
            if number in asks or number is None:
                self._pass_on_request()
            elif number in ends:
                status = _SHELL_SIGNAL_BASE + number
            status = status or self._reap()
        if status:
            self._end(watched)
        return status

    def _start(self, blocked: set[signal.Signals]) -> int:
        for command in self._orders.commands:
            try:
                process = subprocess.Popen(  # noqa: S603 -- a list, never a shell
                    command.argv,
                    env={**os.environ, **dict(command.environment)},
                    stdin=subprocess.DEVNULL,
                    # A blocked signal stays blocked in the program.
                    preexec_fn=lambda: _prepare(blocked),  # noqa: PLW1509 -- no threads
                    process_group=0 if self._orders.has_groups else None,
                )
            except OSError as error:
                _report(f"{command.name or command.argv[0]} cannot be started: {error}")
                return 127
            self._running[process.pid] = (process, command.name or command.argv[0])
        return 0

    def _next_signal(self, watched: set[signal.Signals]) -> signal.Signals | None:
        """Return the next signal; None, once, where the heeded file has appeared."""
        while self._heeds or self._unasked:
            if self._heeds and Path(self._heeds).name in _names(
                Path(self._heeds).parent
            ):
                self._heeds = ""
                return None
            if found := signal.sigtimedwait(watched, _LOOK_EVERY_S):
                return signal.Signals(found.si_signo)
            self._ask()
        return signal.Signals(signal.sigwait(watched))

    def _pass_on_request(self) -> None:
        if self._orders.announces:
            Path(self._orders.announces).touch()
            return
        self._unasked = set(self._running)
        self._ask()

    def _ask(self) -> None:
        """Ask those that were not asked; torchrun takes seconds to start a worker."""
        number = signal.Signals[f"SIG{self._orders.sends}"]
        self._unasked &= self._running.keys()
        for pid in tuple(self._unasked):
            targets = self._targets(pid)
            for target in targets:
                with suppress(ProcessLookupError):
                    os.kill(target, number)
            if targets:
                self._unasked.remove(pid)

    def _targets(self, pid: int) -> tuple[int, ...]:
        if not self._orders.to_children:
            return (pid,)
        return tuple(_workers() if self._orders.is_contained else _children(pid))

    def _reap(self) -> int:
        """Forget ended commands; return the status of one that failed, or 0."""
        for pid, (process, name) in list(self._running.items()):
            status = process.poll()
            if status is None:
                continue
            del self._running[pid]
            if status:
                how = f"signal {-status}" if status < 0 else f"exit code {status}"
                _report(f"{name} ended with {how}; the others are ended")
                return status if status > 0 else _SHELL_SIGNAL_BASE - status
        return 0

    def _end(self, watched: set[signal.Signals]) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in self._running:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            end_s = time.monotonic() + _END_S
            while self._running and (left_s := end_s - time.monotonic()) > 0:
                signal.sigtimedwait(watched, left_s)
                self._forget_ended()

    def _forget_ended(self) -> None:
        for pid, (process, _) in list(self._running.items()):
            if process.poll() is not None:
                del self._running[pid]


def _prepare(unblocked: set[signal.Signals]) -> None:
    """Unblock signals for a command, and have it die when the starter is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, unblocked)


def _names(folder: Path) -> set[str]:
    """List *folder*: NFS remembers that a file was not there, but not in a listing."""
    try:
        return {entry.name for entry in folder.iterdir()}
    except OSError:
        return set()


def _children(parent: int) -> Iterator[int]:
    """Yield the processes whose parent is *parent*."""
    for pid in _processes():
        with suppress(OSError, ValueError, IndexError):
            if _parent_of(pid) == parent:
                yield pid


def _workers() -> Iterator[int]:
    """Yield torchrun's workers in this lease's part of the world, not their children.

    They have the marks that the starter has, and a variable that torchrun gives them.
    """
    marks = {
        b"%s=%s" % (name, os.environb[name]) for name in _MARKS if name in os.environb
    }
    found = set()
    for pid in _processes():
        with suppress(OSError):
            texts = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if marks <= set(texts) and any(map(_is_of_torchrun, texts)):
                found.add(pid)
    for pid in found:
        with suppress(OSError, ValueError, IndexError):
            if _parent_of(pid) not in found:
                yield pid


def _is_of_torchrun(variable: bytes) -> bool:
    return variable.startswith(b"TORCHELASTIC_RUN_ID=")


def _processes() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208 -- no paths needed


def _parent_of(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    return int(stat.rpartition(b")")[2].split()[1])


def _report(text: str) -> None:
    sys.stderr.write(f"freetrain: {text}\n")
    sys.stderr.flush()


def main(argv: Sequence[str]) -> int:
    """Run the orders in the file that *argv* names."""
    return Starter(parse_orders(Path(argv[1]).read_text(encoding="utf-8"))).run()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
