"""Makes the policy that a replay's settings name, and asks it at every event.

``policy_for`` gives a policy of :mod:`freetrain.planning` the tools of a replay.
``PlannedPolicy`` asks it at each event for counts of nodes, and chooses the nodes.
``ScavengerPolicy`` is a yardstick that decides alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from freetrain.lookahead.affinity import BoundedAffinity, LeafAffinity, line_order
from freetrain.lookahead.base import LEAST_WATCHED_S, forecaster_named
from freetrain.lookahead.experience import ServiceTime
from freetrain.lookahead.reliability import ScoredForecaster
from freetrain.planning.lookahead import QuickSearch
from freetrain.planning.policy import PlanTrainer, Request, Tools, make_policy
from freetrain.planning.rating import start_cost_s
from freetrain.planning.settings import HORIZON_S, POLICIES, RATED_POLICIES
from freetrain.plugins import load
from freetrain.priority.base import RatingBasis, priority_named
from freetrain.replay.policies.adaptive import BY_PRICE, FOLLOWED, RIGID_SIZES, Shadow
from freetrain.replay.policies.base import Change
from freetrain.replay.policies.lookahead import LookaheadPolicy, Weights
from freetrain.replay.policies.ratings import (
    GivenSpeeds,
    LearnedSpeeds,
    RatedAtEveryEvent,
    RatedOnce,
    Unrated,
    WatchedPolicy,
)
from freetrain.scaling import Profiling, deviations_for
from milp.answer import PlanStatus
from milp.planner import Planner, SolverName
from milp.window import window_gap

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from freetrain.lookahead.base import Forecaster, Prospects
    from freetrain.lookahead.experience import Experience
    from freetrain.losscurve.fit import LossForecasts
    from freetrain.planning.policy import Policy, ProblemSolver
    from freetrain.replay.engine import Engine
    from freetrain.replay.policies.base import ReplayPolicy, StatedTrainer, View
    from freetrain.replay.policies.ratings import CurveSource, Speeds
    from freetrain.replay.settings import ReplaySettings
    from freetrain.replay.trainers import Scaling
    from milp.answer import Answer
    from milp.problem import Curve, Problem
    from milp.window import Window


def policy_for(
    settings: ReplaySettings,
    clock: Callable[[], float],
    use: SolverUse,
    *,
    service: ServiceTime | None = None,
) -> ReplayPolicy:
    """Return the policy that *settings* name.

    For ``adaptive`` it looks ahead, and ``freetrain.replay.run`` adds the shadows.

    Args:
        settings: The replay's; the policy is one of ``POLICIES``.
        clock: Seconds from any moment on; it only measures the solver.
        use: Counts of the solver's calls.
        service: How long trainers keep nodes, where another policy learns it.

    Raises:
        UsageError: There is no such priority or forecaster.
    """
    entry, name = POLICIES[settings.policy], settings.policy
    if entry.looks_ahead:
        return lookahead_by(forecaster_for(settings), settings, clock, use)
    if entry.chooses_nodes:
        policy: ReplayPolicy = load(entry.made_by)()
        return policy
    planning = make_policy(name, tools_for(settings, clock, use))

    def planned(curves: CurveSource) -> ReplayPolicy:
        t_fwd_s = settings.t_fwd_s
        return PlannedPolicy(name, planning, curves, t_fwd_s=t_fwd_s, service=service)

    if name in RATED_POLICIES:
        return _learning(settings, planned)
    return planned(_curves(settings, GivenSpeeds()) if entry.by_worth else Unrated())


def shadows_for(
    settings: ReplaySettings,
    engine_for: Callable[[ReplaySettings, ReplayPolicy], Engine],
    clock: Callable[[], float],
    use: SolverUse,
    *,
    scalings: Collection[Scaling],
) -> dict[str, Shadow]:
    """Return the shadows of the policy ``adaptive``, by policy.

    Args:
        settings: The replay's.
        engine_for: Makes a shadow's engine with these settings and policy.
        clock: Seconds from any moment on.
        use: Counts of the solver's calls by the policy that looks ahead.
        scalings: The trainers', each once.
    """
    asked = replace(settings, record_steps=False)

    def rigid(size: int) -> Shadow:
        own = replace(asked, policy="scavenger")
        return Shadow(
            engine_for(own, ScavengerPolicy(size)), lambda: ScavengerPolicy(size)
        )

    def ahead(own: ReplaySettings, counts: SolverUse) -> Shadow:
        forecaster: Prospects = forecaster_for(own)
        if own.record_forecasts:
            forecaster = ScoredForecaster(forecaster)
        policy = lookahead_by(forecaster, own, clock, counts)
        inner = policy.policy if isinstance(policy, WatchedPolicy) else policy
        known = inner.experience if isinstance(inner, LookaheadPolicy) else None
        return Shadow(
            engine_for(own, policy),
            lambda: lookahead_by(forecaster, own, clock, use, learned=known),
        )

    def shadow(name: str) -> Shadow:
        own = replace(asked, policy=name)
        if name == FOLLOWED[0]:
            return ahead(own, use)
        policy = policy_for(own, clock, SolverUse())
        service = policy.service if isinstance(policy, PlannedPolicy) else None
        return Shadow(
            engine_for(own, policy),
            lambda: policy_for(own, clock, use, service=service),
        )

    # Trainers of one size never rescale, and forecasts have little to give.
    may_rescale = any(len(scaling.sizes) > 1 for scaling in scalings)
    first = FOLLOWED[0] if may_rescale else "freetrain"
    shadows = {name: shadow(name) for name in dict.fromkeys((first, *FOLLOWED))}
    if _is_mixed(scalings) and settings.priority != "price":
        own = replace(
            asked,
            policy=FOLLOWED[0],
            priority="price",
            priority_settings=(),
            record_forecasts=False,
        )
        shadows[BY_PRICE] = ahead(own, SolverUse())
    return shadows | {f"scavenger of {size}": rigid(size) for size in RIGID_SIZES}


def _is_mixed(scalings: Collection[Scaling]) -> bool:
    """Tell whether trainers scale in several ways, and each trains on some size.

    Else ``price`` plans as ``throughput`` does, or refuses a trainer.
    """
    works = all(scaling.best_samples_per_s > 0 for scaling in scalings)
    return len(scalings) > 1 and works


_BY_SAMPLES = ("throughput", "speedup", "price")
"""Priorities by which more samples are better, of whichever trainer."""


def follows(settings: ReplaySettings) -> bool:
    """Return whether ``adaptive`` has shadows; else it is the first of them.

    Samples must be what counts, and true speeds known: where they are learned, it is
    unknown how much another plan would have trained.
    """
    return settings.priority in _BY_SAMPLES and not settings.learns_speeds


def lookahead_by(  # noqa: PLR0913 - parts that loops and shadows replace
    forecaster: Prospects,
    settings: ReplaySettings,
    clock: Callable[[], float],
    use: SolverUse,
    *,
    regroups: bool = False,
    learned: Experience | None = None,
) -> ReplayPolicy:
    """Return the policy ``lookahead`` with *forecaster*, whose horizon is ours."""
    policy = make_policy("lookahead", tools_for(settings, clock, use))
    weights = Weights(t_fwd_s=min(settings.t_fwd_s, HORIZON_S))
    is_watched = isinstance(forecaster, ScoredForecaster)
    if settings.record_forecasts and not is_watched:
        forecaster = ScoredForecaster(forecaster)
    return _learning(
        settings,
        lambda curves: LookaheadPolicy(
            forecaster, policy, curves, weights, regroups=regroups, learned=learned
        ),
    )


def forecaster_for(settings: ReplaySettings) -> Forecaster:
    """Return the forecaster that *settings* name; it has seen no event.

    Raises:
        UsageError: There is no such forecaster.
    """
    leaves, counted = settings.leaves, BoundedAffinity()
    return forecaster_named(settings.forecaster)(
        HORIZON_S,
        pairs=LeafAffinity(counted, leaves.__getitem__) if leaves else counted,
        checks=settings.record_forecasts,
        state=None,
        learns_s=LEAST_WATCHED_S,
        order=line_order(leaves, int),
    )


def tools_for(
    settings: ReplaySettings, clock: Callable[[], float], use: SolverUse
) -> Tools:
    """Return the tools of policies in a replay, whose engine verifies changes."""
    name, limit_s = SolverName(settings.solver.value), settings.solver_limit_s

    def solver(*, is_start: bool = False) -> MeasuredSolver:
        planner = Planner(name, limit_s=limit_s, verifies=False)
        return MeasuredSolver(planner, use, clock, is_start=is_start)

    return Tools(
        solver=solver,
        start_solver=partial(solver, is_start=True),
        search=lambda: QuickSearch(use.gaps.keep),
        verifies=False,
    )


def _learning(
    settings: ReplaySettings, make: Callable[[CurveSource], ReplayPolicy]
) -> ReplayPolicy:
    """Return the policy that *make* makes, with speeds as users gave or as learned."""
    if not settings.learns_speeds:
        return make(_curves(settings, GivenSpeeds()))
    deviations = deviations_for(settings.priority)
    profiling = Profiling(trial_s=settings.t_fwd_s)
    speeds = LearnedSpeeds(profiling, deviations=deviations)
    return WatchedPolicy(make(_curves(settings, speeds)), speeds)


def _curves(settings: ReplaySettings, speeds: Speeds) -> CurveSource:
    own, t_fwd_s = dict(settings.priority_settings), settings.t_fwd_s
    priority = priority_named(settings.priority, own)
    if priority.basis is RatingBasis.TRAINER:
        return RatedOnce(priority, speeds, t_fwd_s=t_fwd_s)
    forecasts = _forecasts() if priority.basis is RatingBasis.LOSSES else None
    return RatedAtEveryEvent(priority, speeds, forecasts, t_fwd_s=t_fwd_s)


def _forecasts() -> LossForecasts:
    # SciPy takes 0.3 s to import, which a replay without losses is spared.
    from freetrain.losscurve.fit import LossForecasts  # noqa: PLC0415

    return LossForecasts()


# Policies that plan in counts


class PlannedPolicy:
    """Asks a policy that plans in counts; all idle nodes are of one class.

    Args:
        name: What results call it.
        policy: The policy.
        curves: Rates trainers.
        t_fwd_s: Look-ahead over which a plan's gain is counted, seconds.
        service: How long trainers keep nodes, as another policy learns it; None to
            learn it here.
    """

    def __init__(
        self,
        name: str,
        policy: Policy,
        curves: CurveSource,
        *,
        t_fwd_s: float,
        service: ServiceTime | None = None,
    ) -> None:
        self.name = name
        self._policy = policy
        self._curves = curves
        self._t_fwd_s = t_fwd_s
        self._asked: Sequence[Curve] | None = None
        self._trainers: list[_BySize] = []
        self._known: dict[_Alike, _BySize] = {}
        self.service = service or ServiceTime()
        self._learns = service is None
        self._held: dict[int, int] = {}
        self._at_s = 0.0

    def decide(self, view: View) -> Sequence[Change]:
        """Plan for the pool as it is and turn the plan into changes."""
        counts = self._plan(view) if view.trainers and view.idle_nodes else ()
        if self._learns:
            self._serve(view, counts or [0] * len(view.trainers))
        return changes_to(counts, view) if counts else ()

    def _plan(self, view: View) -> Sequence[int]:
        """Return nodes by trainer, in the view's order."""
        curves = self._curves.curves(view)
        if curves is not self._asked:
            self._asked, self._trainers = curves, self._by_size(view, curves)
        stay_s = self.service.stay_s
        trainers = [
            by_size[held] if (held := len(trainer.held)) else by_size.waiting(stay_s)
            for trainer, by_size in zip(view.trainers, self._trainers, strict=True)
        ]
        free = {0: len(view.free)}
        planned = self._policy.plan(
            Request(trainers=trainers, free=free, t_fwd_s=self._t_fwd_s)
        )
        return [own.get(0, 0) for own in planned.holdings]

    def _serve(self, view: View, counts: Sequence[int]) -> None:
        """Note how long trainers have kept nodes, and who has none from now on."""
        before, now = self._held, list(zip(view.trainers, counts, strict=True))
        self._held = {trainer.serial: nodes for trainer, nodes in now if nodes}
        ended = sum(
            [
                before.get(trainer.serial, 0)
                for trainer, nodes in now
                if not nodes or not trainer.held
            ]
        )
        passed_s, self._at_s = view.now_s - self._at_s, view.now_s
        self.service.note(passed_s, held=sum(before.values()), ended=ended)

    def _by_size(self, view: View, curves: Sequence[Curve]) -> list[_BySize]:
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        made = []
        for place, (trainer, curve) in enumerate(
            zip(view.trainers, curves, strict=True)
        ):
            costs = trainer.spec.costs
            alike = (place, curve, costs.grow_s, costs.shrink_s, costs.start_s)
            by_size = self._known.get(alike)
            if by_size is None:
                by_size = self._known[alike] = _BySize(alike, self._t_fwd_s)
            made.append(by_size)
        return made


