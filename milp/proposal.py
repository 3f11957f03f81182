"""What a formulation proposes, before anybody has verified it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milp.problem import Plan


class Found(StrEnum):
    """What a solver claims to have found."""

    OPTIMUM = "optimum"
    INCUMBENT = "incumbent"
    NOTHING = "nothing within the limit"
    INFEASIBLE = "infeasible"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan that a formulation found, and what its solver claims about it.

    Attributes:
        plan: The plan, or None where the solver found none.
        found: The claim.
        reason: Why the claim holds where no solver made it; else empty.
    """

    plan: Plan | None
    found: Found
    reason: str = ""

    @property
    def is_optimum(self) -> bool:
        """Whether the plan is claimed to be optimal."""
        return self.found is Found.OPTIMUM
