"""Curves that stay the same object while nothing changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milp.curve import custom, speed_up, throughput, weighted

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from freetrain.priority.interface import Contender
    from milp.problem import Curve

MOST_KEPT = 4096
"""More than the trainers of any pool; a curve of 100 nodes takes 1 KB."""


class Curves:
    """Makes curves, and hands out the same object for the same numbers.

    Solvers keep what they derive from a curve by its identity. The curve that has
    not been asked for longest is forgotten first.

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
        """Return the curve of these values, as ``milp.curve.custom`` makes it."""
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
