"""What a policy sees, and what it may answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from freetrain.trainers.spec import TrainerSpec


class TrainerView(Protocol):
    """A trainer as a policy may see it: its past, not its future."""

    @property
    def serial(self) -> int:
        """A number that no other run of any trainer in this replay has."""
        ...

    @property
    def spec(self) -> TrainerSpec:
        """What its user said of it; costs are those of this replay."""
        ...

    @property
    def held(self) -> AbstractSet[int]:
        """The nodes it holds, all of them still idle."""
        ...

    @property
    def done(self) -> float:
        """Samples it has trained, net of losses."""
        ...


@dataclass(frozen=True, slots=True)
class View:
    """The pool and its trainers at one event, after losses and admissions.

    The sequences are the engine's own: read them, during ``decide`` only.

    Attributes:
        now_s: Seconds from the start of the replay.
        trainers: The admitted trainers, in order of admission.
        free: Idle nodes that nobody holds, by index, ascending.
        idle_nodes: How many nodes are idle, held or free.
        since_s: By node: when it became idle; of idle nodes only.
        joined: Nodes that became idle at this event.
        left: Nodes that were taken at this event.
    """

    now_s: float
    trainers: Sequence[TrainerView]
    free: Sequence[int]
    idle_nodes: int
    since_s: Sequence[float]
    joined: tuple[int, ...]
    left: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """What one trainer gives up and gets.

    Attributes:
        trainer: Its place in ``View.trainers``.
        drop: Nodes that it gives up, each of them its own.
        take: Nodes that it gets, each of them free once everybody has dropped.
    """

    trainer: int
    drop: tuple[int, ...] = ()
    take: tuple[int, ...] = ()


class Policy(Protocol):
    """Decides who gets which node.

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
