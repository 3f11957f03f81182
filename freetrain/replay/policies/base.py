"""The interface of a policy in a replay: a view of the pool in, changes of nodes out.

A policy sees the past of trainers and what their users said, never their future: the
types here have no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from freetrain.lookahead.reliability import ScoredForecaster
    from freetrain.losscurve.forecast import MetricDirection, MetricPoint
    from freetrain.priority.base import Target
    from freetrain.replay.pool import Nodes
    from freetrain.replay.trainers import Costs, Scaling
    from logs.timeline import UnitRanges


class StatedQuality(Protocol):
    """What is known of a metric before a trainer has run."""

    @property
    def better(self) -> MetricDirection:
        """Which of its values are good."""
        ...


class StatedTrainer(Protocol):
    """What a trainer's user said of it; its true quality curve is not in here."""

    @property
    def name(self) -> str:
        """Unique in the replay."""
        ...

    @property
    def scaling(self) -> Scaling:
        """Its speed by node count."""
        ...

    @property
    def samples(self) -> float:
        """Work after which it is finished at the latest, in training samples."""
        ...

    @property
    def costs(self) -> Costs:
        """What changing its nodes costs in this replay."""
        ...

    @property
    def fixed_nodes(self) -> int | None:
        """The size it would ask for as an ordinary job; None for any."""
        ...

    @property
    def weight(self) -> float:
        """The user's weight on its worth, above 0."""
        ...

    @property
    def deadline_s(self) -> float | None:
        """When it should be finished, seconds from the start of the replay."""
        ...

    @property
    def target(self) -> Target | None:
        """Values of its metric that its user wants."""
        ...

    @property
    def quality(self) -> StatedQuality | None:
        """Its metric; None where it reports none."""
        ...


class TrainerView(Protocol):
    """A trainer as a policy may see it: its past, not its future."""

    @property
    def serial(self) -> int:
        """A number that no other run of any trainer in this replay has."""
        ...

    @property
    def spec(self) -> StatedTrainer:
        """What its user said of it."""
        ...

    @property
    def arrival_s(self) -> float:
        """When it was submitted, seconds from the start of the replay."""
        ...

    @property
    def held(self) -> AbstractSet[int]:
        """The nodes it holds, all of them still idle."""
        ...

    @property
    def done(self) -> float:
        """Samples it has trained, net of losses."""
        ...

    @property
    def points(self) -> Sequence[MetricPoint]:
        """The evaluations that it has passed and not lost, ascending in samples."""
        ...


@dataclass(slots=True)
class View:
    """The pool and its trainers at one event, after losses and admissions.

    The sequences are the engine's own: read them, during ``decide`` only.

    Attributes:
        now_s: Seconds from the start of the replay.
        trainers: The admitted trainers, in order of admission.
        free: Idle nodes that no trainer holds, by index, ascending.
        idle_nodes: How many nodes are idle, held or free.
        joined: Nodes that became idle at this event.
        left: Nodes that were taken at this event.
    """

    now_s: float
    trainers: Sequence[TrainerView]
    free: UnitRanges
    idle_nodes: int
    joined: Nodes
    left: Nodes


@dataclass(frozen=True, slots=True)
class Change:
    """The nodes that one trainer gives up and gets.

    Attributes:
        trainer: Its place in ``View.trainers``.
        drop: Nodes that it gives up, each of them its own.
        take: Nodes that it gets, each of them free once all trainers have dropped.
    """

    trainer: int
    drop: tuple[int, ...] = ()
    take: tuple[int, ...] = ()


@runtime_checkable
class Foretelling(Protocol):
    """A policy that goes by forecasts."""

    @property
    def forecasts(self) -> ScoredForecaster | None:
        """Its forecasts so far; None where they are not watched."""
        ...


class ReplayPolicy(Protocol):
    """Decides which trainer gets which node.

    Contract, checked by the engine at every event: at most one change a
    trainer, in order of admission; only own nodes are dropped and only free ones
    taken; a trainer that drops and takes at once drops all it has, and starts
    afresh.

    Attributes:
        name: What results call it.
    """

    name: str

    def decide(self, view: View) -> Sequence[Change]:
        """Return the changes to make now; a trainer left out keeps its nodes."""
        ...
