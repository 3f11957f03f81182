"""The interface of forecasters: how long idle nodes stay, and which leave together.

A forecaster is a class that keeps :class:`Forecaster`, in a module of its own, named in
``freetrain.lookahead.registry``. This module is light: no NumPy, so that commands and
cheap ticks start quickly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

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
        is_learning: Whether too little has been seen to plan by that.
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


class Prospects(Protocol):
    """How long idle nodes stay, and which of them leave together: the planner's input.

    Causal: answers depend on past events alone. Deterministic: two instances that saw
    the same events and calls answer the same. A *cluster* is a set of idle nodes that
    are expected to leave together; every idle node is in one cluster, from when it
    becomes idle until it leaves.
    """

    @property
    def is_learning(self) -> bool:
        """Whether too little was seen to plan by it: no node is expected to leave."""
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

    def prospect(self, cluster: int) -> Prospect:
        """Return the prospect of *cluster* until the forecaster's horizon.

        It may be a recent answer where little changed since: the only answer that may
        depend on earlier calls.
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

    ``tests/forecast/test_every_forecaster*.py`` hold every one of
    ``freetrain.lookahead.registry`` to this.
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
    """Counts how often pairs of nodes leave together; see ``Affinity``."""

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
