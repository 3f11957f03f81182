"""From files and memory to what the agent knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.agent.seen import GenerationSeen, TrainerSeen
from freetrain.agent.verdict import is_failure, judge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from freetrain.agent.board import Board
    from freetrain.agent.memory import Memory, Running
    from freetrain.agent.processes import Marked
    from freetrain.broker.lease import LeaseKey
    from freetrain.exchange.assigned import Assigned
    from freetrain.exchange.ending import Ending

MOST_OPEN = 20
"""How far back an agent looks for generations that are not over."""

_MOST_HISTORY = 50


@dataclass(frozen=True, slots=True)
class Folder:
    """What the folders of one trainer name, read at one time.

    Attributes:
        name: The trainer.
        generations: All of them, ascending, one or more.
        over: Those with an ending.
    """

    name: str
    generations: tuple[int, ...]
    over: frozenset[int]

    @property
    def newest(self) -> int:
        """The newest generation."""
        return self.generations[-1]

    @property
    def open(self) -> tuple[int, ...]:
        """Recent ones before the newest without an ending."""
        recent = self.generations[-MOST_OPEN - 1 : -1]
        return tuple(number for number in recent if number not in self.over)


def read_folder(board: Board, trainer: str) -> Folder | None:
    """Return what the folders of *trainer* name; None before its first generation."""
    # Endings first: one of a generation that was not listed yet would be lost.
    over = board.endings(trainer)
    generations = board.generations(trainer)
    return Folder(trainer, generations, over) if generations else None


def concerns(board: Board, folder: Folder, me: LeaseKey, memory: Memory) -> bool:
    """Tell whether this lease has anything to do with a trainer."""
    if any(running.trainer == folder.name for running in memory.worlds.values()):
        return True
    return any(
        me in board.assigned(folder.name, number).keys
        for number in (*folder.open, folder.newest)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Self:
    """What the agent knows of itself in this look.

    Attributes:
        me: This lease.
        processes: This lease's processes on this node.
        is_leaving: Whether this lease leaves all its trainers.
        home: The trainer that it stays with otherwise; survivors and broker may have
            given it to two at once.
        has_spare: Whether there is, or was, a spare.
    """

    me: LeaseKey
    processes: Sequence[Marked]
    is_leaving: bool
    home: str
    has_spare: bool = False


def gather(board: Board, folder: Folder, memory: Memory, own: Self) -> TrainerSeen:
    """Return all that is known of the trainer of *folder*."""
    name, job = folder.name, board.job(folder.name)
    kept = {r.generation for r in memory.worlds.values() if r.trainer == name}
    wants_spare = bool(job.launch.spare) and not own.has_spare
    told, counted = board.notices(name), _count(own, name)
    look = _Look(board, folder, memory, told, counted, wants_spare=wants_spare)
    earlier = sorted({*folder.open, *kept} - {folder.newest})
    newest = look.generation(folder.newest)
    is_running = newest.world is not None and newest.world.exit_s is None
    running_s = newest.world.age_s if newest.world and is_running else 0.0
    history = _history(board, folder)
    is_astray = name != own.home and own.me in newest.assigned.keys
    return TrainerSeen(
        job=job,
        newest=newest,
        earlier=tuple(look.generation(number) for number in earlier),
        previous=_previous(board, folder),
        verdict=judge(history, job),
        failed=max((one.generation for one in history if is_failure(one)), default=0),
        is_done=board.is_done(name, running_s=running_s),
        since_end_s=memory.age_s(("end", name, max(folder.over, default=0))),
        must_leave=own.is_leaving or is_astray,
        unix_s=memory.unix_s,
    )


@dataclass(frozen=True, slots=True)
class _Look:
    board: Board
    folder: Folder
    memory: Memory
    told: frozenset[tuple[int, LeaseKey]]
    counted: Mapping[int, int]
    wants_spare: bool

    def generation(self, number: int) -> GenerationSeen:
        board, name = self.board, self.folder.name
        running = self.memory.worlds.get((name, number))
        outcome = board.outcome(name, number)
        said_s = self.memory.age_s(("outcome", name, number)) if outcome else 0.0
        return GenerationSeen(
            assigned=board.assigned(name, number),
            age_s=self.memory.age_s(("generation", name, number)),
            is_over=number in self.folder.over,
            outcome=outcome,
            said_s=said_s,
            is_ready=board.is_ready(name, number),
            has_begun=self._has_begun(number, running, outcome),
            is_stop_requested=board.is_stop_requested(name, number),
            notices=frozenset(key for of, key in self.told if of == number),
            processes=self.counted.get(number, 0),
            world=None if running is None else running.seen(self.memory.now_s),
        )

    def _has_begun(self, number: int, running: Running | None, outcome: str) -> bool:
        """Tell whether a world has begun, where that matters to this agent."""
        name = self.folder.name
        if running is None:
            has_said = bool(outcome)
            return has_said or (self.wants_spare and self.board.has_begun(name, number))
        if not running.has_begun:
            running.has_begun = bool(outcome) or self.board.has_begun(name, number)
        return running.has_begun


def _count(own: Self, trainer: str) -> dict[int, int]:
    counted: dict[int, int] = {}
    for process in own.processes:
        if process.mark.trainer == trainer:
            number = process.mark.generation
            counted[number] = counted.get(number, 0) + 1
    return counted


def _previous(board: Board, folder: Folder) -> Assigned | None:
    if len(folder.generations) < 2:  # noqa: PLR2004 -- the newest and another
        return None
    return board.assigned(folder.name, folder.generations[-2])


def _history(board: Board, folder: Folder) -> list[Ending]:
    """Return the endings since the trainer was last told to run nowhere."""
    endings: list[Ending] = []
    for number in reversed(folder.generations[-_MOST_HISTORY:]):
        if number != folder.newest and not board.assigned(folder.name, number).members:
            break
        if number in folder.over:
            endings.append(board.ending(folder.name, number))
    return endings[::-1]
