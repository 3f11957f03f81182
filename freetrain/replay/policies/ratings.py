"""What nodes are worth to trainers of a replay: a priority's ratings of their speeds.

Speeds are the true ones, or learned from each trainer's past in the replay as a tick
learns them: a replay sees samples done at each event, a tick reads reports. Both go
through ``freetrain.planning.rating``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from freetrain.planning.rating import (
    is_scarce,
    learned_costs_s,
    learned_speeds,
    rate,
)
from freetrain.priority.base import Contender, RatingInputs
from freetrain.replay.policies.base import Foretelling
from freetrain.replay.trainers import Costs, Scaling
from freetrain.scaling import (
    DEVIATIONS,
    LearnedScaling,
    ProgressMark,
    TrainedFragment,
    measured_speed,
    pool,
    shown_by,
    site_prior,
)
from milp.problem import Curve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from freetrain.lookahead.reliability import ScoredForecaster
    from freetrain.losscurve.fit import LossForecasts
    from freetrain.losscurve.forecast import LossForecast
    from freetrain.priority.base import Memory, Priority, Target
    from freetrain.replay.policies.base import Change, ReplayPolicy, TrainerView, View
    from freetrain.scaling import Profiling, Shown, SpeedPrior


_MOST_CURVES = 10_000
"""A few hundred bytes each."""


class CurveSource(Protocol):
    """Rates trainers: the worth of their work, by node count."""

    def curves(self, view: View) -> Sequence[Curve]:
        """Return each trainer's curve as of now; the same object while it is equal.

        So is the sequence: it is another one where a trainer or a curve changed.
        """
        ...


class Unrated:
    """No ratings: a curve has the sizes that a trainer can run on, and its speeds."""

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
        """Return the curves of the priority's ratings now."""
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
    """Return *trainer* for a priority: what its user said of it, and its past."""
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


# Speeds: given, or learned


class Speeds(Protocol):
    """Knows trainers' speeds by node count; to be asked at every event."""

    def scalings(self, view: View) -> Sequence[Scaling]:
        """Return the speeds of each trainer, in the view's order.

        The same object for as long as they stay.
        """
        ...


class GivenSpeeds:
    """Believes users, who are right in a replay."""

    def scalings(self, view: View) -> Sequence[Scaling]:
        """Return each trainer's own scaling."""
        return [trainer.spec.scaling for trainer in view.trainers]


_MANY_STEPS = 1_000
"""Trainers of a replay report no steps; between two events lie many."""

_MOST_MARKS = 64
_MOST_SHOWN = 100

_EVALUATED_AGAIN = 1.5
"""A fragment that goes on is looked at anew when it is half as long again."""

_SAME = 0.005
"""Planning anew for half a per cent would cost more than it brings."""


@dataclass(slots=True)
class Course:
    """The course of a trainer's work, as far as events show it.

    Attributes:
        learned: What its fragments showed.
        nodes: Nodes that it has held since ``began_s``.
        nodes_before: Nodes that it held until then.
        marks: Seconds and samples done, the first at ``began_s``.
        look_s: When its fragment is evaluated again.
        scaling: Its speeds, as the planner was given them last.
        shown: How many new speeds all trainers had shown by then.
        planned_for: Nodes that it held then, and whether trainers contended.
        is_due: Whether its fragment was evaluated since.
    """

    learned: LearnedScaling = field(default_factory=LearnedScaling)
    nodes: int = 0
    nodes_before: int = 0
    began_s: float = 0.0
    marks: list[tuple[float, float]] = field(default_factory=list)
    look_s: float = 0.0
    scaling: Scaling | None = None
    shown: int = -1
    planned_for: tuple[int, bool] = (0, False)
    is_due: bool = True

    def begin(self, nodes: int, before: int, *, now_s: float, done: float) -> None:
        """Begin a fragment."""
        self.nodes, self.nodes_before, self.began_s = nodes, before, now_s
        self.marks = [(now_s, done)]
        self.look_s = now_s

    def mark(self, now_s: float, done: float) -> None:
        """Add a moment; where there are too many, drop every other."""
        if len(self.marks) >= _MOST_MARKS:
            del self.marks[2:-1:2]
        self.marks.append((now_s, done))

    def evaluate(self) -> bool:
        """Learn from the fragment so far; return whether it shows a new speed."""
        fragment = _fragment(self)
        if fragment is None:
            return False
        before = self.learned.seen.get(self.nodes)
        self.learned = self.learned.with_fragment(fragment)
        after = self.learned.seen.get(self.nodes)
        if not before or not after:
            return after is not None
        then, now = (pool(seen, now_s=self.began_s) for seen in (before, after))
        return abs(now.log_speed - then.log_speed) > _SAME


