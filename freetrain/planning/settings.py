"""What configuration and command line may say of planning.

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
    """What finds the planner's optimum; the names of ``milp.planner.SolverName``."""

    EXACT = "exact"
    CBC = "cbc"
    HIGHS = "highs"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEntry:
    """A policy as the registry knows it.

    Attributes:
        module: Module whose function ``make`` makes it.
        is_live: Whether ticks offer it; the others are yardsticks of replays.
        by_worth: Whether it goes by what trainers are worth, as a priority says.
        looks_ahead: Whether it goes by forecasts of how long nodes stay.
        names_nodes: Whether it chooses nodes itself, in a replay, and not counts.
    """

    module: str
    is_live: bool = False
    by_worth: bool = False
    looks_ahead: bool = False
    names_nodes: bool = False


POLICIES: Mapping[str, PolicyEntry] = MappingProxyType(
    {
        "freetrain": PolicyEntry(
            module="freetrain.planning.published", is_live=True, by_worth=True
        ),
        "equal": PolicyEntry(module="freetrain.planning.equal", is_live=True),
        "scavenger": PolicyEntry(
            module="freetrain.replay.policies.scavenger", names_nodes=True
        ),
        "static": PolicyEntry(module="freetrain.planning.static", by_worth=True),
        "lookahead": PolicyEntry(
            module="freetrain.planning.lookahead",
            is_live=True,
            by_worth=True,
            looks_ahead=True,
        ),
    }
)
"""Every policy by the name that users call it. To add one, write its module and name it
here."""

LIVE_POLICIES = tuple(name for name, entry in POLICIES.items() if entry.is_live)
RATED_POLICIES = tuple(name for name in LIVE_POLICIES if POLICIES[name].by_worth)
"""The policies that follow each priority; ``static`` takes the first's."""
