"""The interface of forecasters, their names, and checks of what they save.

A forecaster is one class in one module that keeps :class:`Forecaster`, and one line in
``FORECASTERS``. It learns how long idle nodes stay and which of them leave together.
Ticks save its state as JSON text, which may be torn or another forecaster's: so every
number is checked when it is loaded (``amount`` to ``check_origin``), and a spoilt state
is refused and never used.

This module is light: no NumPy, so that commands and cheap ticks start quickly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from freetrain.errors import UsageError
from freetrain.text import closest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    import numpy as np
    from numpy.typing import NDArray

LEAST_WATCHED_S = 3_600.0
"""Until an hour has been watched, plans assume that no node leaves, as the published
objective does; so a cold start is no worse than that."""


class Prospect(NamedTuple):
    """The forecast of a cluster until a horizon.

    Attributes:
        life_s: [L] Mean seconds until the horizon that one of its nodes stays idle.
        hit: [p] Probability that at least one of its nodes leaves, 0 to 1.
        share: [f] Share of its nodes that leaves with the first, above 0, to 1.
    """

    life_s: float
    hit: float
    share: float


def lasting(horizon_s: float) -> Prospect:
    """Return the prospect of nodes that stay until *horizon_s*."""
    return Prospect(horizon_s, 0.0, 1.0)


class LinePosition(NamedTuple):
    """Effect of a node's place in Slurm's order on its forecast.

    Attributes:
        run: Neighbours in order that are expected to leave together; 1 where they
            leave independently, or the order is not used.
        times: Its hazard over that of other nodes of its age and size, for its place;
            1 where the place says nothing.
    """

    run: int = 1
    times: float = 1.0


@dataclass(slots=True, eq=False)
class Cohort:
    """Clusters of which the same is expected: they began together and fared alike.

    A large machine has thousands of idle nodes that leave one by one, each a cluster,
    and became idle at a few dozen events: what is expected is worked out by cohort.

    Attributes:
        nodes: How many nodes each cluster has left.
        clusters: Their numbers, ascending, as do their lowest nodes.
    """

    nodes: int
    clusters: list[int]


@dataclass(frozen=True, slots=True)
class NodeForecast:
    """The forecast of one node, for people; its fields are keys of published JSON.

    Attributes:
        horizon_s: How far ``leaves`` reaches.
        leaves: Departure probability within the horizon, 0 to 1.
        even_s: It stays so long with a probability of a half or more: a power of two
            in minutes; 0 for less than one minute.
        together: How many nodes are expected to leave with it, itself included.
        promised_s: When it is promised to a job, Unix time; None for never.
        is_learning: Whether the forecaster has seen too little for plans.
        run: As ``LinePosition`` has it.
        times_in_line: ``times`` of ``LinePosition``.
    """

    horizon_s: float
    leaves: float
    even_s: float
    together: int
    promised_s: float | None
    is_learning: bool
    run: int = 1
    times_in_line: float = 1.0


@dataclass(frozen=True, slots=True)
class Departure:
    """An event at which nodes left, as it is saved: a bit for each node, packed.

    Attributes:
        left: The nodes that left.
        idle: The nodes that were idle until then, those that left included.
    """

    left: bytes
    idle: bytes


# ----------------------------------------------------------------------
# The interface


class Prospects(Protocol):
    """How long idle nodes stay, and which of them leave together: the planner's input.

    Causal: answers depend on past events alone. Deterministic: two instances that saw
    the same events and calls answer the same. A *cluster* is a set of idle nodes that
    are expected to leave together; every idle node is in one cluster, from when it
    becomes idle until it leaves.
    """

    @property
    def is_learning(self) -> bool:
        """Whether it has seen too little for plans: no node is expected to leave."""
        ...

    def see(
        self, now_s: float, *, joined: Collection[int], left: Collection[int]
    ) -> None:
        """Take note of an event.

        Args:
            now_s: When, seconds; never earlier than the last event.
            joined: Nodes that are idle from now on.
            left: Nodes that were idle until now.
        """
        ...

    def cluster(self, node: int) -> int:
        """Return the cluster of an idle node; numbers are not used again."""
        ...

    def members(self, cluster: int) -> AbstractSet[int]:
        """Return the nodes of *cluster* that are still idle."""
        ...

    def cohorts(self) -> Collection[Cohort]:
        """Return all clusters by cohort; each is in one."""
        ...

    def cohort(self, cluster: int) -> Cohort:
        """Return the cohort of *cluster*: the same object while it is in it."""
        ...

    def prospect(self, cluster: int) -> Prospect:
        """Return the prospect of *cluster* until the forecaster's horizon.

        It is that of its whole cohort, and may be a recent answer where little changed
        since: the only answer that may depend on earlier calls.
        """
        ...

    def survival(self, node: int, horizon_s: float) -> float:
        """Return the probability that an idle node stays *horizon_s* more, 0 to 1."""
        ...

    def affinity(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        """Return how likely pairs leave together, 0 to 1, symmetric, by place."""
        ...


class Forecaster(Prospects, Protocol):
    """Prospects that are learned from events, and can be saved between ticks.

    ``tests/lookahead/test_every_forecaster.py`` tests all of ``FORECASTERS`` for this.
    """

    def idle(self) -> Collection[int]:
        """Return all idle nodes."""
        ...

    def in_line(self, node: int) -> LinePosition:
        """Return the effect of an idle node's place in Slurm's order, for people."""
        ...

    def to_state(self) -> dict[str, Any]:
        """Return the whole state for JSON, except counts of pairs."""
        ...

    def forget_pool(self) -> None:
        """Forget the idle nodes and pending forecasts, but nothing that was learned.

        For a pool that was not observed for a while: its departures are not known.
        """
        ...


class Pairs(Protocol):
    """Counts how often pairs of nodes leave together; see ``affinity.Affinity``."""

    def saw(self, left: Sequence[int], idle: NDArray[np.intp]) -> None:
        """Count that *left* left while *idle* were idle, *left* included."""
        ...

    def of(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        """Return the affinity of each pair of *nodes*, symmetric."""
        ...


class Maker(Protocol):
    """A forecaster's class."""

    def __call__(  # noqa: PLR0913 - each forecaster uses some
        self,
        horizon_s: float,
        *,
        pairs: Pairs,
        checks: bool,
        state: Mapping[str, Any] | None,
        learns_s: float,
        order: Callable[[int], Any] | None,
    ) -> Forecaster:
        """Return a forecaster that goes on from *state*.

        Args:
            horizon_s: Of prospects.
            pairs: Counts departures by pair; a forecaster that uses it calls ``saw``
                at each departure. The caller saves it, apart from the state.
            checks: Whether ``survival`` will be called; plans need prospects alone.
            state: From ``to_state``; None to begin.
            learns_s: How long after its first event it is learning; 0 where the caller
                counts that itself.
            order: Sort key of nodes in Slurm's order; None where Slurm places jobs by
                topology, which *pairs* knows.

        Raises:
            ValueError, KeyError, TypeError: The state is not one of this forecaster.
        """
        ...


