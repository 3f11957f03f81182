"""Losses, mean over samples, with their gradients; and what is validated by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from freetrain.losscurve.forecast import MetricDirection

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from examples.record_curves.learner import Array


@dataclass(frozen=True, slots=True)
class Loss:
    """What is trained on.

    Attributes:
        name: As in the files.
        of: From values and what they should be to the mean loss and its gradient.
    """

    name: str
    of: Callable[[Array, NDArray[Any]], tuple[float, Array]]


@dataclass(frozen=True, slots=True)
class Metric:
    """What is validated by.

    Attributes:
        name: As in the files.
        better: Which values are good.
        of: From values and what they should be to the metric.
    """

    name: str
    better: MetricDirection
    of: Callable[[Array, NDArray[Any]], float]


def _squared(values: Array, wanted: NDArray[Any]) -> tuple[float, Array]:
    error = values - wanted.reshape(values.shape)
    return float((error**2).mean()), 2 * error / error.size


def _cross_entropy(values: Array, wanted: NDArray[Any]) -> tuple[float, Array]:
    rows = np.arange(len(values))
    shifted = values - values.max(axis=1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    gradient = np.exp(logs)
    gradient[rows, wanted] -= 1
    return float(-logs[rows, wanted].mean()), gradient / len(values)


def _hinge(values: Array, wanted: NDArray[Any]) -> tuple[float, Array]:
    """Sum over the other classes, as Weston and Watkins (1999) have it."""
    rows = np.arange(len(values))
    margins = 1 + values - values[rows, wanted][:, np.newaxis]
    margins[rows, wanted] = 0
    gradient = (margins > 0).astype(np.float64)
    gradient[rows, wanted] = -gradient.sum(axis=1)
    return float(np.maximum(margins, 0).sum(axis=1).mean()), gradient / len(values)


def _accuracy(values: Array, wanted: NDArray[Any]) -> float:
    return float((values.argmax(axis=1) == wanted).mean())


SQUARED_ERROR = Loss("squared_error", _squared)
CROSS_ENTROPY = Loss("cross_entropy", _cross_entropy)
HINGE = Loss("hinge", _hinge)

ACCURACY = Metric("accuracy", MetricDirection.HIGHER, _accuracy)
MEAN_SQUARED_ERROR = Metric(
    "mean_squared_error", MetricDirection.LOWER, lambda *both: _squared(*both)[0]
)
VALIDATION_CROSS_ENTROPY = Metric(
    "validation_cross_entropy",
    MetricDirection.LOWER,
    lambda *both: _cross_entropy(*both)[0],
)
