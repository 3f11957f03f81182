"""Every policy by the name that users call it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from freetrain.priority.interface import Basis
from freetrain.priority.registry import priority_named
from freetrain.replay.policies.equal import EqualPolicy
from freetrain.replay.policies.freetrain import FreeTrainPolicy
from freetrain.replay.policies.planning import MeasuredPlanner, SolverUse
from freetrain.replay.policies.scavenger import ScavengerPolicy
from freetrain.replay.policies.speeds import GivenSpeeds
from freetrain.replay.policies.static import StaticPolicy
from freetrain.replay.policies.worth import RatedWorth, SteadyWorth
from milp.planner import Planner, SolverName

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from freetrain.quality.outlooks import Outlooks
    from freetrain.replay.policies.interface import Policy
    from freetrain.replay.policies.worth import Worth
    from freetrain.replay.settings import ReplaySettings

    Maker = Callable[[ReplaySettings, Callable[[], float], SolverUse], Policy]


def _planned(policy: type[FreeTrainPolicy | StaticPolicy]) -> Maker:
    """Return the maker of a policy that asks the planner."""

    def make(
        settings: ReplaySettings, clock: Callable[[], float], use: SolverUse
    ) -> Policy:
        planner = _planner(settings, clock, use)
        return policy(planner, _worth(settings), t_fwd_s=settings.t_fwd_s)

    return make


def _worth(settings: ReplaySettings) -> Worth:
    priority, t_fwd_s = priority_named(settings.priority), settings.t_fwd_s
    if priority.basis is Basis.TRAINER:
        return SteadyWorth(priority, GivenSpeeds(), t_fwd_s=t_fwd_s)
    outlooks = _outlooks() if priority.basis is Basis.LOSSES else None
    return RatedWorth(priority, GivenSpeeds(), outlooks, t_fwd_s=t_fwd_s)


def _outlooks() -> Outlooks:
    # SciPy takes 0.3 s to import, which a replay without losses is spared.
    from freetrain.quality.outlooks import Outlooks  # noqa: PLC0415

    return Outlooks()


def _planner(
    settings: ReplaySettings, clock: Callable[[], float], use: SolverUse
) -> MeasuredPlanner:
    name = SolverName(settings.solver.value)
    planner = Planner(name, limit_s=settings.solver_limit_s)
    return MeasuredPlanner(planner, use, clock)


POLICIES: Mapping[str, Maker] = MappingProxyType(
    {
        "freetrain": _planned(FreeTrainPolicy),
        "equal": lambda *_: EqualPolicy(),
        "scavenger": lambda *_: ScavengerPolicy(),
        "static": _planned(StaticPolicy),
    }
)
"""How each policy is made."""
