"""From what a generation told, and its files, to a fragment for learned scaling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.exchange.assigned import generations, read_assigned
from freetrain.exchange.ending import Ended, read_ending
from freetrain.exchange.errors import UnreadableFileError
from freetrain.scaling.fragment import Fragment, Mark

if TYPE_CHECKING:
    from freetrain.exchange.layout import TrainerDir
    from freetrain.tick.stretch import Stretch

_FAILURES = {Ended.FAILED, Ended.KILLED}


def fragment_of(
    folder: TrainerDir, stretch: Stretch, before: Stretch | None
) -> Fragment | None:
    """Return the fragment that *stretch* is of; None where its files are gone.

    Args:
        folder: The trainer's.
        stretch: What its generation told.
        before: What the generation before told; None where there was none.

    Raises:
        OSError: A file cannot be read.
    """
    rows = stretch.marks.rows
    try:
        assigned = read_assigned(folder, stretch.generation)
        nodes_before = _nodes_before(folder, stretch, before)
        has_failed = before is not None and _has_failed(folder, before)
    except (FileNotFoundError, UnreadableFileError):
        return None
    if not rows or not assigned.members:
        return None
    (first_s, first_work, first_step), *between = rows
    last_s, last_work, last_step = rows[-1]
    return Fragment(
        nodes=len(assigned.members),
        began_s=assigned.created_s,
        first_step_s=first_s,
        last_step_s=last_s,
        samples=last_work - first_work,
        steps=int(last_step - first_step),
        marks=tuple(Mark(t_s, work - first_work) for t_s, work, _ in between[:-1]),
        nodes_before=nodes_before,
        step_before_s=None if before is None else before.last_s,
        follows_failure=has_failed,
    )


def _nodes_before(folder: TrainerDir, stretch: Stretch, before: Stretch | None) -> int:
    """Return the nodes it had just before; 0 where it ran nowhere in between."""
    if before is None:
        return 0
    since = range(before.generation, stretch.generation)
    known = [g for g in generations(folder.assignments) if g in since]
    members = [read_assigned(folder, g).members for g in known]
    if not known or known[0] != before.generation or not all(members):
        return 0
    return len(members[0])


def _has_failed(folder: TrainerDir, before: Stretch) -> bool:
    ending = read_ending(folder, before.generation)
    return ending is not None and ending.ended in _FAILURES and not ending.lost_lease
