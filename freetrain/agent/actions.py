"""What an agent does: small records, made by the decisions, carried out at the edge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from freetrain.exchange.assigned import Assigned, Member


@dataclass(frozen=True, slots=True)
class Launch:
    """Start the world of a generation.

    Attributes:
        assigned: The generation.
        after: The generation whose end it waits for before it trains, if any.
    """

    assigned: Assigned
    after: int | None


@dataclass(frozen=True, slots=True)
class StartSpare:
    """Start a spare for the trainer of a generation.

    Attributes:
        assigned: The generation.
    """

    assigned: Assigned


@dataclass(frozen=True, slots=True)
class EndSpare:
    """Have this lease's spare make no more ranks, and end when those it made have."""


@dataclass(frozen=True, slots=True)
class AskToStop:
    """Ask a world that this agent launched to commit and end."""

    trainer: str
    generation: int
    why: str


@dataclass(frozen=True, slots=True)
class RequestStop:
    """Leave the request to stop for a world whose own head is lost."""

    trainer: str
    generation: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill the launcher of a world that this agent launched, and its processes."""

    trainer: str
    generation: int
    why: str


@dataclass(frozen=True, slots=True)
class KillRanks:
    """Kill the ranks on this node of a world that has committed and lingers.

    Its daemons and clients end by that in their order.
    """

    trainer: str
    generation: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """End what is left on this node of a world that is over."""

    trainer: str
    generation: int


@dataclass(frozen=True, slots=True)
class WriteNotice:
    """Say that this lease leaves a generation."""

    trainer: str
    generation: int


@dataclass(frozen=True, slots=True)
class Propose:
    """Create the next generation, unless somebody was first."""

    assigned: Assigned


@dataclass(frozen=True, slots=True)
class WriteEnding:
    """Say that a generation is over.

    Attributes:
        trainer: Whose.
        generation: Which.
        was_launched: Whether its world was ever started.
        was_asked: Whether it had been asked to stop.
        was_killed: Whether this agent killed it.
        lost_lease: Whether it lost a lease.
        is_done: Whether the trainer's work is done.
        exit_code: The launcher's; None where nobody saw it.
        age_s: How long ago it was launched; None where it was not, or elsewhere.
        why: What this agent knows, where the world left no word.
    """

    trainer: str
    generation: int
    was_launched: bool = True
    was_asked: bool = False
    was_killed: bool = False
    lost_lease: bool = False
    is_done: bool = False
    exit_code: int | None = None
    age_s: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class EndLease:
    """End the job of a lease that fell silent: it may be frozen, its node with it."""

    member: Member


@dataclass(frozen=True, slots=True)
class SweepAll:
    """Kill everything of this lease on its node: the time to leave is up."""


@dataclass(frozen=True, slots=True)
class EndOwnJob:
    """Sweep this lease, end its job, and be gone."""

    why: str


Action = (
    Launch
    | StartSpare
    | EndSpare
    | AskToStop
    | RequestStop
    | Kill
    | KillRanks
    | Sweep
    | WriteNotice
    | Propose
    | WriteEnding
    | EndLease
    | SweepAll
    | EndOwnJob
)