# ----------------------------------------------------------------------
# Forecasters by name

FORECASTERS: Mapping[str, str] = MappingProxyType(
    {
        "learned": "freetrain.lookahead.learned:LearnedForecaster",
        "life-table": "freetrain.lookahead.life_table:LifeTable",
    }
)
"""Module and class by the name that users give; the first is the default."""

DEFAULT_FORECASTER = next(iter(FORECASTERS))


def check_forecaster(name: str) -> None:
    """Refuse a forecaster that does not exist.

    Raises:
        UsageError: There is no forecaster called *name*.
    """
    if name not in FORECASTERS:
        raise UsageError(
            f"there is no forecaster {name!r}. Choose one of {', '.join(FORECASTERS)}."
            f"{closest(name, FORECASTERS)}"
        )


def forecaster_named(name: str) -> Maker:
    """Import and return the class of the forecaster called *name*.

    Raises:
        UsageError: There is no such forecaster.
    """
    check_forecaster(name)
    module, class_name = FORECASTERS[name].split(":")
    maker: Maker = getattr(import_module(module), class_name)
    return maker


class ColdStart:
    """How long a forecaster learns before plans use it, from its first event on.

    Args:
        lasts_s: 0 for no time.
    """

    def __init__(self, lasts_s: float) -> None:
        self._lasts_s = lasts_s
        self.until_s = math.inf if lasts_s else -math.inf
        """End of learning; infinite before the first event."""

    def see(self, now_s: float) -> None:
        """Take note of an event."""
        if self.until_s == math.inf:
            self.until_s = now_s + self._lasts_s


# ----------------------------------------------------------------------
# Fading: machines, and the ways they are used, change, so old counts lose weight.

LASTS_S = 30 * 86_400.0
"""Counts keep their weight so long after the first; then they fade to a third in the
same time."""

_FADE_EVERY_S = 3_600.0
"""Fading goes by whole hours, as forecasters learn thousands of times a day."""