class LearnedSpeeds:
    """Learns each trainer's speeds from its own past in the replay, and nothing else.

    It sees what a tick sees: the nodes that a trainer has held since when, and the
    samples done at each event. Of other trainers it only knows how quick and how steep
    they mostly are. ``decided`` must be called after every decision, as
    :class:`WatchedPolicy` does.
    """

    def __init__(
        self, profiling: Profiling | None = None, *, deviations: float = DEVIATIONS
    ) -> None:
        """Learn speeds.

        Args:
            profiling: How eager trainers are to try sizes; None for not at all.
            deviations: By how many standard deviations speeds of trainers that wait are
                lowered.
        """
        self._profiling = profiling
        self._deviations = deviations
        self._courses: dict[int, Course] = {}
        self._shown: dict[int, Shown] = {}
        self._prior: SpeedPrior = site_prior(())
        self._changes = 0
        self._paid = LearnedScaling()
        self._programs: dict[str, LearnedScaling] = {}
        self._is_scarce = False

    def scalings(self, view: View) -> Sequence[Scaling]:
        """Return the speeds of each trainer, in the view's order."""
        before, self._courses = self._courses, {}
        self._prior = site_prior(self._shown.values())
        self._is_scarce = is_scarce(
            [trainer.spec.scaling.sizes[-1] for trainer in view.trainers],
            view.idle_nodes,
        )
        for trainer in view.trainers:
            course = before.get(trainer.serial) or Course()
            self._courses[trainer.serial] = course
            self._look(course, trainer, view.now_s)
        return [self._scaling(trainer, view.now_s) for trainer in view.trainers]

    def decided(self, view: View, changes: Sequence[Change]) -> None:
        """Record the *changes* at *view*, before they are made."""
        for change in changes:
            trainer = view.trainers[change.trainer]
            held = len(trainer.held)
            nodes = held - len(change.drop) + len(change.take)
            course = self._courses[trainer.serial]
            if nodes != held:
                self._close(course, trainer, view.now_s)
                course.begin(nodes, held, now_s=view.now_s, done=trainer.done)

    def costs(self, trainer: TrainerView) -> Costs:
        """Return the costs of rescales of *trainer*, as far as they were seen."""
        learned = self._courses[trainer.serial].learned
        usual_s = learned_costs_s(self._paid)
        return Costs(*learned_costs_s(learned, usual_s))

    def _look(self, course: Course, trainer: TrainerView, now_s: float) -> None:
        held = len(trainer.held)
        if held != course.nodes:
            # The loss undid some of the work before it: this interval shows no speed.
            self._close(course, trainer, now_s)
            course.begin(held, course.nodes, now_s=now_s, done=trainer.done)
        elif held:
            course.mark(now_s, trainer.done)
            if now_s >= course.look_s:
                ran_s = now_s - course.began_s
                course.look_s = course.began_s + ran_s * _EVALUATED_AGAIN
                self._close(course, trainer, now_s)
                course.is_due = True

    def _close(self, course: Course, trainer: TrainerView, now_s: float) -> None:
        """Learn from the fragment so far."""
        is_new = course.evaluate()
        self._paid = self._paid.merged(LearnedScaling(paid=course.learned.paid))
        if not is_new:
            return
        program = trainer.spec.scaling.model
        known = self._programs.get(program, LearnedScaling())
        self._programs[program] = known.merged(course.learned)
        course.scaling = self._planned(course, trainer, now_s)
        shown = shown_by(course.learned, now_s=now_s)
        if shown is not None:
            self._shown.pop(trainer.serial, None)
            self._shown[trainer.serial] = shown
            if len(self._shown) > _MOST_SHOWN:
                del self._shown[next(iter(self._shown))]
            self._changes += 1

    def _scaling(self, trainer: TrainerView, now_s: float) -> Scaling:
        course = self._courses[trainer.serial]
        is_new = not course.learned.seen and course.shown != self._changes
        planned_for = course.nodes, self._is_scarce
        is_due = is_new or course.is_due or planned_for != course.planned_for
        if course.scaling is None or is_due:
            course.is_due = False
            course.scaling = self._planned(course, trainer, now_s)
            course.shown, course.planned_for = self._changes, planned_for
        return course.scaling

    def _planned(self, course: Course, trainer: TrainerView, now_s: float) -> Scaling:
        """Return its speeds for the planner; the same object while they are similar."""
        sizes, costs = trainer.spec.scaling.sizes, self.costs(trainer)
        siblings = self._programs.get(trainer.spec.scaling.model, LearnedScaling())
        values = learned_speeds(
            course.learned.with_siblings(siblings, now_s=now_s),
            sizes,
            held=course.nodes,
            now_s=now_s,
            prior=self._prior,
            deviations=self._deviations,
            profiling=self._profiling,
            remaining_samples=trainer.spec.samples - trainer.done,
            costs_s=(costs.grow_s, costs.shrink_s, costs.start_s),
            is_scarce=self._is_scarce,
        )
        last = course.scaling
        if last is not None and is_same(values, last.samples_per_s):
            return last
        return Scaling(trainer.spec.name, values, sizes)


