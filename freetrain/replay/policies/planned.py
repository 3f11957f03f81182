"""The policy ``freetrain``: what the planner says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from freetrain.priority.base import Look, planned_curves
from freetrain.replay.policies.base import Foretelling, changes_to, contender_of
from freetrain.replay.result import Gaps
from freetrain.replay.trainers import Costs, Scaling
from freetrain.scaling import (
    ASSUMED_RESCALE_S,
    ASSUMED_START_S,
    DEVIATIONS,
    Fragment,
    LearnedScaling,
    Mark,
    Rescale,
    Stake,
    cautious,
    curve_values,
    estimate,
    pool,
    seen_in,
    shown_by,
    site_prior,
)
from milp.planner import Outcome
from milp.problem import NodeClass, Problem, TrainerState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from freetrain.lookahead.reliability import ScoredForecaster
    from freetrain.losscurve.fit import Outlooks
    from freetrain.losscurve.outlook import Outlook
    from freetrain.priority.base import Contender, Memory, Priority
    from freetrain.replay.policies.base import Change, Policy, Speeds, TrainerView, View
    from freetrain.scaling import Prior, Profiling, Shown
    from milp.planner import Answer
    from milp.problem import Curve


# ----------------------------------------------------------------------
# The policy ``freetrain``: what the planner says.


class FreeTrainPolicy:
    """Asks the planner at every event; all idle nodes are of one class."""

    name = "freetrain"

    def __init__(
        self,
        planner: MeasuredPlanner,
        worth: Worth,
        *,
        t_fwd_s: float,
    ) -> None:
        self._planner = planner
        self._worth = worth
        self._t_fwd_s = t_fwd_s
        self._states: dict[int, TrainerState] = {}

    def decide(self, view: View) -> Sequence[Change]:
        """Plan for the pool as it is and turn the plan into changes."""
        if not view.trainers or not view.idle_nodes:
            return ()
        problem = Problem(
            classes=(NodeClass("idle", view.idle_nodes),),
            trainers=self._known(view),
            t_fwd_s=self._t_fwd_s,
        )
        return changes_to(self._planner.counts(problem), view)

    def _known(self, view: View) -> tuple[TrainerState, ...]:
        """Return the trainers as the planner sees them, made anew where changed.

        Few trainers change at an event, and making a state costs more than
        looking one up.
        """
        before, self._states = self._states, {}
        curves = self._worth.curves(view)
        for trainer, curve in zip(view.trainers, curves, strict=True):
            state = before.get(trainer.serial)
            held = len(trainer.held)
            if state is None or state.held[0] != held or state.curve is not curve:
                state = _state(trainer, curve, held)
            self._states[trainer.serial] = state
        return tuple(self._states.values())


def _state(trainer: TrainerView, curve: Curve, held: int) -> TrainerState:
    costs = trainer.spec.costs
    return TrainerState(
        name=trainer.spec.name,
        curve=curve,
        held=(held,),
        up_s=costs.grow_s,
        down_s=costs.shrink_s,
        start_s=costs.start_s,
    )


# ----------------------------------------------------------------------
# Speeds that trainers of a replay showed so far, in place of their users' words.

_ASSUMED_S = (
    (Rescale.GROW, ASSUMED_RESCALE_S),
    (Rescale.SHRINK, ASSUMED_RESCALE_S),
    (Rescale.START, ASSUMED_START_S),
)

_MANY_STEPS = 1_000
"""Trainers of a replay tell no steps; between two events lie many."""

_MOST_MARKS = 64
_MOST_SHOWN = 100
_EVALUATED_AGAIN = 1.5
"""A fragment that goes on is looked at anew when it is half as long again."""

_SAME = 0.005
"""Planning anew for half a per cent would cost more than it brings."""


@dataclass(slots=True)
class _Course:
    """A trainer under way, as it was seen.

    Attributes:
        learned: What its fragments showed.
        nodes: What it has run on since ``began_s``.
        nodes_before: What it ran on before.
        began_s: When it got those nodes.
        marks: Moments, seconds and samples in all, the first at ``began_s``.
        look_s: When its fragment is evaluated again.
        scaling: What was told of it last.
        shown: How many times trainers had shown something by then.
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
        """Learn from the fragment so far; tell if it says anything new of speeds."""
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
        self._courses: dict[int, _Course] = {}
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
            course = before.get(trainer.serial) or _Course()
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
        grow_s, shrink_s, start_s = (
            learned.cost_s(kind, assumed_s=self._paid.cost_s(kind, assumed_s=assumed_s))
            for kind, assumed_s in _ASSUMED_S
        )
        return Costs(grow_s=grow_s, shrink_s=shrink_s, start_s=start_s)

    def _look(self, course: _Course, trainer: TrainerView, now_s: float) -> None:
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

    def _close(self, course: _Course, trainer: TrainerView, now_s: float) -> None:
        """Learn from the fragment so far."""
        is_new = course.evaluate()
        self._paid = self._paid.merged(LearnedScaling(paid=course.learned.paid))
        if not is_new:
            return
        course.scaling = self._told(course, trainer, now_s)
        shown = shown_by(course.learned, now_s=now_s)
        if shown is not None:
            self._shown.pop(trainer.serial, None)
            self._shown[trainer.serial] = shown
            if len(self._shown) > _MOST_SHOWN:
                del self._shown[next(iter(self._shown))]
            self._changes += 1

    @staticmethod
    def _price(courses: Mapping[int, _Course]) -> float:
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
            course.scaling = self._told(course, trainer, now_s)
            course.shown, course.waited = self._changes, waits
        return course.scaling

    def _told(self, course: _Course, trainer: TrainerView, now_s: float) -> Scaling:
        """Return what is to be told of a trainer now; the same while it is similar."""
        sizes, costs = trainer.spec.scaling.sizes, self.costs(trainer)
        known = estimate(course.learned, sizes[-1], now_s=now_s, prior=self._prior)
        stake = Stake(
            remaining_samples=trainer.spec.samples - trainer.done,
            # Whoever gives nodes for a trial up and takes them back pays as well.
            rescale_s=2.0 * (costs.grow_s + costs.shrink_s),
            held=course.nodes,
            smallest=sizes[0],
            node_per_s=self._node_per_s,
        )
        known = cautious(known, held=course.nodes, deviations=self._deviations)
        values = curve_values(known, profiling=self._profiling, stake=stake)
        last = course.scaling
        if last is not None and _is_same(values, last.samples_per_s):
            return last
        return Scaling(trainer.spec.name, values, sizes)


