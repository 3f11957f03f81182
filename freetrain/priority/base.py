"""The interface of a priority: what it is given, and what it returns.

A priority rates trainers: how much each count of nodes is worth for each of them. It is
pure. ``registry`` finds priorities by name; each other module but ``losses`` is a
priority, or several that belong together.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

from milp.problem import custom, speed_up, throughput, weighted

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from freetrain.losscurve.forecast import LossForecast
    from milp.problem import Curve

Memory: TypeAlias = "Mapping[str, object]"
"""JSON that a priority returns with its ratings and is given the next time."""


class Priority(Protocol):
    """Rates trainers. Pure: the same inputs and memory give the same ratings.

    A trainer without a usable loss is rated, too; the reason says how.

    Attributes:
        name: Its name in configuration and results.
        basis: What its ratings depend on. The caller need not rate again while that
            stays the same, nor fit forecasts that are not used.
    """

    name: str
    basis: Basis

    def rate(self, inputs: RatingInputs, memory: Memory, /) -> RatingResult:
        """Return a rating for each contender.

        Args:
            inputs: The trainers now.
            memory: The memory that the last call returned; empty for the first, and
                after a change of priority.
        """
        ...


class Basis(StrEnum):
    """What ratings depend on, and so when they must be made again.

    ``TRAINER``: only the trainer's sizes, speeds and weight; other trainers, time and
    nodes do not change its rating, and no memory is kept.
    ``MOMENT``: all inputs but losses; the priority is given no forecasts.
    ``LOSSES``: all inputs.
    """

    TRAINER = "trainer"
    MOMENT = "moment"
    LOSSES = "losses"


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingInputs:
    """All trainers at one moment.

    Attributes:
        now_s: The moment, seconds on any clock that goes on.
        contenders: The trainers that want nodes; their order means nothing.
        nodes: Idle nodes in all, held ones included.
        t_fwd_s: [T_fwd] The planner's look-ahead, seconds.
    """

    now_s: float
    contenders: tuple[Contender, ...]
    nodes: int
    t_fwd_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contender:
    """A trainer that wants nodes.

    Attributes:
        name: Unique among the contenders.
        sizes: Node counts above 0 that it can use, ascending.
        samples_per_s: Its speed at 0 .. the largest size: measured, given by its
            user, or assumed; float64, entry 0 is 0.
        held: Nodes it holds now.
        done_samples: Training samples done.
        total_samples: Samples after which it is finished; None where that is unknown.
        weight: Given by its user, above 0.
        deadline_s: When it should be finished, on the clock of ``now_s``.
        target: The values that its user wants.
        forecast: The forecast of its loss; None where there is no usable loss.
        grow_s: Seconds without training when nodes are added.
        shrink_s: Seconds without training when nodes are given up.
        start_s: Seconds without training when it starts from no nodes.
        lost_s: Seconds of its work that are lost with nodes, besides ``shrink_s``.
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
    forecast: LossForecast | None = None
    grow_s: float = 0.0
    shrink_s: float = 0.0
    start_s: float = 0.0
    lost_s: float = 0.0

    @property
    def loss_s(self) -> float:
        """Seconds of its work that losing nodes costs in all."""
        return self.shrink_s + self.lost_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The values of the metric that a user wants.

    Attributes:
        deliver: When it is reached, the trainer's checkpoint is handed over.
        final: When it is reached, the training is over; None for no such value.
        is_delivered: Whether ``deliver`` has been reached.
    """

    deliver: float
    final: float | None = None
    is_delivered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating:
    """The rating of one trainer.

    Attributes:
        curve: [O_j] The worth of its work to the planner, by node count.
        floor: Nodes that it should get before any trainer gets more than its floor.
        is_background: Whether it gets only the nodes that the others leave.
        reason: Why, for people; one line without a full stop.
    """

    curve: Curve
    floor: int = 0
    is_background: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RatingResult:
    """The ratings of all contenders.

    Attributes:
        ratings: One for each contender, in their order.
        memory: What the priority is to be given next time. JSON, so that it
            outlives a tick; without trainers that are gone.
    """

    ratings: tuple[Rating, ...]
    memory: Memory


# Curves that stay the same object while nothing changed

MOST_KEPT = 4096
"""More than the trainers of any pool; a curve of 100 nodes takes 1 KB."""


class CurveCache:
    """Makes curves, and returns the same object for the same numbers.

    Solvers cache by a curve's identity. The least recently used curve is dropped
    first.

    Not for use from several threads at once.
    """

    def __init__(self, most_kept: int = MOST_KEPT) -> None:
        self._kept: dict[Hashable, Curve] = {}
        self._most_kept = most_kept

    def throughput(self, contender: Contender) -> Curve:
        """Return the samples a second of *contender*."""
        return self._of(
            ("throughput", contender.samples_per_s.tobytes(), contender.sizes),
            lambda: throughput(contender.samples_per_s, contender.sizes),
        )

    def speed_up(self, contender: Contender) -> Curve:
        """Return the speed of *contender* over that of one node.

        Raises:
            MalformedProblemError: It does no work on its smallest size.
        """
        return self._of(
            ("speedup", contender.samples_per_s.tobytes(), contender.sizes),
            lambda: speed_up(contender.samples_per_s, contender.sizes),
        )

    def weighted(self, curve: Curve, weight: float) -> Curve:
        """Return *curve* times *weight*, which is above 0."""
        values = curve.value_per_s.tobytes()
        return self._of(
            ("weighted", values, curve.sizes, weight), lambda: weighted(curve, weight)
        )

    def custom(self, value_per_s: NDArray[np.float64], sizes: Sequence[int]) -> Curve:
        """Return the curve of these values, as ``milp.problem.custom`` makes it."""
        return self._of(
            ("custom", value_per_s.tobytes(), tuple(sizes)),
            lambda: custom(value_per_s, sizes),
        )

    def _of(self, key: Hashable, make: Callable[[], Curve]) -> Curve:
        curve = self._kept.pop(key, None) or make()
        self._kept[key] = curve
        if len(self._kept) > self._most_kept:
            del self._kept[next(iter(self._kept))]
        return curve
