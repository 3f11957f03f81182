"""Trainers of a replay as a priority sees them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from freetrain.priority.interface import Contender, Target

if TYPE_CHECKING:
    from freetrain.quality.outlook import Outlook
    from freetrain.replay.policies.interface import TrainerView
    from freetrain.trainers.spec import Scaling


def contender_of(
    trainer: TrainerView, scaling: Scaling, outlook: Outlook | None
) -> Contender:
    """Return *trainer* as it stands: what its user said of it, and its past."""
    spec = trainer.spec
    return Contender(
        name=spec.name,
        sizes=scaling.sizes,
        samples_per_s=scaling.samples_per_s[: scaling.sizes[-1] + 1],
        held=len(trainer.held),
        done_samples=trainer.done,
        total_samples=spec.samples,
        weight=spec.weight,
        deadline_s=spec.deadline_s,
        target=_target(trainer),
        outlook=outlook,
        grow_s=spec.costs.grow_s,
        shrink_s=spec.costs.shrink_s,
        start_s=spec.costs.start_s,
    )


def _target(trainer: TrainerView) -> Target | None:
    target, quality = trainer.spec.target, trainer.spec.quality
    if target is None or quality is None:
        return target
    reached = (
        quality.better.is_reached(target.deliver, point.value)
        for point in trainer.points
    )
    return replace(target, is_delivered=any(reached))
