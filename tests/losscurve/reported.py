"""Values as trainers report them."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from freetrain.losscurve.forecast import MetricPoint

STEP = 1000.0
"""Samples from one evaluation to the next."""


def reported(
    values: Iterable[float], samples: Sequence[float] | None = None
) -> list[MetricPoint]:
    """Return *values* as reported each second, at *samples* or every ``STEP``."""
    return [
        MetricPoint(
            float(i), STEP * (i + 1) if samples is None else samples[i], float(value)
        )
        for i, value in enumerate(values)
    ]


def noisy(values: ArrayLike, *, noise: float, seed: int = 0) -> NDArray[np.float64]:
    truth = np.asarray(values, dtype=np.float64)
    return truth + np.random.default_rng(seed).normal(0.0, noise, truth.shape)


def steps(count: int) -> NDArray[np.float64]:
    """Return 1.0, 2.0, ... *count*."""
    return np.arange(1.0, count + 1.0)


def falling(
    count: int = 80, *, noise: float = 0.02, seed: int = 0
) -> NDArray[np.float64]:
    """Return the losses of a training that follows a power law."""
    return noisy(0.5 + 2 * steps(count) ** -0.5, noise=noise, seed=seed)
