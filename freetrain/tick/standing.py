"""Trainers as the store and their files tell of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from freetrain.agent.verdict import judge
from freetrain.errors import BadConfigurationError
from freetrain.exchange.assigned import (
    BROKER,
    USER,
    generations,
    newest_assigned,
    read_assigned,
)
from freetrain.exchange.ending import Ended, read_ending
from freetrain.exchange.errors import UnreadableFileError
from freetrain.jobfile.file import parse_job
from freetrain.store.trainers import TrainerState
from freetrain.toml.text import Places

if TYPE_CHECKING:
    from collections.abc import Iterator

    from freetrain.exchange.assigned import Assigned
    from freetrain.exchange.ending import Ending
    from freetrain.exchange.layout import StateDir, TrainerDir
    from freetrain.jobfile.job import TrainerJob
    from freetrain.store.trainers import TrainerRow

_FINAL = {Ended.FINISHED, Ended.DO_NOT_RESTART}
_OVER = {TrainerState.FINISHED, TrainerState.FAILED}
_LAST_WORDS = 10
"""Endings among which a program's last word is: few worlds were started ahead of it."""

_MOST_READ = 100
"""Endings looked at to tell whether a trainer failed too often."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a trainer ended.

    Attributes:
        state: Finished or failed.
        message: Why, for people. Hostile text.
    """

    state: TrainerState
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A trainer, and how it stands.

    Attributes:
        row: What the store says.
        job: Its job file; None where it cannot be read.
        newest: Its newest generation, None before the first.
        outcome: How it ended, None while it goes on.
        problem: Why nothing can be done about it, empty where something can.
    """

    row: TrainerRow
    job: TrainerJob | None = None
    newest: Assigned | None = None
    outcome: Outcome | None = None
    problem: str = ""

    @property
    def is_wanted(self) -> bool:
        """Whether it is to have nodes."""
        is_asked_for = self.row.state is TrainerState.WANTED
        return is_asked_for and self.job is not None and self.outcome is None


def read_standing(folder: StateDir, row: TrainerRow) -> Standing:
    """Return how the trainer of *row* stands; what is unreadable is a problem of its.

    How one ended that is over is in its row: past trainers must cost ticks little.

    Raises:
        OSError: Its files cannot be read.
    """
    place = folder.trainer(row.name)
    try:
        job = parse_job(row.job.encode(), path=row.name, places=Places(Path("/")))
        newest = newest_assigned(place)
        is_over = row.state in _OVER
        outcome = None if is_over else _outcome(place, job, newest)
    except (UnreadableFileError, BadConfigurationError) as error:
        return Standing(row=row, problem=str(error))
    return Standing(row=row, job=job, newest=newest, outcome=outcome)


def _outcome(
    place: TrainerDir, job: TrainerJob, newest: Assigned | None
) -> Outcome | None:
    """Return how a trainer ended.

    Its program says that it has finished, or must not be started again. That it
    failed too often is told by endings, and by an agent's empty generation.
    """
    if newest is None:
        return None
    last = _last_word(place)
    if last is not None:
        if _was_begun_again(place, since=last.generation):
            return None
        is_done = last.ended is Ended.FINISHED
        state = TrainerState.FINISHED if is_done else TrainerState.FAILED
        return Outcome(state, last.message)
    if newest.members or newest.author in {BROKER, USER}:
        return None
    endings = tuple(_since_rest(place, newest.generation))
    verdict = judge(reversed(endings), job)
    return Outcome(TrainerState.FAILED, verdict.reason) if verdict.is_final else None


def _last_word(place: TrainerDir) -> Ending | None:
    """Return the ending in which the program said that all is over.

    It need not be the newest: a world that was started ahead is killed after it.
    """
    for generation in reversed(generations(place.endings)[-_LAST_WORDS:]):
        ending = read_ending(place, generation)
        if ending is not None and ending.ended in _FINAL:
            return ending
    return None


def _was_begun_again(place: TrainerDir, *, since: int) -> bool:
    """Tell whether a user let it go on after the generation *since*."""
    later = (g for g in generations(place.assignments) if g > since)
    return any(read_assigned(place, generation).author == USER for generation in later)


def _since_rest(place: TrainerDir, newest: int) -> Iterator[Ending]:
    """Yield the endings, latest first, back to where it last was to run nowhere."""
    earlier = [g for g in generations(place.assignments) if g < newest]
    for generation in reversed(earlier[-_MOST_READ:]):
        if not read_assigned(place, generation).members:
            return
        ending = read_ending(place, generation)
        if ending is not None:
            yield ending
