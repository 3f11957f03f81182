"""What a priority sees, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from freetrain.quality.outlook import Outlook
    from milp.problem import Curve

Memory: TypeAlias = "Mapping[str, object]"
"""What a priority remembers, as JSON has it."""


class Basis(StrEnum):
    """What a rating is made from, which says when it must be made anew.

    ``TRAINER``: the trainer's sizes, speeds and weight, and nothing else; another
    trainer, time and nodes do not change it, and no memory is kept.
    ``MOMENT``: anything in a look but losses; it is given no outlooks.
    ``LOSSES``: anything in a look.
    """

    TRAINER = "trainer"
    MOMENT = "moment"
    LOSSES = "losses"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Two values of the metric that a user wants.

    Attributes:
        deliver: Reaching it, the trainer's checkpoint is handed over.
        final: Reaching it, the training is over; None to train as long as it likes.
        is_delivered: Whether the first has been reached.
    """

    deliver: float
    final: float | None = None
    is_delivered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contender:
    """A trainer as a priority sees it: what it is, and its past.

    Attributes:
        name: Unique in a look.
        sizes: Node counts above 0 that it can use, ascending.
        samples_per_s: Its speed at 0 .. the largest size as far as is known:
            measured, given by its user, or assumed; float64, entry 0 is 0.
        held: Nodes it holds now.
        done_samples: Training samples done.
        total_samples: Samples after which it is finished; None where nobody knows.
        weight: Its user's, above 0.
        deadline_s: When it should be finished, on the look's clock; None for no time.
        target: The values that its user wants; None for none.
        outlook: What its losses say; None where there is no usable loss.
        grow_s: Seconds without training when nodes are added.
        shrink_s: Seconds without training when nodes are given up.
        start_s: Seconds without training when it starts from no nodes.
    """

    name: str
    sizes: tuple[int, ...]
    samples_per_s: NDArray[np.float64]
    held: int
    done_samples: float
    total_samples: float | None = None
    weight: float = 1.0
    deadline_s: float | None = None
    target: Target | None = None
    outlook: Outlook | None = None
    grow_s: float = 0.0
    shrink_s: float = 0.0
    start_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """All trainers at one moment.

    Attributes:
        now_s: The moment, seconds on any clock that goes on.
        contenders: The trainers that want nodes, in order of admission.
        nodes: Idle nodes in all, held ones included.
        t_fwd_s: [T_fwd] The planner's look-ahead, seconds.
    """

    now_s: float
    contenders: tuple[Contender, ...]
    nodes: int
    t_fwd_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating:
    """What a priority says of one trainer.

    Attributes:
        curve: [O_j] What its work is worth to the planner, by node count.
        floor: Nodes that it should get before anybody gets more than theirs.
        is_background: Whether it gets only what the others leave.
        reason: Why, for people; one line without a full stop.
    """

    curve: Curve
    floor: int = 0
    is_background: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Rated:
    """The ratings at one look.

    Attributes:
        ratings: One for each contender, in their order.
        memory: What the priority is to be told at the next look. JSON, so that it
            outlives a tick; nothing of trainers that are gone.
    """

    ratings: tuple[Rating, ...]
    memory: Memory


class Priority(Protocol):
    """Says what trainers deserve. Pure: the same look and memory, the same answer.

    A trainer without a usable loss is rated, too, and the reason says by what.

    Attributes:
        name: What configuration and results call it.
        basis: What its ratings are made from. Whoever asks need not ask again, nor
            fit what will not be looked at.
    """

    name: str
    basis: Basis

    def rate(self, look: Look, memory: Memory, /) -> Rated:
        """Return a rating for each contender.

        Args:
            look: The trainers now.
            memory: What the last look returned; empty at the first, or after a
                change of priority.
        """
        ...
