"""What policies of a replay know of trainers' speeds: all, or what trainers showed.

What differs from a tick is the history: a replay sees samples done at each event, and
a tick reads what programs report. From there on both go through ``planning.rating``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from freetrain.planning.rating import learned_costs_s, learned_speeds
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

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from freetrain.lookahead.reliability import ScoredForecaster
    from freetrain.replay.policies.base import Change, ReplayPolicy, TrainerView, View
    from freetrain.scaling import Prior, Profiling, Shown


class Speeds(Protocol):
    """Knows trainers' speeds by node count, once asked at every event."""

    def scalings(self, view: View) -> Sequence[Scaling]:
        """Return what is known of each trainer, in the view's order.

        The same object for as long as the same is known.
        """
        ...


class GivenSpeeds:
    """Believes what users said, which in a replay is the truth."""

    def scalings(self, view: View) -> Sequence[Scaling]:
        """Return each trainer's own scaling."""
        return [trainer.spec.scaling for trainer in view.trainers]


_MANY_STEPS = 1_000
"""Trainers of a replay tell no steps; between two events lie many."""

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
        nodes_before: Nodes that it held before.
        began_s: When it got those nodes.
        marks: Seconds and samples done, the first at ``began_s``.
        look_s: When its fragment is evaluated again.
        scaling: Its speeds, as the planner was given them last.
        shown: How many times any trainer had shown something new by then.
        waited: Whether it held no nodes then.
    """

    learned: LearnedScaling = field(default_factory=LearnedScaling)
    nodes: int = 0
    nodes_before: int = 0
    began_s: float = 0.0
    marks: list[tuple[float, float]] = field(default_factory=list)
    look_s: float = 0.0
    scaling: Scaling | None = None
    shown: int = -1
    waited: bool = True

    def begin(self, nodes: int, before: int, *, now_s: float, done: float) -> None:
        """Begin a fragment."""
        self.nodes, self.nodes_before, self.began_s = nodes, before, now_s
        self.marks = [(now_s, done)]
        self.look_s = now_s

    def mark(self, now_s: float, done: float) -> None:
        """Add a moment; where there are many, every other one does."""
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

    It sees what a tick sees: who held how many nodes since when, and how many
    samples are done at each event. Of other trainers it only knows how quick and how
    steep they mostly are. ``decided`` must be told of every decision, which
    :class:`WatchedPolicy` does.
    """

    def __init__(
        self, profiling: Profiling | None = None, *, deviations: float = DEVIATIONS
    ) -> None:
        """Take who is to try sizes, and by how much those that wait are lowered."""
        self._profiling = profiling
        self._deviations = deviations
        self._courses: dict[int, Course] = {}
        self._shown: dict[int, Shown] = {}
        self._prior: Prior = site_prior(())
        self._changes = 0
        self._paid = LearnedScaling()
        self._node_per_s = 0.0

    def scalings(self, view: View) -> Sequence[Scaling]:
        """Return what is known of each trainer, in the view's order."""
        before, self._courses = self._courses, {}
        self._prior = site_prior(self._shown.values())
        self._node_per_s = self._price(before)
        for trainer in view.trainers:
            course = before.get(trainer.serial) or Course()
            self._courses[trainer.serial] = course
            self._look(course, trainer, view.now_s)
        return [self._scaling(trainer, view.now_s) for trainer in view.trainers]

    def decided(self, view: View, changes: Sequence[Change]) -> None:
        """Take note of what happens at *view*, before it does."""
        for change in changes:
            trainer = view.trainers[change.trainer]
            held = len(trainer.held)
            nodes = held - len(change.drop) + len(change.take)
            course = self._courses[trainer.serial]
            if nodes != held:
                self._close(course, trainer, view.now_s)
                course.begin(nodes, held, now_s=view.now_s, done=trainer.done)

    def costs(self, trainer: TrainerView) -> Costs:
        """Return what rescales of *trainer* seem to cost."""
        learned = self._courses[trainer.serial].learned
        usual_s = learned_costs_s(self._paid)
        return Costs(*learned_costs_s(learned, usual_s))

    def _look(self, course: Course, trainer: TrainerView, now_s: float) -> None:
        held = len(trainer.held)
        if held != course.nodes:
            # What was done before the loss is partly undone: this interval says
            # nothing.
            self._close(course, trainer, now_s)
            course.begin(held, course.nodes, now_s=now_s, done=trainer.done)
        elif held:
            course.mark(now_s, trainer.done)
            if now_s >= course.look_s:
                ran_s = now_s - course.began_s
                course.look_s = course.began_s + ran_s * _EVALUATED_AGAIN
                self._close(course, trainer, now_s)

    def _close(self, course: Course, trainer: TrainerView, now_s: float) -> None:
        """Learn from the fragment so far."""
        is_new = course.evaluate()
        self._paid = self._paid.merged(LearnedScaling(paid=course.learned.paid))
        if not is_new:
            return
        course.scaling = self._planned(course, trainer, now_s)
        shown = shown_by(course.learned, now_s=now_s)
        if shown is not None:
            self._shown.pop(trainer.serial, None)
            self._shown[trainer.serial] = shown
            if len(self._shown) > _MOST_SHOWN:
                del self._shown[next(iter(self._shown))]
            self._changes += 1

    @staticmethod
    def _price(courses: Mapping[int, Course]) -> float:
        """Return what a node in use brings, as far as is known: samples a second."""
        running = [
            (course.nodes, float(course.scaling.samples_per_s[course.nodes]))
            for course in courses.values()
            if course.nodes and course.scaling is not None and course.learned.seen
        ]
        nodes = sum(nodes for nodes, _ in running)
        return sum(speed for _, speed in running) / nodes if nodes else 0.0

    def _scaling(self, trainer: TrainerView, now_s: float) -> Scaling:
        course = self._courses[trainer.serial]
        is_new = not course.learned.seen and course.shown != self._changes
        waits = not course.nodes
        if course.scaling is None or is_new or waits != course.waited:
            course.scaling = self._planned(course, trainer, now_s)
            course.shown, course.waited = self._changes, waits
        return course.scaling

    def _planned(self, course: Course, trainer: TrainerView, now_s: float) -> Scaling:
        """Return its speeds for the planner; the same object while they are similar."""
        sizes, costs = trainer.spec.scaling.sizes, self.costs(trainer)
        values = learned_speeds(
            course.learned,
            sizes,
            held=course.nodes,
            now_s=now_s,
            prior=self._prior,
            deviations=self._deviations,
            profiling=self._profiling,
            remaining_samples=trainer.spec.samples - trainer.done,
            costs_s=(costs.grow_s, costs.shrink_s, costs.start_s),
            node_per_s=self._node_per_s,
        )
        last = course.scaling
        if last is not None and is_same(values, last.samples_per_s):
            return last
        return Scaling(trainer.spec.name, values, sizes)


class WatchedPolicy:
    """A policy whose decisions learned speeds take note of."""

    def __init__(self, policy: ReplayPolicy, speeds: LearnedSpeeds) -> None:
        self.name = policy.name
        self._policy = policy
        self._speeds = speeds

    @property
    def forecasts(self) -> ScoredForecaster | None:
        """Those of the policy, where they are watched."""
        policy = self._policy
        return policy.forecasts if isinstance(policy, Foretelling) else None

    def decide(self, view: View) -> Sequence[Change]:
        """Decide as the policy does."""
        changes = self._policy.decide(view)
        self._speeds.decided(view, changes)
        return changes


def is_same(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> bool:
    """Tell whether speeds differ by so little that planning anew is not worth it."""
    return bool((np.abs(ours - theirs) <= _SAME * theirs).all())


def _fragment(course: Course) -> TrainedFragment | None:
    """Return the fragment under way; None where it does not show a speed yet.

    When training began is not told in a replay. It follows from the speed later on:
    what was done by the first mark took so long at that speed.
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
