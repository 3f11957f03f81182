"""How each policy is made for a replay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.lookahead.affinity import BoundedAffinity, LeafAffinity, line_order
from freetrain.lookahead.base import LEAST_WATCHED_S, forecaster_named
from freetrain.lookahead.reliability import ScoredForecaster
from freetrain.planning.lookahead import QuickSearch
from freetrain.planning.policy import Tools, class_of, make_policy
from freetrain.planning.settings import HORIZON_S, POLICIES, RATED_POLICIES
from freetrain.priority.base import Basis
from freetrain.priority.registry import priority_named
from freetrain.replay.policies.lookahead import LookaheadPolicy, Weights
from freetrain.replay.policies.planned import MeasuredSolver, PlannedPolicy
from freetrain.replay.policies.ratings import RatedAtEveryEvent, RatedOnce, Unrated
from freetrain.replay.policies.speeds import GivenSpeeds, LearnedSpeeds, WatchedPolicy
from freetrain.scaling import Profiling, deviations_for
from milp.planner import Planner, SolverName

if TYPE_CHECKING:
    from collections.abc import Callable

    from freetrain.lookahead.base import Forecaster, Prospects
    from freetrain.losscurve.fit import LossForecasts
    from freetrain.replay.policies.base import ReplayPolicy
    from freetrain.replay.policies.planned import SolverUse
    from freetrain.replay.policies.ratings import CurveSource
    from freetrain.replay.policies.speeds import Speeds
    from freetrain.replay.settings import ReplaySettings


def forecaster_for(settings: ReplaySettings) -> Forecaster:
    """Return the forecaster that *settings* name, which has seen nothing.

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


def policy_for(
    settings: ReplaySettings, clock: Callable[[], float], use: SolverUse
) -> ReplayPolicy:
    """Return the policy that *settings* name.

    Args:
        settings: The replay's; the policy is one of ``POLICIES``.
        clock: Seconds from any moment on; it only measures the solver.
        use: Where that is counted.

    Raises:
        UsageError: There is no such priority or forecaster.
    """
    entry, name = POLICIES[settings.policy], settings.policy
    if entry.looks_ahead:
        return lookahead_by(forecaster_for(settings), settings, clock, use)
    if entry.names_nodes:
        policy: ReplayPolicy = class_of(entry)()
        return policy
    planning = make_policy(name, tools_for(settings, clock, use))

    def planned(curves: CurveSource) -> ReplayPolicy:
        return PlannedPolicy(name, planning, curves, t_fwd_s=settings.t_fwd_s)

    if name in RATED_POLICIES:
        return _learning(settings, planned)
    return planned(_curves(settings, GivenSpeeds()) if entry.by_worth else Unrated())


def lookahead_by(
    forecaster: Prospects,
    settings: ReplaySettings,
    clock: Callable[[], float],
    use: SolverUse,
    *,
    regroups: bool = False,
) -> ReplayPolicy:
    """Return the policy ``lookahead`` with *forecaster*, whose horizon is ours."""
    policy = make_policy("lookahead", tools_for(settings, clock, use))
    weights = Weights(t_fwd_s=min(settings.t_fwd_s, HORIZON_S))
    asked = ScoredForecaster(forecaster) if settings.record_forecasts else forecaster
    return _learning(
        settings,
        lambda curves: LookaheadPolicy(
            asked, policy, curves, weights, regroups=regroups
        ),
    )


def tools_for(
    settings: ReplaySettings, clock: Callable[[], float], use: SolverUse
) -> Tools:
    """Return what policies of a replay are made with; it verifies changes itself."""
    name, limit_s = SolverName(settings.solver.value), settings.solver_limit_s

    def solver() -> MeasuredSolver:
        return MeasuredSolver(Planner(name, limit_s=limit_s), use, clock)

    def start_solver() -> MeasuredSolver:
        # What begins from its plans has its own verified.
        planner = Planner(name, limit_s=limit_s, verifies=False)
        return MeasuredSolver(planner, use, clock, is_start=True)

    return Tools(
        solver=solver,
        start_solver=start_solver,
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
    speeds = LearnedSpeeds(Profiling(), deviations=deviations)
    return WatchedPolicy(make(_curves(settings, speeds)), speeds)


def _curves(settings: ReplaySettings, speeds: Speeds) -> CurveSource:
    own, t_fwd_s = dict(settings.priority_settings), settings.t_fwd_s
    priority = priority_named(settings.priority, own)
    if priority.basis is Basis.TRAINER:
        return RatedOnce(priority, speeds, t_fwd_s=t_fwd_s)
    forecasts = _forecasts() if priority.basis is Basis.LOSSES else None
    return RatedAtEveryEvent(priority, speeds, forecasts, t_fwd_s=t_fwd_s)


def _forecasts() -> LossForecasts:
    # SciPy takes 0.3 s to import, which a replay without losses is spared.
    from freetrain.losscurve.fit import LossForecasts  # noqa: PLC0415

    return LossForecasts()
