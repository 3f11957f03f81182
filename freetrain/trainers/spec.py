"""What a trainer is, before anything has run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from freetrain.priority.interface import Target
    from freetrain.trainers.quality import QualityTruth


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """A model's training speed by node count.

    Compared by identity: trainers of one model share one object.

    Attributes:
        model: The network's name.
        samples_per_s: Speed at 0 .. max nodes, float64, read-only; entry 0 is 0.
            May fall with more nodes.
        sizes: Node counts above 0 that it can run on, ascending.
    """

    model: str
    samples_per_s: NDArray[np.float64]
    sizes: tuple[int, ...]

    @property
    def best_samples_per_s(self) -> float:
        """Its speed at the size that suits it best."""
        return float(max(self.samples_per_s[size] for size in self.sizes))


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """What changing a trainer's nodes costs.

    Attributes:
        grow_s: Seconds without training when nodes are added.
        shrink_s: Seconds without training when nodes are given up or lost.
        start_s: Seconds without training when it starts from no nodes.
        checkpoint_every_s: Time between two commits; on average half of it is
            lost where a node leaves without notice. 0 commits every step.
    """

    grow_s: float
    shrink_s: float
    start_s: float = 0.0
    checkpoint_every_s: float = 0.0

    def times(self, factor: float) -> Costs:
        """Every cost times *factor*; the checkpoint interval stays."""
        return Costs(
            grow_s=self.grow_s * factor,
            shrink_s=self.shrink_s * factor,
            start_s=self.start_s * factor,
            checkpoint_every_s=self.checkpoint_every_s,
        )


@dataclass(frozen=True, slots=True, eq=False)
class TrainerSpec:
    """One trainer of a replay.

    Attributes:
        name: Unique in the replay.
        scaling: Its speed by node count.
        samples: Work after which it is finished at the latest, in training samples,
            above 0; what its user says of it.
        arrival_s: When it is submitted, seconds from the start of the replay.
        costs: What changing its nodes costs.
        fixed_nodes: The size it would ask for as an ordinary job that cannot
            rescale; what the ``scavenger`` policy gives it.
        weight: The user's weight on its worth to the planner, above 0.
        deadline_s: When it should be finished, seconds from the start of the
            replay; None for no time.
        target: The values of its metric that its user wants; None for none.
        quality: How good its model truly becomes, which no policy may see; None
            where the replay does not look at quality.
    """

    name: str
    scaling: Scaling
    samples: float
    arrival_s: float
    costs: Costs
    fixed_nodes: int
    weight: float = 1.0
    deadline_s: float | None = None
    target: Target | None = None
    quality: QualityTruth | None = None

    @property
    def work(self) -> float:
        """Samples after which it truly is finished: its final target ends it sooner."""
        final = None if self.target is None else self.target.final
        if self.quality is None or final is None:
            return self.samples
        reached = self.quality.reached_at(final)
        return self.samples if reached is None else min(self.samples, reached)

    @property
    def shortest_s(self) -> float:
        """The time it needs on its best size, alone and undisturbed."""
        best = self.scaling.best_samples_per_s
        return self.work / best if best > 0 else math.inf