class WatchedPolicy:
    """A policy whose decisions are told to those who learn from them."""

    def __init__(self, policy: Policy, speeds: LearnedSpeeds) -> None:
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


def _is_same(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> bool:
    return bool((np.abs(ours - theirs) <= _SAME * theirs).all())


def _fragment(course: _Course) -> Fragment | None:
    """Return the fragment under way; None where it does not show a speed yet.

    When training began is not told in a replay. It follows from the speed later on:
    what was done by the first mark took so long at that speed.
    """
    begin_s, begun = course.marks[0] if course.marks else (0.0, 0.0)
    marks = [mark for mark in course.marks if mark[1] > begun]
    if not course.nodes or len(marks) <= 1:
        return None
    (first_s, first), (last_s, last) = marks[0], marks[-1]
    later = Fragment(
        nodes=course.nodes,
        began_s=begin_s,
        first_step_s=first_s,
        last_step_s=last_s,
        samples=last - first,
        steps=_MANY_STEPS,
        marks=tuple(Mark(t_s, done - first) for t_s, done in marks[1:-1]),
    )
    seen = seen_in(later)
    if seen is None:
        return None
    stalled_s = first_s - begin_s - (first - begun) / seen.samples_per_s
    return Fragment(
        nodes=course.nodes,
        began_s=begin_s,
        first_step_s=begin_s + max(0.0, stalled_s),
        last_step_s=last_s,
        samples=last - begun,
        steps=_MANY_STEPS,
        marks=tuple(Mark(t_s, done - begun) for t_s, done in marks[:-1]),
        nodes_before=course.nodes_before,
        step_before_s=begin_s,
    )


# ----------------------------------------------------------------------
# The planner, as policies use it: asked for counts, and measured.


@dataclass(slots=True)
class SolverUse:
    """What the solver cost a replay.

    Attributes:
        calls: How often it was asked.
        spent_s: How long that took in all, seconds.
        fallbacks: How often it had no plan, and the present one was kept.
        gaps: How far the plans that were carried out are from the best there can be.
    """

    calls: int = 0
    spent_s: float = 0.0
    fallbacks: int = 0
    gaps: Gaps = field(default_factory=Gaps)


class Plans(Protocol):
    """What plans: ``milp.planner.Planner``, or a fake of it."""

    def plan(self, problem: Problem) -> Answer:
        """Return a verified plan; the present one where there is no better."""
        ...


class MeasuredPlanner:
    """Asks the planner, which verifies every answer, and keeps count.

    Args:
        planner: What plans.
        use: Where it is counted.
        clock: Seconds from any moment on.
        is_start: Whether another planner begins from the counts, so that their gaps
            are nobody's.
    """

    def __init__(
        self,
        planner: Plans,
        use: SolverUse,
        clock: Callable[[], float],
        *,
        is_start: bool = False,
    ) -> None:
        self._planner = planner
        self._use = use
        self._clock = clock
        self._is_start = is_start

    def counts(self, problem: Problem) -> tuple[int, ...]:
        """Return the nodes of each trainer, for a problem of one node class."""
        return counts_of(self.answer(problem))

    def answer(self, problem: Problem) -> Answer:
        """Return a plan, and how good it is."""
        began_s = self._clock()
        answer = self._planner.plan(problem)
        self._use.calls += 1
        self._use.spent_s += self._clock() - began_s
        self._use.fallbacks += answer.outcome is Outcome.KEPT
        if not self._is_start:
            self._use.gaps.know(answer.gap)
        return answer


def counts_of(answer: Answer) -> tuple[int, ...]:
    """Return the nodes of each trainer, for a problem of one node class."""
    return tuple([row[0] for row in answer.plan.counts])


# ----------------------------------------------------------------------
# The policy ``static``: the planner on dedicated nodes, where changes are free.

_MOST_PLANS = 10_000
"""About 5 MB; a year of a busy machine asks for a few thousand different ones."""


class StaticPolicy:
    """Asks the planner once for each set of curves, and remembers the answer.

    Where nothing costs anything, the best counts depend on who is there and not
    on who holds what. Such problems have many equal optima, which makes them
    slow to solve exactly, and few of them are different.
    """

    name = "static"

    def __init__(
        self, planner: MeasuredPlanner, worth: Worth, *, t_fwd_s: float
    ) -> None:
        self._planner = planner
        self._worth = worth
        self._t_fwd_s = t_fwd_s
        self._curves: dict[Curve, int] = {}
        self._plans: dict[tuple[int, tuple[Curve, ...]], tuple[int, ...]] = {}

    def decide(self, view: View) -> Sequence[Change]:
        """Give everybody what the plan for those who are there gives them."""
        if not view.trainers or not view.idle_nodes:
            return ()
        curves = self._worth.curves(view)
        for curve in curves:
            self._curves.setdefault(curve, len(self._curves))
        order = sorted(range(len(curves)), key=lambda k: self._curves[curves[k]])
        planned = self._counts(tuple(curves[k] for k in order), view.idle_nodes)
        counts = [0] * len(curves)
        for place, nodes in zip(order, planned, strict=True):
            counts[place] = nodes
        return changes_to(counts, view)

    def _counts(self, curves: tuple[Curve, ...], pool_nodes: int) -> tuple[int, ...]:
        """Return the best counts for trainers of these curves."""
        known = self._plans.get((pool_nodes, curves))
        if known is not None:
            return known
        trainers = tuple(
            TrainerState(name=str(k), curve=curve, held=(0,), up_s=0.0, down_s=0.0)
            for k, curve in enumerate(curves)
        )
        pool = (NodeClass("dedicated", pool_nodes),)
        counts = self._planner.counts(Problem(pool, trainers, self._t_fwd_s))
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        self._plans[pool_nodes, curves] = counts
        return counts


# ----------------------------------------------------------------------
# What node counts are worth to the planner: a priority's ratings, as curves.

_MOST_CURVES = 10_000
"""A few hundred bytes each."""


class Worth(Protocol):
    """Says what trainers' work is worth, by node count."""

    def curves(self, view: View) -> Sequence[Curve]:
        """Return each trainer's curve as of now; the same object while it is equal."""
        ...


class SteadyWorth:
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
        look = Look(
            now_s=0.0,
            contenders=(contender_of(trainer, scaling, None),),
            nodes=scaling.sizes[-1],
            t_fwd_s=self._t_fwd_s,
        )
        (rating,) = self._priority.rate(look, {}).ratings
        if len(self._curves) >= _MOST_CURVES:
            self._curves.clear()
        self._curves[scaling, trainer.spec.weight] = rating.curve
        return rating.curve


class RatedWorth:
    """Ratings that change with the moment: made at every event, all together."""

    def __init__(
        self,
        priority: Priority,
        speeds: Speeds,
        outlooks: Outlooks | None,
        *,
        t_fwd_s: float,
    ) -> None:
        self._priority = priority
        self._speeds = speeds
        self._outlooks = outlooks
        self._t_fwd_s = t_fwd_s
        self._memory: Memory = {}
        self._curves: dict[int, Curve] = {}

    def curves(self, view: View) -> Sequence[Curve]:
        """Return what the priority says of everybody now."""
        look = Look(
            now_s=view.now_s,
            contenders=self._contenders(view),
            nodes=view.idle_nodes,
            t_fwd_s=self._t_fwd_s,
        )
        rated = self._priority.rate(look, self._memory)
        self._memory = rated.memory
        before = self._curves
        self._curves = {
            trainer.serial: _kept(before.get(trainer.serial), curve)
            for trainer, curve in zip(
                view.trainers, planned_curves(rated.ratings), strict=True
            )
        }
        return tuple(self._curves.values())

    def _contenders(self, view: View) -> tuple[Contender, ...]:
        scalings = self._speeds.scalings(view)
        outlooks = map(self._outlook, view.trainers)
        made = tuple(map(contender_of, view.trainers, scalings, outlooks))
        if self._outlooks is not None:
            self._outlooks.keep(_name(trainer) for trainer in view.trainers)
        return made

    def _outlook(self, trainer: TrainerView) -> Outlook | None:
        quality = trainer.spec.quality
        if self._outlooks is None or quality is None:
            return None
        return self._outlooks.look(_name(trainer), trainer.points, quality.better)


def _name(trainer: TrainerView) -> str:
    """Return a name that a trainer which starts over does not share with itself."""
    return f"{trainer.serial}"


def _kept(before: Curve | None, now: Curve) -> Curve:
    """Return *before* where *now* is equal to it: solvers keep what they derive."""
    if before is None or before.sizes != now.sizes:
        return now
    same = np.array_equal(before.value_per_s, now.value_per_s)
    return before if same else now
