"""Every policy by the name that users call it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from freetrain.replay.policies.equal import EqualPolicy
from freetrain.replay.policies.freetrain import FreeTrainPolicy, SolverUse
from freetrain.replay.policies.scavenger import ScavengerPolicy
from freetrain.replay.policies.worth import ObjectiveWorth
from milp.exact import ExactSolver

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from freetrain.replay.policies.interface import Policy
    from freetrain.replay.settings import ReplaySettings

    Maker = Callable[[ReplaySettings, Callable[[], float], SolverUse], Policy]


def _freetrain(
    settings: ReplaySettings, clock: Callable[[], float], use: SolverUse
) -> Policy:
    return FreeTrainPolicy(
        ExactSolver(),
        ObjectiveWorth(settings.objective),
        t_fwd_s=settings.t_fwd_s,
        clock=clock,
        use=use,
    )


POLICIES: Mapping[str, Maker] = MappingProxyType(
    {
        "freetrain": _freetrain,
        "equal": lambda *_: EqualPolicy(),
        "scavenger": lambda *_: ScavengerPolicy(),
        "static": _freetrain,
    }
)
"""How each policy is made. ``static`` is ``freetrain`` on dedicated nodes."""
