"""What node counts are worth to the planner: a priority's ratings, as curves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from freetrain.planning.rating import rate
from freetrain.priority.base import Contender, RatingInputs
from milp.problem import Curve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from freetrain.losscurve.fit import LossForecasts
    from freetrain.losscurve.forecast import LossForecast
    from freetrain.priority.base import Memory, Priority, Target
    from freetrain.replay.policies.base import TrainerView, View
    from freetrain.replay.policies.speeds import Speeds
    from freetrain.replay.trainers import Scaling

_MOST_CURVES = 10_000
"""A few hundred bytes each."""


class CurveSource(Protocol):
    """Says what trainers' work is worth, by node count."""

    def curves(self, view: View) -> Sequence[Curve]:
        """Return each trainer's curve as of now; the same object while it is equal."""
        ...


class Unrated:
    """No ratings: curves say which sizes a trainer can run on, and its speeds."""

    def __init__(self) -> None:
        self._curves: dict[Scaling, Curve] = {}
        self._asked: Sequence[TrainerView] = ()
        self._answer: Sequence[Curve] = ()

    def curves(self, view: View) -> Sequence[Curve]:
        """Return the curve of each trainer."""
        asked = list(view.trainers)
        if asked != self._asked:
            self._asked = asked
            self._answer = [self._curve(trainer.spec.scaling) for trainer in asked]
        return self._answer

    def _curve(self, scaling: Scaling) -> Curve:
        known = self._curves.get(scaling)
        if known is None:
            known = Curve(scaling.samples_per_s, scaling.sizes)
            self._curves[scaling] = known
        return known


class RatedOnce:
    """Ratings that are made from the trainer alone: made once, and shared by equals."""

    def __init__(self, priority: Priority, speeds: Speeds, *, t_fwd_s: float) -> None:
        self._priority = priority
        self._speeds = speeds
        self._t_fwd_s = t_fwd_s
        self._curves: dict[tuple[Scaling, float], Curve] = {}
        self._asked: tuple[Sequence[TrainerView], Sequence[Scaling]] = ((), ())
        self._answer: Sequence[Curve] = ()

    def curves(self, view: View) -> Sequence[Curve]:
        """Return the curve of each trainer's speed and weight.

        At most events the trainers are those of the last one; to see that takes a
        tenth of looking each one up.
        """
        asked = list(view.trainers), self._speeds.scalings(view)
        if asked != self._asked:
            self._asked, self._answer = asked, list(map(self._curve, *asked))
        return self._answer

    def _curve(self, trainer: TrainerView, scaling: Scaling) -> Curve:
        known = self._curves.get((scaling, trainer.spec.weight))
        return known or self._make(trainer, scaling)

    def _make(self, trainer: TrainerView, scaling: Scaling) -> Curve:
        inputs = RatingInputs(
            now_s=0.0,
            contenders=(contender_of(trainer, scaling, None),),
            nodes=scaling.sizes[-1],
            t_fwd_s=self._t_fwd_s,
        )
        (rating,) = self._priority.rate(inputs, {}).ratings
        if len(self._curves) >= _MOST_CURVES:
            self._curves.clear()
        self._curves[scaling, trainer.spec.weight] = rating.curve
        return rating.curve


class RatedAtEveryEvent:
    """Ratings that change with the moment: made at every event, all together."""

    def __init__(
        self,
        priority: Priority,
        speeds: Speeds,
        forecasts: LossForecasts | None,
        *,
        t_fwd_s: float,
    ) -> None:
        self._priority = priority
        self._speeds = speeds
        self._forecasts = forecasts
        self._t_fwd_s = t_fwd_s
        self._memory: Memory = {}
        self._curves: dict[int, Curve] = {}

    def curves(self, view: View) -> Sequence[Curve]:
        """Return what the priority says of everybody now."""
        inputs = RatingInputs(
            now_s=view.now_s,
            contenders=self._contenders(view),
            nodes=view.idle_nodes,
            t_fwd_s=self._t_fwd_s,
        )
        ratings = rate(inputs, self._priority, self._memory)
        self._memory = ratings.memory
        before = self._curves
        self._curves = {
            trainer.serial: _kept(before.get(trainer.serial), curve)
            for trainer, curve in zip(
                view.trainers, ratings.curves.values(), strict=True
            )
        }
        return tuple(self._curves.values())

    def _contenders(self, view: View) -> tuple[Contender, ...]:
        scalings = self._speeds.scalings(view)
        forecasts = map(self._forecast, view.trainers)
        made = tuple(map(contender_of, view.trainers, scalings, forecasts))
        if self._forecasts is not None:
            self._forecasts.keep(_name(trainer) for trainer in view.trainers)
        return made

    def _forecast(self, trainer: TrainerView) -> LossForecast | None:
        quality = trainer.spec.quality
        if self._forecasts is None or quality is None:
            return None
        return self._forecasts.update(_name(trainer), trainer.points, quality.better)


def _name(trainer: TrainerView) -> str:
    """Return a name that a trainer which starts over does not share with itself."""
    return f"{trainer.serial}"


def _kept(before: Curve | None, now: Curve) -> Curve:
    """Return *before* where *now* is equal to it: solvers keep what they derive."""
    if before is None or before.sizes != now.sizes:
        return now
    same = np.array_equal(before.value_per_s, now.value_per_s)
    return before if same else now


def contender_of(
    trainer: TrainerView, scaling: Scaling, forecast: LossForecast | None
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
        forecast=forecast,
        grow_s=spec.costs.grow_s,
        shrink_s=spec.costs.shrink_s,
        start_s=spec.costs.start_s,
        lost_s=spec.costs.checkpoint_every_s / 2,
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