_Alike: TypeAlias = "tuple[int, Curve, float, float, float]"
"""Place among the trainers, curve, and seconds of growing, shrinking and starting."""

_MOST_KNOWN = 5_000
"""Some hundred bytes each; 300 trainers of seven networks have two thousand."""


class _BySize(dict[int, PlanTrainer]):
    """Trainers that differ only in the number of nodes that they hold.

    They are called by their place, not by name: one that comes after another at the
    same place, with an equal curve and equal costs, is the same to a policy, which
    keeps what it has derived.
    """

    def __init__(self, alike: _Alike, t_fwd_s: float) -> None:
        super().__init__()
        self._alike = alike
        self._t_fwd_s = t_fwd_s
        self._stay_s = 0.0

    def __missing__(self, held: int) -> PlanTrainer:
        made = self[held] = self._made(held, start_s=0.0)
        return made

    def waiting(self, stay_s: float) -> PlanTrainer:
        """Return it without nodes, its start spread over *stay_s*."""
        if stay_s != self._stay_s:
            *_, start_s = self._alike
            cost_s = start_cost_s(start_s, stay_s=stay_s, reach_s=self._t_fwd_s)
            self._stay_s, self[0] = stay_s, self._made(0, cost_s)
        return self[0]

    def _made(self, held: int, start_s: float) -> PlanTrainer:
        place, curve, grow_s, shrink_s, _ = self._alike
        return PlanTrainer(
            name=str(place),
            curve=curve,
            held={0: held} if held else {},
            up_s=grow_s,
            down_s=shrink_s,
            start_s=start_s,
        )


