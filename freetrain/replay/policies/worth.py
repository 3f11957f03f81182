"""What node counts are worth to the planner: the objective, as curves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from freetrain.replay.settings import Objective
from milp.curve import speed_up, throughput, weighted

if TYPE_CHECKING:
    from freetrain.replay.policies.interface import TrainerView
    from freetrain.trainers.spec import Scaling
    from milp.problem import Curve


class Worth(Protocol):
    """Says what a trainer's work is worth, by node count."""

    def curve(self, trainer: TrainerView) -> Curve:
        """Return *trainer*'s curve as of now; the same object while it is the same."""
        ...


class ObjectiveWorth:
    """The three objectives that only look at scaling and at the user's weight."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._curves: dict[tuple[Scaling, float], Curve] = {}

    def curve(self, trainer: TrainerView) -> Curve:
        """Return the curve of *trainer*'s model and weight."""
        weight = trainer.spec.weight if self._objective is Objective.WEIGHTED else 1.0
        key = (trainer.spec.scaling, weight)
        curve = self._curves.get(key)
        if curve is None:
            curve = self._curves[key] = self._make(*key)
        return curve

    def _make(self, scaling: Scaling, weight: float) -> Curve:
        if self._objective is Objective.THROUGHPUT:
            return throughput(scaling.samples_per_s, scaling.sizes)
        relative = speed_up(scaling.samples_per_s, scaling.sizes)
        if self._objective is Objective.SPEEDUP:
            return relative
        return weighted(relative, weight)
