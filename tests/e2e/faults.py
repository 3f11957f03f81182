"""Kills and freezes of FreeTrain's processes at random moments."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.state.files import newest_assigned

if TYPE_CHECKING:
    from random import Random

    from tests.e2e.stage import Stage


class Kind(StrEnum):
    """What a process is to FreeTrain."""

    AGENT = "agent"
    HEAD = "head agent"
    LAUNCHER = "mpirun"
    DAEMON = "launch daemon"
    RANK = "rank"


KILLED = (Kind.AGENT, Kind.HEAD, Kind.LAUNCHER, Kind.RANK)
FROZEN = (Kind.AGENT, Kind.DAEMON, Kind.RANK)

_LAUNCHERS = frozenset({"mpirun", "prterun", "mpiexec"})
_DAEMONS = frozenset({"prted", "orted"})
_AGENT = "freetrain.agent"


@dataclass(frozen=True, slots=True)
class Fault:
    """What was done to which process.

    Attributes:
        kind: What it was.
        number: The signal.
        pid: The process.
    """

    kind: Kind
    number: signal.Signals
    pid: int


def strike(stage: Stage, random: Random, *, freezes: bool) -> Fault | None:
    """Kill or freeze a process of *stage* at random; None where there is none.

    Args:
        stage: Whose processes.
        random: Which, and how.
        freezes: Whether to stop it (SIGSTOP) rather than to kill it.
    """
    kinds = FROZEN if freezes else KILLED
    found = find(stage)
    there = [kind for kind in kinds if found.get(kind)]
    if not there:
        return None
    kind = random.choice(there)
    pid = random.choice(sorted(found[kind]))
    number = signal.SIGSTOP if freezes else signal.SIGKILL
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        return Fault(kind, number, pid)
    return None


def wake(faults: list[Fault]) -> None:
    """Let all that was frozen go on, where it still is there."""
    for fault in faults:
        if fault.number is signal.SIGSTOP:
            with suppress(ProcessLookupError):
                os.kill(fault.pid, signal.SIGCONT)


def find(stage: Stage) -> dict[Kind, set[int]]:
    """Return the processes of *stage* by kind; head agents are agents, too."""
    heads = _heads(stage)
    found: dict[Kind, set[int]] = {}
    for pid in stage.processes():
        argv = _argv(pid)
        for kind in kinds_of(argv, heads):
            found.setdefault(kind, set()).add(pid)
    return found


def kinds_of(argv: list[str], heads: set[tuple[str, str]]) -> list[Kind]:
    """Return what a process with these words is; nothing for srun, shells, others.

    Args:
        argv: Its command line.
        heads: Uuid and task of the leases that lead a world.
    """
    program = Path(argv[0]).name if argv else ""
    if program in _LAUNCHERS:
        return [Kind.LAUNCHER]
    if program in _DAEMONS:
        return [Kind.DAEMON]
    if program.startswith("python") and any("digits_program" in word for word in argv):
        return [Kind.RANK]
    if program.startswith("python") and _AGENT in argv and "sweep" not in argv:
        where = argv.index(_AGENT)
        is_head = tuple(argv[where + 2 : where + 4]) in heads
        return [Kind.AGENT, Kind.HEAD] if is_head else [Kind.AGENT]
    return []


def _heads(stage: Stage) -> set[tuple[str, str]]:
    """Return uuid and task of the lease that leads each trainer's newest world."""
    newest = [
        newest_assigned(stage.state.trainer(folder.name))
        for folder in stage.state.trainers.iterdir()
    ]
    heads = [one.head for one in newest if one is not None and one.head is not None]
    return {(head.key.uuid, str(head.key.task)) for head in heads}


def _argv(pid: int) -> list[str]:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [word.decode("utf-8", "replace") for word in words]
