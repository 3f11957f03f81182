"""How long training paused at each rescale, from what a trainer left on disk."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from freetrain.state.files import Ended, generations, read_assigned, read_ending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.elastic.files import RunDir
    from freetrain.state.files import Assigned, TrainerDir
    from tests.e2e.record import Span


class Direction(StrEnum):
    """How the number of nodes changed."""

    GROW = "grow"
    SHRINK = "shrink"
    MOVE = "move"  # as many nodes, other ones


@dataclass(frozen=True, slots=True)
class Worked:
    """What one generation did.

    Attributes:
        assigned: Who was in it, and who made it.
        started_s: When its state was restored and its first step began, Unix time.
        first_s: When its first step was done.
        last_s: When its last step was done.
        outcome_s: When rank 0 said how it ended, all being committed; None where
            it left no word.
    """

    assigned: Assigned
    started_s: float
    first_s: float
    last_s: float
    outcome_s: float | None


@dataclass(frozen=True, slots=True)
class Pause:
    """The time between the last step of one generation and the first of the next.

    Attributes:
        trainer: Whose.
        generation: The one that came after.
        direction: Whether it grew.
        author: Who made it: ``broker``, or the name of a lease.
        was_asked: Whether the one before ended because it was asked to; otherwise
            it was killed.
        total_s: From last step done to first step done.
        commit_s: Of that until all was committed; None where it was killed.
        launch_s: From there until the state was restored.
        step_s: The first step.
    """

    trainer: str
    generation: int
    direction: Direction
    author: str
    was_asked: bool
    total_s: float
    commit_s: float | None
    launch_s: float | None
    step_s: float


def read_worked(trainer: TrainerDir, run: RunDir) -> tuple[Worked, ...]:
    """Return every generation of *trainer* that did a step, in order."""
    steps: dict[int, list[float]] = {}
    starts: dict[int, float] = {}
    for line in run.progress.read_text(encoding="utf-8").splitlines():
        told = json.loads(line)
        if told.get("event") == "start":
            starts[told["generation"]] = told["t"]
        elif "step" in told:
            steps.setdefault(told["generation"], []).append(told["t"])
    return tuple(
        Worked(
            read_assigned(trainer, generation),
            starts[generation],
            min(steps[generation]),
            max(steps[generation]),
            _outcome_s(run, generation),
        )
        for generation in generations(trainer.assignments)
        if generation in steps
    )


def pauses(trainer: TrainerDir, worked: Sequence[Worked]) -> tuple[Pause, ...]:
    """Return the pauses between *worked*, but where there were no nodes at all."""
    found = []
    for before, after in pairwise(worked):
        between = range(before.assigned.generation + 1, after.assigned.generation)
        if all(read_assigned(trainer, number).members for number in between):
            found.append(_pause(trainer, before, after))
    return tuple(found)


def trained(worked: Sequence[Worked]) -> dict[str, list[Span]]:
    """Return by node when *worked* trained there."""
    found: dict[str, list[Span]] = {}
    for one in worked:
        for member in one.assigned.members:
            found.setdefault(member.node, []).append((one.started_s, one.last_s))
    return found


def _pause(trainer: TrainerDir, before: Worked, after: Worked) -> Pause:
    ending = read_ending(trainer, before.assigned.generation)
    outcome_s = before.outcome_s
    return Pause(
        trainer=after.assigned.trainer,
        generation=after.assigned.generation,
        direction=_direction(before.assigned, after.assigned),
        author=after.assigned.author,
        was_asked=ending is not None and ending.ended is Ended.RESCALED,
        total_s=after.first_s - before.last_s,
        commit_s=None if outcome_s is None else outcome_s - before.last_s,
        launch_s=None if outcome_s is None else after.started_s - outcome_s,
        step_s=after.first_s - after.started_s,
    )


def _direction(before: Assigned, after: Assigned) -> Direction:
    change = len(after.members) - len(before.members)
    if change == 0:
        return Direction.MOVE
    return Direction.GROW if change > 0 else Direction.SHRINK


def _outcome_s(run: RunDir, generation: int) -> float | None:
    path = run.outcome(generation)
    return float(json.loads(path.read_bytes())["t"]) if path.exists() else None
