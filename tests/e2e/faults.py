"""Kills and freezes of our processes at random, and what was safe before each."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.state.files import generations, newest_assigned
from tests.e2e.outcome import check_nothing_committed_was_lost, committed_step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from tests.e2e.stage import Stage


_FREEZE_EVERY = 3


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


class Chaos:
    """Strikes processes of *trainers* at random, and remembers their commits."""

    def __init__(self, stage: Stage, trainers: Sequence[str], random: Random) -> None:
        self.faults: list[tuple[signal.Signals, Kind, int]] = []
        self._stage = stage
        self._random = random
        self._seen: dict[str, dict[int, tuple[int, ...]]] = {t: {} for t in trainers}

    @property
    def kills(self) -> int:
        return sum(number is signal.SIGKILL for number, *_ in self.faults)

    def strike(self) -> bool:
        """Kill a process, or freeze every third; return whether there was any."""
        self._note_commits()
        freezes = len(self.faults) % _FREEZE_EVERY == _FREEZE_EVERY - 1
        found = find(self._stage)
        there = [kind for kind in (FROZEN if freezes else KILLED) if found.get(kind)]
        if not there:
            return False
        kind = self._random.choice(there)
        pid = self._random.choice(sorted(found[kind]))
        number = signal.SIGSTOP if freezes else signal.SIGKILL
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            self.faults.append((number, kind, pid))
            return True
        return False

    def wake(self) -> None:
        """Let all that was frozen go on, where it still is there."""
        for number, _, pid in self.faults:
            if number is signal.SIGSTOP:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def check_nothing_committed_was_lost(self) -> None:
        """After each strike, worlds went on from the last commit before it."""
        for name, seen in self._seen.items():
            check_nothing_committed_was_lost(self._stage.trainer(name)[1], seen)

    def _note_commits(self) -> None:
        for name, seen in self._seen.items():
            folder, run = self._stage.trainer(name)
            newest = max(generations(folder.assignments), default=0)
            seen[newest] = (*seen.get(newest, (0,)), committed_step(run))


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
    """Return what a process with this command line is; nothing for srun and others.

    *heads* are uuid and task of the leases that lead a world.
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
    heads = [each.head for each in newest if each is not None and each.head is not None]
    return {(head.key.uuid, str(head.key.task)) for head in heads}


def _argv(pid: int) -> list[str]:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [word.decode("utf-8", "replace") for word in words]
