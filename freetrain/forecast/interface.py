"""What a forecaster is told, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from collections.abc import Set as AbstractSet

    import numpy as np
    from numpy.typing import NDArray


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


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of one node, for people.

    Attributes:
        horizon_s: How far ``leaves`` reaches.
        leaves: Probability that it leaves within the horizon, 0 to 1.
        even_s: It stays so long with a probability of a half or more: a power of two
            in minutes; 0 where not even one.
        together: How many nodes are expected to leave with it, itself included.
        promised_s: When it is promised to somebody, Unix time; None for never.
        is_learning: Whether too little has been seen to plan by that.
    """

    horizon_s: float
    leaves: float
    even_s: float
    together: int
    promised_s: float | None
    is_learning: bool


class Forecaster(Protocol):
    """Says how long idle nodes stay, and which of them leave together.

    Causal: answers follow from what it was told so far. Deterministic: two that were
    told the same answer the same. A *cluster* is a set of idle nodes that became idle
    together and are expected to leave together; every idle node is in one cluster,
    which it leaves only by leaving.
    """

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
        """Return what is expected of *cluster* until the forecaster's horizon."""
        ...

    def survival(self, node: int, horizon_s: float) -> float:
        """Return the probability that an idle node stays *horizon_s* more, 0 to 1."""
        ...

    def affinity(self, nodes: Sequence[int]) -> NDArray[np.float64]:
        """Return how likely pairs leave together, 0 to 1, symmetric, by place."""
        ...
