"""Names and defaults of planning, for configuration and command line.

Imports nothing heavy, so that reading a file or a command line loads no planner.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_T_FWD_S = 120.0

HORIZON_S = 500.0
"""Forecasts and plans of ``lookahead`` reach this far, whatever T_fwd is; chosen on six
days of Summit."""


class Solver(StrEnum):
    """The names of ``milp.planner.SolverName``."""

    EXACT = "exact"
    CBC = "cbc"
    HIGHS = "highs"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEntry:
    """How a policy is made, and how it plans.

    Attributes:
        made_by: Its class, as ``module:class``.
        is_live: Whether ticks offer it; the others are yardsticks of replays.
        by_worth: Whether it follows the ratings of a priority.
        looks_ahead: Whether it uses forecasts of how long nodes stay.
        chooses_nodes: Whether it is of replays only and chooses single nodes, where
            the others plan counts of nodes.
    """

    made_by: str
    is_live: bool = False
    by_worth: bool = False
    looks_ahead: bool = False
    chooses_nodes: bool = False


POLICIES: Mapping[str, PolicyEntry] = MappingProxyType(
    {
        "freetrain": PolicyEntry(
            made_by="freetrain.planning.freetrain:FreeTrain",
            is_live=True,
            by_worth=True,
        ),
        "equal": PolicyEntry(made_by="freetrain.planning.equal:Equal", is_live=True),
        "scavenger": PolicyEntry(
            made_by="freetrain.replay.policies.registry:ScavengerPolicy",
            chooses_nodes=True,
        ),
        "static": PolicyEntry(
            made_by="freetrain.planning.freetrain:Static", by_worth=True
        ),
        "lookahead": PolicyEntry(
            made_by="freetrain.planning.lookahead:Lookahead",
            is_live=True,
            by_worth=True,
            looks_ahead=True,
        ),
        "adaptive": PolicyEntry(
            made_by="freetrain.replay.policies.adaptive:AdaptivePolicy",
            by_worth=True,
            looks_ahead=True,
        ),
    }
)
"""Every policy by its name in options and files.

A new one is a class and an entry here. One that looks ahead also needs a branch of
``policy_for`` in ``freetrain.replay.policies.registry``.
"""

LIVE_POLICIES = tuple(name for name, entry in POLICIES.items() if entry.is_live)
RATED_POLICIES = tuple(
    name for name, entry in POLICIES.items() if entry.by_worth and name != "static"
)
"""Policies that are replayed once a priority; ``static`` once, with the first."""
