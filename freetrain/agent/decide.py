"""From what an agent knows to what it does: pure, and without a memory of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.agent.heading import heading
from freetrain.agent.leaving import goodbyes, leaving, notices
from freetrain.agent.orphans import orphans_of, see_to_orphans
from freetrain.agent.sparing import UNSEEN, is_unseen, sparing
from freetrain.agent.succession import cause_of, succession

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.agent.actions import Action
    from freetrain.agent.patience import Patience
    from freetrain.agent.seen import Seen


def conditions(seen: Seen, patience: Patience) -> frozenset[object]:
    """Return what is amiss now; for how long it has been goes into ``decide``."""
    found: set[object] = set()
    for trainer in seen.trainers:
        cause = cause_of(seen, trainer, patience)
        if cause is not None:
            found.add(cause)
        found.update(orphans_of(seen, trainer, patience))
    if is_unseen(seen):
        found.add(UNSEEN)
    return frozenset(found)


def decide(
    seen: Seen, patience: Patience, *, ages_s: Mapping[object, float]
) -> tuple[Action, ...]:
    """Return what to do now, in order.

    Args:
        seen: All that is known.
        patience: Times to go by.
        ages_s: For how long each of the conditions has held.
    """
    actions: list[Action] = []
    for trainer in seen.trainers:
        actions += notices(seen, trainer)
        actions += goodbyes(seen, trainer, patience)
        actions += heading(seen, trainer, patience)
        cause = cause_of(seen, trainer, patience)
        if cause is not None:
            age_s = ages_s.get(cause, 0.0)
            actions += succession(seen, trainer, patience, cause=cause, age_s=age_s)
        actions += see_to_orphans(seen, trainer, patience, ages_s=ages_s)
    actions += sparing(seen, patience, unseen_s=ages_s.get(UNSEEN, 0.0))
    return (*actions, *leaving(seen, patience))