class WatchedPolicy:
    """A policy that passes its decisions on to learned speeds."""

    def __init__(self, policy: ReplayPolicy, speeds: LearnedSpeeds) -> None:
        self.name = policy.name
        self.policy = policy
        self._speeds = speeds

    @property
    def forecasts(self) -> ScoredForecaster | None:
        """Those of the policy, where they are watched."""
        policy = self.policy
        return policy.forecasts if isinstance(policy, Foretelling) else None

    def decide(self, view: View) -> Sequence[Change]:
        """Decide as the policy does."""
        changes = self.policy.decide(view)
        self._speeds.decided(view, changes)
        return changes


def is_same(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> bool:
    """Return whether speeds differ too little to plan anew."""
    return bool((np.abs(ours - theirs) <= _SAME * theirs).all())


def _fragment(course: Course) -> TrainedFragment | None:
    """Return the fragment under way; None where it does not show a speed yet.

    A replay does not report when training began. It follows from the speed later on,
    and from the samples done by the first mark.
    """
    begin_s, begun = course.marks[0] if course.marks else (0.0, 0.0)
    marks = [mark for mark in course.marks if mark[1] > begun]
    if not course.nodes or len(marks) <= 1:
        return None
    (first_s, first), (last_s, last) = marks[0], marks[-1]
    later = TrainedFragment(
        nodes=course.nodes,
        began_s=begin_s,
        first_step_s=first_s,
        last_step_s=last_s,
        samples=last - first,
        steps=_MANY_STEPS,
        marks=tuple(ProgressMark(t_s, done - first) for t_s, done in marks[1:-1]),
    )
    seen = measured_speed(later)
    if seen is None:
        return None
    stalled_s = first_s - begin_s - (first - begun) / seen.samples_per_s
    return TrainedFragment(
        nodes=course.nodes,
        began_s=begin_s,
        first_step_s=begin_s + max(0.0, stalled_s),
        last_step_s=last_s,
        samples=last - begun,
        steps=_MANY_STEPS,
        marks=tuple(ProgressMark(t_s, done - begun) for t_s, done in marks[:-1]),
        nodes_before=course.nodes_before,
        step_before_s=begin_s,
    )
