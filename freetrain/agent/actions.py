"""What an agent can do: records that ``rules`` make and ``executor`` carries out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.agent.endings import WriteEnding

if TYPE_CHECKING:
    from freetrain.state.files import Assigned, Member


@dataclass(frozen=True, slots=True)
class Launch:
    """Start the world of a generation.

    Attributes:
        assigned: Its leases.
        after: The generation whose end its world waits for before it trains.
    """

    assigned: Assigned
    after: int | None


@dataclass(frozen=True, slots=True)
class AskToStop:
    """Ask a world that this agent launched to commit and end."""

    trainer: str
    generation: int
    why: str


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
class Propose:
    """Create the next generation, unless another agent or the broker was first."""

    assigned: Assigned


@dataclass(frozen=True, slots=True)
class WriteNotice:
    """Write that this lease leaves a generation."""

    trainer: str
    generation: int


@dataclass(frozen=True, slots=True)
class RequestStop:
    """Leave the request to stop for a world whose own head is lost."""

    trainer: str
    generation: int


@dataclass(frozen=True, slots=True)
class EndLease:
    """End the job of a lease that fell silent: it may be frozen, its node with it."""

    member: Member


@dataclass(frozen=True, slots=True)
class StartSpare:
    """Start a spare for the trainer of a generation."""

    assigned: Assigned


@dataclass(frozen=True, slots=True)
class EndSpare:
    """Have this lease's spare make no more ranks, and end when the last one has."""


@dataclass(frozen=True, slots=True)
class SweepAll:
    """Kill everything of this lease on its node: the time to leave is up."""


@dataclass(frozen=True, slots=True)
class EndOwnJob:
    """Sweep this lease, end its job and the agent."""

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