def changes_to(counts: Sequence[int], view: View) -> tuple[Change, ...]:
    """Return the changes that give each trainer its count, without migration.

    As in the published evaluation: a trainer that shrinks drops its lowest-numbered
    nodes, and one that grows takes the highest-numbered free nodes first, those that
    others drop included.

    Args:
        counts: Nodes by trainer, in the view's order; at most ``idle_nodes``
            together.
        view: The pool as it is.
    """
    surplus = [len(t.held) - n for t, n in zip(view.trainers, counts, strict=True)]
    if not any(surplus):
        return ()
    dropped = {
        place: tuple(sorted(view.trainers[place].held)[:nodes])
        for place, nodes in enumerate(surplus)
        if nodes > 0
    }
    given = [node for nodes in dropped.values() for node in nodes]
    wanted = -sum([nodes for nodes in surplus if nodes < 0])
    free = view.free.highest(wanted)
    if given:
        free = sorted([*free, *given])
    changes, untaken = [], len(free)
    for place, nodes in enumerate(surplus):
        if nodes > 0:
            changes.append(Change(place, drop=dropped[place]))
        elif nodes < 0:
            taken = tuple(free[untaken + nodes : untaken])
            untaken += nodes
            changes.append(Change(place, take=taken))
    return tuple(changes)


