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
"""Until an hour has been watched, nodes are planned with as if none of them left: so
the published objective has it, and a cold start is no worse by that."""


class Prospect(NamedTuple):
    """What is expected of a cluster until a horizon.

    Attributes:
        life_s: [L] Mean seconds until the horizon that one of its nodes stays idle.
        hit: [p] Probability that at least one of its nodes leaves, 0 to 1.
        share: [f] Share of its nodes that leaves with the first, above 0, to 1.
    """

    life_s: float
    hit: float
    share: float


def lasting(horizon_s: float) -> Prospect:
    """Return what is expected of nodes that stay until *horizon_s*."""
    return Prospect(horizon_s, 0.0, 1.0)


class LinePosition(NamedTuple):
    """What the place of a node among others says of it.

    Attributes:
        run: How many neighbours in line are taken to leave together; 1 where neighbours
            are strangers, or nobody looked.
        times: How much likelier it is to be taken than others of its age and size, for
            its place in line; 1 where the place says nothing.
    """

    run: int = 1
    times: float = 1.0


@dataclass(frozen=True, slots=True)
class NodeForecast:
    """What is expected of one node, for people.

    Attributes:
        horizon_s: How far ``leaves`` reaches.
        leaves: Probability that it leaves within the horizon, 0 to 1.
        even_s: It stays so long with a probability of a half or more: a power of two
            in minutes; 0 where not even one.
        together: How many nodes are expected to leave with it, itself included.
        promised_s: When it is promised to somebody, Unix time; None for never.
        is_learning: Whether too little has been seen to plan by that.
        run: How many neighbours in line are taken to leave together; 1 where the line
            does not count.
        times_in_line: How much likelier it is to be taken than others of its age and
            size, for its place in line; 1 where that does not count.
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
    """An event at which nodes left: a bit for each node by number, packed.

    Attributes:
        left: Who left.
        idle: Who was idle until then, those who left among them.
    """

    left: bytes
    idle: bytes


class Prospects(Protocol):
    """What plans go by: how long idle nodes stay, and which of them leave together.

    Causal: answers follow from what it was told so far. Deterministic: two that were
    told and asked the same answer the same. A *cluster* is a set of idle nodes that
    are expected to leave together; every idle node is in one cluster, from when it
    becomes idle until it leaves.
    """

    @property
    def is_learning(self) -> bool:
        """Whether too little was seen to plan by it: nobody is expected to leave."""
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
        """Return what is expected of *cluster* until the forecaster's horizon.

        It may be what was told a little while ago, where little changed since: of all
        answers the only one that may depend on when one asked before.
        """
        ...

    def survival(self, node: int, horizon_s: float) -> float:
        """Return the probability that an idle node stays *horizon_s* more, 0 to 1."""
        ...

    def affinity(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        """Return how likely pairs leave together, 0 to 1, symmetric, by place."""
        ...


class Forecaster(Prospects, Protocol):
    """Prospects that are learned from events, and can be kept between ticks.

    ``tests/forecast/test_every_forecaster*.py`` hold every one of
    ``freetrain.lookahead.registry`` to this.
    """

    def idle(self) -> Collection[int]:
        """Return all idle nodes."""
        ...

    def in_line(self, node: int) -> LinePosition:
        """Return what the place of an idle node in line says, for people."""
        ...

    def to_state(self) -> dict[str, Any]:
        """Return all that is known as JSON has it, but for counts of pairs."""
        ...

    def forget_pool(self) -> None:
        """Forget who is idle and what was foretold, and nothing that was learned.

        For a pool that was lost sight of: what came of it is not known.
        """
        ...


class Pairs(Protocol):
    """Knows how likely pairs of nodes leave together; see ``Affinity``."""

    def saw(self, left: Sequence[int], idle: NDArray[np.intp]) -> None:
        """Take note that *left* left while *idle* were idle, *left* among them."""
        ...

    def of(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        """Return the affinity of each pair of *nodes*, symmetric."""
        ...


class Maker(Protocol):
    """Makes a forecaster."""

    def __call__(  # noqa: PLR0913 - what one or another goes by
        self,
        horizon_s: float,
        *,
        pairs: Pairs,
        checks: bool,
        state: Mapping[str, Any] | None,
        learns_s: float,
        order: Callable[[int], Any] | None,
    ) -> Forecaster:
        """Return one that goes on from *state*.

        Args:
            horizon_s: Of prospects, seconds.
            pairs: Counts departures by pair, for those who go by them: they tell it
                of each. Kept by whoever made it, apart from the state.
            checks: Whether survivals that are told will be asked for; plans go by
                prospects alone.
            state: What ``to_state`` gave; None to begin.
            learns_s: For so long after its first event it is learning; 0 where
                whoever asks knows that by itself.
            order: What to sort nodes by, as Slurm has them in line; None where it
                places jobs by other rules, which *pairs* know.

        Raises:
            ValueError: The state is nothing of the kind.
            KeyError: Likewise.
            TypeError: Likewise.
        """
        ...


class ColdStart:
    """Counts from the first event on.

    Args:
        lasts_s: Seconds; 0 for no time.
    """

    def __init__(self, lasts_s: float) -> None:
        self._lasts_s = lasts_s
        self.until_s = math.inf if lasts_s else -math.inf
        """When it is over; never before the first event."""

    def see(self, now_s: float) -> None:
        """Take note of an event."""
        if self.until_s == math.inf:
            self.until_s = now_s + self._lasts_s
