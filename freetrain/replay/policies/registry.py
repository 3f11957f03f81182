"""Every policy by the name that users call it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from freetrain.lookahead.affinity import BoundedAffinity, LeafAffinity, line_order
from freetrain.lookahead.base import LEAST_WATCHED_S
from freetrain.lookahead.registry import forecaster_named
from freetrain.lookahead.reliability import ScoredForecaster
from freetrain.planning.settings import HORIZON_S
from freetrain.priority.base import Basis
from freetrain.priority.registry import priority_named
from freetrain.replay.policies.base import GivenSpeeds
from freetrain.replay.policies.lookahead import LookaheadPolicy, Weights
from freetrain.replay.policies.planned import (
    FreeTrainPolicy,
    LearnedSpeeds,
    MeasuredPlanner,
    RatedWorth,
    SolverUse,
    StaticPolicy,
    SteadyWorth,
    WatchedPolicy,
)
from freetrain.replay.policies.simple import EqualPolicy, ScavengerPolicy
from freetrain.scaling import Profiling, deviations_for
from milp.planner import Planner, SolverName

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from freetrain.lookahead.base import Forecaster, Prospects
    from freetrain.losscurve.fit import Outlooks
    from freetrain.replay.policies.base import Policy, Speeds
    from freetrain.replay.policies.planned import Worth
    from freetrain.replay.settings import ReplaySettings

    Maker = Callable[[ReplaySettings, Callable[[], float], SolverUse], Policy]


def _freetrain(
    settings: ReplaySettings, clock: Callable[[], float], use: SolverUse
) -> Policy:
    planner, t_fwd_s = _planner(settings, clock, use), settings.t_fwd_s
    return _watched(
        settings, lambda worth: FreeTrainPolicy(planner, worth, t_fwd_s=t_fwd_s)
    )


def _lookahead(
    settings: ReplaySettings, clock: Callable[[], float], use: SolverUse
) -> Policy:
    return lookahead_by(forecaster_for(settings), settings, clock, use)


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


def lookahead_by(
    forecaster: Prospects,
    settings: ReplaySettings,
    clock: Callable[[], float],
    use: SolverUse,
    *,
    regroups: bool = False,
) -> Policy:
    """Return the policy ``lookahead`` with *forecaster*, whose horizon is ours."""
    planner = _planner(settings, clock, use, is_start=True)
    weights = Weights(t_fwd_s=min(settings.t_fwd_s, HORIZON_S))
    asked = ScoredForecaster(forecaster) if settings.record_forecasts else forecaster
    return _watched(
        settings,
        lambda worth: LookaheadPolicy(
            asked, planner, worth, weights, regroups=regroups, gaps=use.gaps
        ),
    )


def _static(
    settings: ReplaySettings, clock: Callable[[], float], use: SolverUse
) -> Policy:
    planner, worth = _planner(settings, clock, use), _worth(settings, GivenSpeeds())
    return StaticPolicy(planner, worth, t_fwd_s=settings.t_fwd_s)


def _watched(settings: ReplaySettings, make: Callable[[Worth], Policy]) -> Policy:
    """Return the policy that *make* makes, with speeds as users gave or as learned."""
    if not settings.learns_speeds:
        return make(_worth(settings, GivenSpeeds()))
    deviations = deviations_for(settings.priority)
    speeds = LearnedSpeeds(Profiling(), deviations=deviations)
    return WatchedPolicy(make(_worth(settings, speeds)), speeds)


def _worth(settings: ReplaySettings, speeds: Speeds) -> Worth:
    own, t_fwd_s = dict(settings.priority_settings), settings.t_fwd_s
    priority = priority_named(settings.priority, own)
    if priority.basis is Basis.TRAINER:
        return SteadyWorth(priority, speeds, t_fwd_s=t_fwd_s)
    outlooks = _outlooks() if priority.basis is Basis.LOSSES else None
    return RatedWorth(priority, speeds, outlooks, t_fwd_s=t_fwd_s)


def _outlooks() -> Outlooks:
    # SciPy takes 0.3 s to import, which a replay without losses is spared.
    from freetrain.losscurve.fit import Outlooks  # noqa: PLC0415

    return Outlooks()


def _planner(
    settings: ReplaySettings,
    clock: Callable[[], float],
    use: SolverUse,
    *,
    is_start: bool = False,
) -> MeasuredPlanner:
    name, limit_s = SolverName(settings.solver.value), settings.solver_limit_s
    # What begins from its plans has its own verified.
    planner = Planner(name, limit_s=limit_s, verifies=not is_start)
    return MeasuredPlanner(planner, use, clock, is_start=is_start)


POLICIES: Mapping[str, Maker] = MappingProxyType(
    {
        "freetrain": _freetrain,
        "equal": lambda *_: EqualPolicy(),
        "scavenger": lambda *_: ScavengerPolicy(),
        "static": _static,
        "lookahead": _lookahead,
    }
)
"""How each policy is made."""