class ScavengerPolicy:
    """Rigid jobs in a preemptable partition with requeue, first come first served.

    Each trainer is a job of its ``fixed_nodes``. A job that loses a node is
    killed: it gives up the rest and starts anew once as many nodes as it needs are free
    and no job before it waits. It keeps its place in the queue, which is that of its
    arrival.

    Args:
        size: The size of trainers without ``fixed_nodes``; or their next one below, or
            their smallest.
    """

    name = "scavenger"

    def __init__(self, size: int = 1) -> None:
        self._size = size
        self._fixed: dict[Scaling, int] = {}

    def decide(self, view: View) -> Sequence[Change]:
        """Kill the jobs that lost a node, then start what fits, in order."""
        waiting = [
            place
            for place, trainer in enumerate(view.trainers)
            if len(trainer.held) != self._wanted(trainer.spec)
        ]
        dropped = {
            place: tuple(sorted(held))
            for place in waiting
            if (held := view.trainers[place].held)
        }
        given = [node for nodes in dropped.values() for node in nodes]
        sizes = [self._wanted(view.trainers[place].spec) for place in waiting]
        left = len(view.free) + len(given)
        free = sorted([*view.free.highest(min(left, sum(sizes))), *given])
        taken: dict[int, tuple[int, ...]] = {}
        for place, wanted in zip(waiting, sizes, strict=True):
            left -= wanted
            if left < 0:
                break  # no job overtakes one that waits
            free, taken[place] = free[:-wanted], tuple(free[-wanted:])
        return [
            Change(place, dropped.get(place, ()), taken.get(place, ()))
            for place in sorted(dropped.keys() | taken.keys())
        ]

    def _wanted(self, spec: StatedTrainer) -> int:
        if spec.fixed_nodes is not None:
            return spec.fixed_nodes
        known = self._fixed.get(spec.scaling)
        if known is None:
            sizes = spec.scaling.sizes
            fitting = [size for size in sizes if size <= self._size]
            known = self._fixed[spec.scaling] = max(fitting, default=sizes[0])
        return known


