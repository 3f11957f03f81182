"""Trainers whose scaling is very different, and what a tick assumes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from freetrain.replay.trainers import Costs, Scaling, TrainerSpec
from freetrain.scaling import ASSUMED_EXPONENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from freetrain.replay.policies.base import View

MOST = 64
_COUNT = 600


class AssumedSpeeds:
    """Knows nothing but that speed grows as the number of nodes to the 0.9."""

    def __init__(self) -> None:
        self._scaling = Scaling(
            "assumed",
            np.arange(MOST + 1, dtype=np.float64) ** ASSUMED_EXPONENT,
            tuple(range(1, MOST + 1)),
        )

    def scalings(self, view: View) -> Sequence[Scaling]:
        return [self._scaling] * len(view.trainers)


def _shapes() -> list[NDArray[np.float64]]:
    """Return speed-ups at 0 .. 64 nodes: what users' trainers do to them."""
    n = np.arange(MOST + 1, dtype=np.float64)
    saturating = n * 9.0 / (n + 8.0)
    peaked = n * np.exp((1.0 - n) / 24.0)
    across_switches = n**0.95 * np.where(n > 18, 0.7, 1.0)
    even = n**0.9 * np.where(n % 2, 0.8, 1.0) / 0.8
    even[1] = 1.0
    slow_to_begin = np.where(n < 2, n, 0.5 * n)
    return [n, saturating, peaked, across_switches, even, slow_to_begin]


def _trainers() -> tuple[TrainerSpec, ...]:
    costs = Costs(grow_s=18.0, shrink_s=12.0, start_s=18.0, checkpoint_every_s=60.0)
    scales = (1000.0, 2500.0, 6000.0, 4000.0, 1600.0)
    scalings = [
        Scaling(f"shape-{k}-{scale:g}", shape * scale, tuple(range(1, MOST + 1)))
        for scale in scales
        for k, shape in enumerate(_shapes())
    ]
    return tuple(
        TrainerSpec(
            name=f"mixed-{k:04d}",
            scaling=scalings[k % len(scalings)],
            samples=1.3e8,
            arrival_s=36.0 * k,
            costs=costs,
            fixed_nodes=8,
        )
        for k in range(_COUNT)
    )


MIXED = _trainers()