class Fading:
    """The share of counts that is kept as time goes by.

    Args:
        lived_s: Time counted before.

    Attributes:
        lived_s: Time counted in all.

    Raises:
        ValueError, TypeError: That is no time.
    """

    def __init__(self, lived_s: object = 0.0) -> None:
        self.lived_s = amount(lived_s)

    def keeps(self, before_s: float, now_s: float) -> float:
        """Return the share of counts to keep; below 1 only once an hour.

        Args:
            before_s: Time of the last call.
            now_s: The time; where the clock went back nothing is forgotten.
        """
        self.lived_s += max(0.0, now_s - before_s)
        hours = now_s // _FADE_EVERY_S - before_s // _FADE_EVERY_S
        if hours <= 0.0 or self.lived_s <= LASTS_S:
            return 1.0
        return math.exp(-hours * _FADE_EVERY_S / LASTS_S)


def faded(count: float, prior: float, keeps: float) -> float:
    """Return *count* with the share *keeps* of its distance from *prior*.

    Args:
        count: The prior, and all that was counted.
        prior: The count before anything was seen, which stays.
        keeps: The share that is kept of the rest.
    """
    return prior + keeps * (count - prior)


# ----------------------------------------------------------------------
# Checks of saved numbers: finite, whole where counted, shares up to 1.

MOST = 1e18
"""Above every saved count and time: a hundred thousand nodes have fewer seconds in a
hundred thousand years. Sums of such numbers stay finite."""

LEAST = 1e-9
"""Divisors are larger than this, so that quotients stay finite."""

_ROUNDED = 1.0 + 1e-9
"""Parts may exceed their whole by the rounding of sums."""


def amount(value: Any) -> float:  # noqa: ANN401 - JSON
    """Return *value*, a finite number of 0 or more.

    Raises:
        ValueError: It is none, or more than ``MOST``.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is no number")  # noqa: TRY004 - a torn text
    if not 0.0 <= value <= MOST:
        raise ValueError(f"{value} is not a number from 0 to {MOST:g}")
    return float(value)


def whole(value: Any) -> int:  # noqa: ANN401 - JSON
    """Return *value*, a whole number of 0 or more; raises as ``amount``."""
    if not isinstance(value, int):
        raise ValueError(f"{value!r} is no whole number")  # noqa: TRY004 - a torn text
    amount(value)
    return value


def members(values: Any) -> set[int]:  # noqa: ANN401 - JSON
    """Return *values*, the numbers of different nodes.

    Raises:
        ValueError: A node is named twice, or a number is no node's.
        TypeError: They are no list.
    """
    found = {whole(value) for value in values}
    if len(found) != len(values):
        raise ValueError(f"{values} name a node twice")
    return found


def probability(value: Any) -> float:  # noqa: ANN401 - JSON
    """Return *value*, from 0 to 1; raises as ``amount``."""
    if amount(value) > 1.0:
        raise ValueError(f"{value} is above 1")
    return float(value)


def amounts(values: Any, count: int) -> list[float]:  # noqa: ANN401 - JSON
    """Return *values* as *count* of ``amount``.

    Raises:
        ValueError: They are not.
        TypeError: They are no list.
    """
    found = [amount(value) for value in values]
    if len(found) != count:
        raise ValueError(f"{found} are no {count} numbers of 0 or more")
    return found


def amounts_above_0(values: Any, count: int) -> list[float]:  # noqa: ANN401 - JSON
    """Return *values* as *count* numbers above ``LEAST``; raises as ``amounts``."""
    found = amounts(values, count)
    if min(found, default=LEAST) < LEAST:
        raise ValueError(f"{found} are not all above 0")
    return found


def table(
    rows: Any,  # noqa: ANN401 - JSON
    count: int,
    width: int,
) -> list[list[float]]:
    """Return *rows* as *count* rows of ``amounts``; raises as that does."""
    found = [amounts(row, width) for row in rows]
    if len(found) != count:
        raise ValueError(f"{len(found)} rows, expected {count}")
    return found


def check_shares(parts: Sequence[float], wholes: Sequence[float]) -> None:
    """Refuse *parts* that are more than their *wholes*, by place.

    Raises:
        ValueError: A part is.
    """
    if any(part > total * _ROUNDED for part, total in zip(parts, wholes, strict=True)):
        raise ValueError(f"{parts} are no parts of {wholes}")


def check_origin(state: Mapping[str, Any], *, version: int, forecaster: str) -> None:
    """Refuse a state of another version or another forecaster.

    Raises:
        ValueError: It is.
        KeyError: It names none.
    """
    if state["version"] != version:
        raise ValueError(f"version {state['version']}, expected {version}")
    if state["forecaster"] != forecaster:
        raise ValueError(f"of forecaster {state['forecaster']!r}, not {forecaster!r}")
