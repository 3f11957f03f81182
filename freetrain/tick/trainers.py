"""What a tick knows of each trainer: its row, its newest generation, how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.agent.observation import judge
from freetrain.config.document import Places
from freetrain.config.job import parse_job
from freetrain.errors import BadConfigurationError
from freetrain.state.files import (
    BROKER,
    USER,
    Ended,
    UnreadableFileError,
    generations,
    newest_assigned,
    read_assigned,
    read_ending,
)
from freetrain.state.tables import TrainerState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.config.job import TrainerJob
    from freetrain.state.files import Assigned, GenerationEnding, StateDir, TrainerDir
    from freetrain.state.tables import TrainerRow


# How a trainer stands, and whether it has ended.

_FINAL = {Ended.FINISHED, Ended.DO_NOT_RESTART}
_OVER = {TrainerState.FINISHED, TrainerState.FAILED}
_LAST_ENDINGS = 10
"""Endings among which a program's last word is: few worlds are started ahead of it."""

_MOST_READ = 100
"""Endings looked at to tell whether a trainer failed too often."""


@dataclass(frozen=True, slots=True)
class TrainerOutcome:
    """How a trainer ended.

    Attributes:
        state: Finished or failed.
        message: Why, for people. Hostile text.
    """

    state: TrainerState
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TickTrainer:
    """A trainer as the store and its files describe it.

    Attributes:
        row: Its row in the store.
        job: Its job file; None where it cannot be read.
        newest: Its newest generation, None before the first.
        outcome: How it ended, None while it goes on.
        problem: Why its files cannot be read, so that nothing is done about it.
    """

    row: TrainerRow
    job: TrainerJob | None = None
    newest: Assigned | None = None
    outcome: TrainerOutcome | None = None
    problem: str = ""

    @property
    def is_wanted(self) -> bool:
        """Whether it is to have nodes."""
        is_asked_for = self.row.state is TrainerState.WANTED
        return is_asked_for and self.job is not None and self.outcome is None


def read_trainer(state: StateDir, row: TrainerRow) -> TickTrainer:
    """Return the trainer of *row*; an unreadable file becomes its problem.

    A trainer that is over has its outcome in its row: past trainers must cost ticks
    little.

    Raises:
        OSError: Its files cannot be read.
    """
    folder = state.trainer(row.name)
    try:
        job = parse_job(row.job.encode(), path=row.name, places=Places(Path("/")))
        newest = newest_assigned(folder)
        outcome = None if row.state in _OVER else _outcome(folder, job, newest)
    except (UnreadableFileError, BadConfigurationError) as error:
        return TickTrainer(row=row, problem=str(error))
    return TickTrainer(row=row, job=job, newest=newest, outcome=outcome)


def _outcome(
    folder: TrainerDir, job: TrainerJob, newest: Assigned | None
) -> TrainerOutcome | None:
    """Return how a trainer ended.

    Its program says that it has finished, or must not be started again. That it
    failed too often follows from its endings, once an agent made an empty generation.
    """
    if newest is None:
        return None
    last = _final_ending(folder)
    if last is not None:
        if _was_begun_again(folder, since=last.generation):
            return None
        is_done = last.ended is Ended.FINISHED
        state = TrainerState.FINISHED if is_done else TrainerState.FAILED
        return TrainerOutcome(state, last.message)
    if newest.members or newest.author in {BROKER, USER}:
        return None
    endings = tuple(_endings_since_empty(folder, newest.generation))
    verdict = judge(reversed(endings), job)
    if not verdict.is_final:
        return None
    return TrainerOutcome(TrainerState.FAILED, verdict.reason)


def _final_ending(folder: TrainerDir) -> GenerationEnding | None:
    """Return the ending in which the program said that all is over.

    It need not be the newest: a world that was started ahead is killed after it.
    """
    for generation in reversed(generations(folder.endings)[-_LAST_ENDINGS:]):
        ending = read_ending(folder, generation)
        if ending is not None and ending.ended in _FINAL:
            return ending
    return None


def _was_begun_again(folder: TrainerDir, *, since: int) -> bool:
    """Tell whether a user let it go on after the generation *since*."""
    later = (g for g in generations(folder.assignments) if g > since)
    return any(read_assigned(folder, generation).author == USER for generation in later)


def _endings_since_empty(folder: TrainerDir, newest: int) -> Iterator[GenerationEnding]:
    """Yield the endings, latest first, back to its last empty generation."""
    earlier = [g for g in generations(folder.assignments) if g < newest]
    for generation in reversed(earlier[-_MOST_READ:]):
        if not read_assigned(folder, generation).members:
            return
        ending = read_ending(folder, generation)
        if ending is not None:
            yield ending
