"""What a formulation proposes, before anybody has verified it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milp.problem import Plan
    from milp.solver import Found


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
