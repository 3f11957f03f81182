"""The interface of a priority, and the priorities by name.

A priority rates trainers: how much each count of nodes is worth for each of them. It is
pure. Every other module here is a priority, or several that belong together; only
``losses`` is shared by those that look at losses.

``[planner] priority`` and ``--priority`` give the name of a priority. Other packages
add priorities by an entry point of the group ``freetrain.priorities``: a class whose
constructor takes its settings, numbers by keyword, and that keeps the contract of
:class:`Priority`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from inspect import signature
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeAlias

from freetrain.errors import UsageError
from freetrain.plugins import UnusablePluginError, added_names, find_added, load
from freetrain.text import closest
from milp.problem import custom, speed_up, throughput, weighted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

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
        basis: The inputs of its ratings. The caller need not rate again while these
            stay the same, nor fit forecasts that are not used.
    """

    name: str
    basis: RatingBasis

    def rate(self, inputs: RatingInputs, memory: Memory, /) -> RatingResult:
        """Return a rating for each contender.

        Args:
            inputs: The trainers now.
            memory: The memory that the last call returned; empty for the first, and
                after a change of priority.
        """
        ...


class RatingBasis(StrEnum):
    """The inputs of ratings, which must be made again when these change.

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
        memory: For the next call. JSON, so that it outlives a tick; without trainers
            that are gone.
    """

    ratings: tuple[Rating, ...]
    memory: Memory


# Priorities by name

Maker: TypeAlias = "Callable[..., Priority]"

GROUP = "freetrain.priorities"
"""The group of entry points by which other packages add priorities."""

HYSTERESIS = "hysteresis"
"""The setting that every priority has: the least gain of a change; 0 for none."""

WITHOUT_HYSTERESIS = frozenset({"throughput", "speedup", "price", "weight"})
"""Their default is no hysteresis: published comparisons were made without."""

DEFAULT_GAIN = 0.05
"""As in AdaptDL: jobs that change for less lose more by changes than they gain."""

PRIORITIES: Mapping[str, str] = MappingProxyType(
    {
        "throughput": "freetrain.priority.speed:Throughput",
        "speedup": "freetrain.priority.speed:SpeedUp",
        "price": "freetrain.priority.speed:Price",
        "weight": "freetrain.priority.speed:Weight",
        "fair": "freetrain.priority.fair:Fair",
        "shortest": "freetrain.priority.shortest:Shortest",
        "deadline": "freetrain.priority.deadline:Deadline",
        "slaq": "freetrain.priority.slaq:Slaq",
        "slaq-min": "freetrain.priority.slaq:SlaqMin",
        "specon": "freetrain.priority.specon:SpeCon",
        "tradl": "freetrain.priority.tradl:Tradl",
        "flowcon": "freetrain.priority.flowcon:FlowCon",
    }
)
"""Module and class by name; the keywords of a constructor are the settings."""


def priority_named(
    name: str, settings: Mapping[str, float] = MappingProxyType({})
) -> Priority:
    """Return the priority called *name*.

    Args:
        name: A name in ``PRIORITIES``, or one that another package adds.
        settings: Its settings by keyword, and ``hysteresis``; others have defaults.

    Raises:
        UsageError: There is no such priority or setting, or a value is out of range.
    """
    check_settings((name,), settings)
    own = {key: value for key, value in settings.items() if key != HYSTERESIS}
    priority = _maker(name)(**own)
    gain = settings.get(HYSTERESIS, _default_hysteresis(name))
    return WithHysteresis(priority, gain) if gain != 0 else priority


def check_settings(names: Collection[str], settings: Collection[str]) -> None:
    """Refuse a setting that none of the priorities *names* has.

    Raises:
        UsageError: There is one, or no priority of one of the names.
    """
    known = dict.fromkeys(key for name in names for key in settings_of(name))
    for setting in sorted(set(settings) - known.keys()):
        owners = [name for name in PRIORITIES if setting in settings_of(name)]
        whose = f" It is one of {', '.join(owners)}." if owners else ""
        who, has = ("It", "has") if len(names) == 1 else ("They", "have")
        which = "priority" if len(names) == 1 else "priorities"
        raise UsageError(
            f"{which} {', '.join(names)} {has} no setting {setting!r}. {who} {has} "
            f"{', '.join(known)}.{whose or closest(setting, known)}"
        )


def settings_of(name: str) -> tuple[str, ...]:
    """Return the names of the settings of the priority *name*.

    Raises:
        UsageError: There is no such priority.
    """
    return (*signature(_maker(name)).parameters, HYSTERESIS)


def priority_names() -> tuple[str, ...]:
    """Return the names of all priorities, those of other packages last."""
    return tuple(dict.fromkeys((*PRIORITIES, *added_names(GROUP))))


def _maker(name: str) -> Maker:
    if name in PRIORITIES:
        built_in: Maker = load(PRIORITIES[name])
        return built_in
    try:
        found: Maker = find_added(GROUP, name)
    except LookupError:
        known = ", ".join(priority_names())
        raise UsageError(f"no priority {name!r}. Choose one of {known}.") from None
    except UnusablePluginError as error:
        raise UsageError(f"the priority {name!r} cannot be used: {error}.") from error
    if not (isinstance(found, type) and {"name", "basis", "rate"} <= set(dir(found))):
        raise UsageError(
            f"the priority {name!r} cannot be used: {found!r} is no class with name, "
            f"basis and rate."
        )
    return found


def _default_hysteresis(name: str) -> float:
    return 0.0 if name in WITHOUT_HYSTERESIS else DEFAULT_GAIN


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


# Hysteresis, a setting of every priority


class WithHysteresis:
    """A priority whose ratings are raised at the nodes that a trainer holds.

    The worth of the held count h is raised: O'(h) = (1 + gain) O(h). A plan that
    changes some trainers must then gain *gain* times their present worth. The costs of
    a rescale are counted in the present worth, and so raised by as much.

    Args:
        priority: The priority that rates.
        gain: The least gain of a change, as a share of the present worth.

    Raises:
        UsageError: *gain* is not above 0, or not finite.
    """

    def __init__(self, priority: Priority, gain: float) -> None:
        if not 0 < gain < math.inf:
            raise UsageError(
                f"hysteresis {gain:g} is not above 0. Give the least gain of a change, "
                f"such as 0.05 for 5 %."
            )
        self.name = priority.name
        is_steady = priority.basis is RatingBasis.TRAINER
        self.basis: RatingBasis = RatingBasis.MOMENT if is_steady else priority.basis
        self._priority = priority
        self._gain = gain
        self._curves = CurveCache()

    def rate(self, inputs: RatingInputs, memory: Memory, /) -> RatingResult:
        """Return the ratings with a bonus on the nodes held."""
        rated = self._priority.rate(inputs, memory)
        pairs = zip(rated.ratings, inputs.contenders, strict=True)
        return RatingResult(
            tuple([self._raised(*pair) for pair in pairs]), rated.memory
        )

    def _raised(self, rating: Rating, contender: Contender) -> Rating:
        held = contender.held
        worth = rating.curve.value_per_s
        if held not in rating.curve.sizes or worth[held] <= 0:
            return rating
        raised = worth.copy()
        raised[held] *= 1 + self._gain
        return replace(rating, curve=self._curves.custom(raised, rating.curve.sizes))