# Calls of the solver, and the gaps of its plans


_MOST_BOUNDS = 40
"""Bounds at the end of a replay: of 40 trainers one takes 43 ms, of 10 it takes 19."""

_HIGH = 0.9


class GapSampler:
    """Keeps some of a replay's plans, and measures their gaps when it is over.

    A bound takes a hundred times as long as a plan of a window, so that some dozens
    of windows are kept, at equal distances: when there are too many, every second is
    dropped, and of those that follow half as many are kept. Planners are not asked.

    Args:
        most: Windows that are kept at most, 1 or more.
    """

    def __init__(self, most: int = _MOST_BOUNDS) -> None:
        self._most = most
        self._every = 1
        self._plans = 0
        self._known: list[float] = []
        self._kept: list[tuple[Window, float]] = []

    def know(self, gap: float) -> None:
        """Record a plan with the *gap* that its planner reports."""
        self._plans += 1
        self._known.append(gap)

    def keep(self, window: Window, gain: float) -> None:
        """Record a plan of *window* that gains *gain*."""
        if self._plans % self._every == 0:
            self._kept.append((window.to_keep(), gain))
            if len(self._kept) > self._most:
                self._kept, self._every = self._kept[::2], 2 * self._every
        self._plans += 1

    def summary(self) -> Gap | None:
        """Return the gaps measured; None if there were no plans."""
        found = sorted(self._found())
        if not found:
            return None
        return Gap(
            mean=math.fsum(found) / len(found),
            high=found[math.ceil(_HIGH * len(found)) - 1],
            most=found[-1],
            sampled=len(found),
            plans=self._plans,
        )

    def _found(self) -> Iterator[float]:
        yield from self._known
        for window, gain in self._kept:
            yield window_gap(window, gain)


@dataclass(frozen=True, slots=True)
class Gap:
    """Gaps between plans and their upper bounds; ``milp.answer`` defines a gap.

    Attributes:
        mean: Mean gap of the plans measured.
        high: Nine of ten of them have at most this.
        most: The largest.
        sampled: Number of plans measured: all, or some at equal distances.
        plans: Number of plans made.
    """

    mean: float
    high: float
    most: float
    sampled: int
    plans: int


@dataclass(slots=True)
class SolverUse:
    """Calls of the solver in a replay.

    Attributes:
        calls: Number of calls.
        spent_s: Seconds that they took in all.
        fallbacks: Calls without a better plan, after which the present one was kept.
        gaps: Optimality gaps of the plans that were carried out.
    """

    calls: int = 0
    spent_s: float = 0.0
    fallbacks: int = 0
    gaps: GapSampler = field(default_factory=GapSampler)


class MeasuredSolver:
    """Counts and times the calls of a solver.

    Args:
        solver: The solver.
        use: The counts.
        clock: Seconds from any moment on.
        is_start: Whether another search starts from its plans, so that their gaps are
            not those of the plans that are carried out.
    """

    def __init__(
        self,
        solver: ProblemSolver,
        use: SolverUse,
        clock: Callable[[], float],
        *,
        is_start: bool = False,
    ) -> None:
        self._solver = solver
        self._use = use
        self._clock = clock
        self._is_start = is_start

    def plan(self, problem: Problem) -> Answer:
        """Return a plan, and how good it is."""
        began_s = self._clock()
        answer = self._solver.plan(problem)
        self._use.calls += 1
        self._use.spent_s += self._clock() - began_s
        self._use.fallbacks += answer.outcome is PlanStatus.KEPT
        if not self._is_start:
            self._use.gaps.know(answer.gap)
        return answer
