"""Whether this lease keeps a spare, and for which trainer.

A spare has done what a program does before it joins, so that the ranks of the next
world begin there (``freetrain.elastic.spare``). It is started once the world trains,
which it would only hold up before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.agent.actions import EndSpare, StartSpare

if TYPE_CHECKING:
    from freetrain.agent.actions import Action
    from freetrain.agent.patience import Patience
    from freetrain.agent.seen import Seen, SpareSeen, TrainerSeen


UNSEEN = "the trainer of the spare is not seen"
"""May be so for a moment, where its files cannot be read; remembered."""

_LOOKS = 3.0


def is_unseen(seen: Seen) -> bool:
    """Tell whether nothing is known of the trainer whose spare this lease has."""
    names = {trainer.name for trainer in seen.trainers}
    return seen.spare is not None and seen.spare.trainer not in names


def sparing(seen: Seen, patience: Patience, *, unseen_s: float) -> tuple[Action, ...]:
    """Return what this agent does about its spare.

    One that ended by itself is not started again: it would do the same.

    Args:
        seen: All that is known.
        patience: Times to go by.
        unseen_s: For how long its trainer has not been seen.
    """
    wanted = next((one for one in seen.trainers if _is_wanted(seen, one)), None)
    if seen.spare is None:
        if wanted is None or not wanted.newest.has_begun:
            return ()
        return (StartSpare(wanted.newest.assigned),)
    if seen.spare.is_asked or (wanted and _is_of_use(seen.spare, wanted)):
        return ()
    if is_unseen(seen) and unseen_s < _LOOKS * patience.scan_s:
        return ()
    return (EndSpare(),)


def _is_of_use(spare: SpareSeen, trainer: TrainerSeen) -> bool:
    """Tell whether *spare* is what *trainer* wants; after a failure it wants another.

    Its user may have mended the program since.
    """
    return spare.trainer == trainer.name and spare.generation > trainer.failed


def _is_wanted(seen: Seen, trainer: TrainerSeen) -> bool:
    is_going_on = not trainer.verdict.is_final
    is_here = seen.me in trainer.newest.assigned.keys and not trainer.must_leave
    asks = bool(trainer.job.launch.spare)
    return asks and is_going_on and is_here and not trainer.is_done
