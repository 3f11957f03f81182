"""Kills and freezes of our processes at random, and what was safe before each."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from random import Random

from freetrain.state.files import generations, newest_assigned
from tests.cluster.processes import proc_words
from tests.cluster.waiting import wait_for
from tests.e2e.outcome import (
    check_losses,
    check_nothing_committed_was_lost,
    check_samples,
    committed_step,
    losses,
)
from tests.e2e.stage import EPOCHS, Stage

_FREEZE_EVERY = 3


class Kind(StrEnum):
    """What a process is to FreeTrain."""

    AGENT = "agent"
    HEAD = "head agent"
    LAUNCHER = "mpirun"
    DAEMON = "launch daemon"
    RANK = "rank"


NAMES = ("ada", "ben", "cleo")
"""The trainers that are struck."""

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
        self.note_commits()
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

    def note_commits(self) -> None:
        """Remember what is safe now: no world may go on from before it."""
        for name, seen in self._seen.items():
            folder, run = self._stage.trainer(name)
            newest = max(generations(folder.assignments), default=0)
            seen[newest] = (*seen.get(newest, (0,)), committed_step(run))


def submit_all(stage: Stage, *, step_s: float, epochs: int = EPOCHS) -> Path:
    """Submit all trainers; return the file that lets them hurry."""
    hurry = stage.folder / "hurry"
    for name in NAMES:
        stage.submit(
            name,
            DIGITS_EPOCHS=str(epochs),
            DIGITS_STEP_S=str(step_s),
            DIGITS_HURRY=str(hurry),
            DIGITS_STRAY="7200",
        )
    return hurry


def wait_for_the_end(stage: Stage, *, limit_s: float) -> None:
    """Wait until all trainers have finished and no lease is left, while ticks run."""

    def have_finished() -> bool:
        states = stage.states()
        assert "failed" not in states.values(), stage.status()
        return set(states.values()) == {"finished"}

    wait_for("the end", have_finished, limit_s=limit_s, pause_s=1)
    wait_for("leases to go", lambda: not stage.leases(), limit_s=limit_s)


def check_all(
    stage: Stage, reference: Mapping[int, float], names: Iterable[str] = NAMES
) -> None:
    """Nothing is left, and all losses and samples are those of one process."""
    wait_for("Slurm to have none of our jobs", lambda: not stage.leases())
    wait_for(
        lambda: f"no process of ours:\n{stage.described_processes()}",
        lambda: not stage.processes(),
        limit_s=300,
    )
    for name in names:
        run = stage.trainer(name)[1]
        check_losses(run, reference)
        check_samples(run)


def endure(  # noqa: PLR0913  # all but five are named
    stage: Stage,
    reference: Mapping[int, float],
    random: Random,
    is_enough: Callable[[Chaos], bool],
    *,
    step_s: float,
    pause_s: float,
    limit_s: float,
) -> Iterator[tuple[signal.Signals, Kind]]:
    """Train and strike until it *is_enough*, yield each fault, and check the end.

    Pauses between faults are one to *pause_s* seconds.
    """
    hurry = submit_all(stage, step_s=step_s)
    chaos = Chaos(stage, NAMES, random)
    runs = [stage.trainer(name)[1] for name in NAMES]
    with stage.ticking(3):
        wait_for("all to train", lambda: all(map(losses, runs)), limit_s=limit_s)
        while not is_enough(chaos):
            wait_for("something to strike", chaos.strike, limit_s=limit_s)
            yield chaos.faults[-1][:2]
            time.sleep(random.uniform(1, pause_s))
        hurry.touch()
        chaos.wake()
        wait_for_the_end(stage, limit_s=limit_s)
    check_all(stage, reference)
    chaos.check_nothing_committed_was_lost()


def find(stage: Stage) -> dict[Kind, set[int]]:
    """Return the processes of *stage* by kind; head agents are agents, too."""
    heads = _heads(stage)
    found: dict[Kind, set[int]] = {}
    for pid in stage.processes():
        argv = proc_words(pid, "cmdline")
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
