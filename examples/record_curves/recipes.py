"""Makers of learners, by kind."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from examples.record_curves.layers import (
    Convolution,
    Dense,
    Halve,
    Recurrent,
    Relu,
    Reshape,
)
from examples.record_curves.losses import (
    ACCURACY,
    CROSS_ENTROPY,
    HINGE,
    MEAN_SQUARED_ERROR,
    SQUARED_ERROR,
)
from examples.record_curves.network import NetworkRecipe, mlp
from examples.record_curves.optimizers import Sgd
from examples.record_curves.other_learners import Boosting, Centres, Factors

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from examples.record_curves.layers import Layer
    from examples.record_curves.learner import Learner, Split
    from examples.record_curves.losses import Metric
    from examples.record_curves.optimizers import Optimizer

    Maker: TypeAlias = Callable[[Split, np.random.Generator], Learner]
    Descent: TypeAlias = Callable[[], Optimizer]


def momentum(share: float = 0.9) -> Descent:
    """SGD with momentum."""
    return partial(Sgd, momentum=share)


def linear_regression(inputs: int, outputs: int) -> Maker:
    """Least squares by SGD."""
    return NetworkRecipe(
        model=f"linear regression, {inputs} to {outputs}",
        layers=mlp(inputs, outputs),
        loss=SQUARED_ERROR,
        metric=MEAN_SQUARED_ERROR,
        optimizer=Sgd,
    ).make


def logistic_regression(inputs: int, outputs: int, optimizer: Descent = Sgd) -> Maker:
    """Softmax regression."""
    return NetworkRecipe(
        model=f"logistic regression, {inputs} to {outputs} classes",
        layers=mlp(inputs, outputs),
        loss=CROSS_ENTROPY,
        metric=ACCURACY,
        optimizer=optimizer,
    ).make


def vector_machine(inputs: int, outputs: int) -> Maker:
    """A linear support vector machine by SGD."""
    return NetworkRecipe(
        model=f"linear support vector machine, {inputs} to {outputs} classes",
        layers=mlp(inputs, outputs),
        loss=HINGE,
        metric=ACCURACY,
        optimizer=partial(Sgd, decay=1e-3),
    ).make


def classifier(*widths: int, optimizer: Descent, metric: Metric = ACCURACY) -> Maker:
    """An MLP that tells classes."""
    return NetworkRecipe(
        model=f"MLP {'-'.join(map(str, widths))}, ReLU",
        layers=mlp(*widths),
        loss=CROSS_ENTROPY,
        metric=metric,
        optimizer=optimizer,
    ).make


def regressor(*widths: int, optimizer: Descent, kind: str = "MLP") -> Maker:
    """An MLP that tells numbers."""
    return NetworkRecipe(
        model=f"{kind} {'-'.join(map(str, widths))}, ReLU",
        layers=mlp(*widths),
        loss=SQUARED_ERROR,
        metric=MEAN_SQUARED_ERROR,
        optimizer=optimizer,
    ).make


def convolutional(optimizer: Descent) -> Maker:
    """Two convolutions for images of 8 x 8 pixels."""
    return NetworkRecipe(
        model="CNN, 3 x 3 x 8, halve, 3 x 3 x 16, halve, dense 64-10, ReLU",
        layers=_convolutions,
        loss=CROSS_ENTROPY,
        metric=ACCURACY,
        optimizer=optimizer,
    ).make


def recurrent(optimizer: Descent) -> Maker:
    """A network that reads images of 8 x 8 pixels a line at a time."""
    return NetworkRecipe(
        model="RNN, 8 lines of 8 pixels, 32 states, tanh, dense 32-10",
        layers=lambda random: [
            Reshape(8, 8),
            Recurrent(8, 32, random),
            Dense(32, 10, random),
        ],
        loss=CROSS_ENTROPY,
        metric=ACCURACY,
        optimizer=optimizer,
    ).make


def factors(rank: int, decay: float) -> Maker:
    """Matrix factorisation."""
    return partial(Factors, rank=rank, decay=decay)


def centres(count: int) -> Maker:
    """Mini-batch k-means."""
    return partial(Centres, centres=count)


def boosting(depth: int) -> Maker:
    """Gradient boosting."""
    return partial(Boosting, depth=depth)


def _convolutions(random: np.random.Generator) -> list[Layer]:
    return [
        Reshape(1, 8, 8),
        Convolution(1, 8, random),
        Relu(),
        Halve(),
        Convolution(8, 16, random),
        Relu(),
        Halve(),
        Reshape(64),
        Dense(64, 10, random),
    ]
