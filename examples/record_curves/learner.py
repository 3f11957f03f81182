"""What is trained, and what a training is told and tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from freetrain.losscurve.forecast import MetricDirection

Array: TypeAlias = NDArray[np.float64]
Rows: TypeAlias = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """A data set, in two.

    Attributes:
        name: The data set, for people.
        x: What a model sees, a row a sample.
        y: What it should say: classes as integers, or numbers; a row a sample.
        x_validation: Of rows that are never trained on.
        y_validation: Likewise.
    """

    name: str
    x: NDArray[Any]
    y: NDArray[Any]
    x_validation: NDArray[Any]
    y_validation: NDArray[Any]

    def __str__(self) -> str:
        """The data set and the size of its parts."""
        return f"{self.name}: {len(self.x)} train, {len(self.x_validation)} validate"


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a learner is, for people and for the files' headers.

    Attributes:
        model: Kind and size.
        optimizer: How it goes down.
        loss: Name of what is trained on; less of it is better.
        metric: Name of what is validated by.
        better: Which values of that are good.
    """

    model: str
    optimizer: str
    loss: str
    metric: str
    better: MetricDirection


class Learner(Protocol):
    """A model in training, with its data and its optimizer."""

    about: About

    def step(self, rows: Rows, rate: float) -> float:
        """Learn from *rows* of the training set, at this learning rate.

        Returns:
            The mean loss over them, before they were learned from.
        """
        ...

    def score(self) -> float:
        """Return the metric over the validation set."""
        ...
