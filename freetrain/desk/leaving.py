"""Generations that users make: the next one, in which nothing runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.errors import TryLaterError
from freetrain.exchange.assigned import (
    USER,
    Assigned,
    create_assigned,
    generations,
    newest_assigned,
    read_assigned,
)
from freetrain.exchange.ending import read_ending

if TYPE_CHECKING:
    from collections.abc import Collection

    from freetrain.broker.lease import LeaseKey
    from freetrain.exchange.layout import TrainerDir

_ATTEMPTS = 50


def next_generation(folder: TrainerDir) -> int:
    """Return the first generation that has no file yet."""
    found = generations(folder.assignments)
    return found[-1] + 1 if found else 1


def is_over(folder: TrainerDir, held: Collection[LeaseKey]) -> bool:
    """Tell whether no world in *folder* can be running any more.

    Args:
        folder: A trainer's.
        held: Leases that may still hold nodes.

    Raises:
        UnreadableFileError: A file of it is damaged.
        OSError: A file of it cannot be read.
    """
    found = generations(folder.assignments)
    for generation in reversed(found):
        assigned = read_assigned(folder, generation)
        if assigned.members:
            has_ended = read_ending(folder, generation) is not None
            return has_ended or assigned.keys.isdisjoint(held)
    return True


def leave(folder: TrainerDir, *, reason: str, now_s: float) -> Assigned | None:
    """Make the next generation of a trainer an empty one, so that its world stops.

    Whoever else makes a generation at the same moment may be first; then the one
    after that is made.

    Returns:
        The last generation in which something ran; None where nothing runs.

    Raises:
        TryLaterError: Others were first, again and again.
        UnreadableFileError: The newest generation's file is damaged.
        OSError: It could not be written.
    """
    for _ in range(_ATTEMPTS):
        newest = newest_assigned(folder)
        if newest is None or not newest.members:
            return None
        if create_assigned(folder, empty_after(newest, reason=reason, now_s=now_s)):
            return newest
    raise TryLaterError(
        f"the generations of {folder.path.name} change too quickly to stop it now; "
        f"the next tick will. What is to become of it is written down."
    )


def empty_after(newest: Assigned, *, reason: str, now_s: float) -> Assigned:
    """Return the generation after *newest*, in which nothing runs."""
    return Assigned(
        trainer=newest.trainer,
        generation=newest.generation + 1,
        members=(),
        created_s=now_s,
        author=USER,
        reason=reason,
    )
