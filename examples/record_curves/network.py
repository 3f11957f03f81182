"""Anything made of layers: regressions, support vector machines, networks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from examples.record_curves.layers import Dense, Relu
from examples.record_curves.learner import About

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from examples.record_curves.layers import Layer
    from examples.record_curves.learner import Array, Rows, Split
    from examples.record_curves.losses import Loss, Metric
    from examples.record_curves.optimizers import Optimizer


class Network:
    """Layers in a row, their loss, their optimizer and their data."""

    def __init__(
        self,
        about: About,
        layers: list[Layer],
        *,
        recipe: NetworkRecipe,
        split: Split,
    ) -> None:
        self.about = about
        self._layers = layers
        self._recipe = recipe
        self._optimizer = recipe.optimizer()
        self._split = split

    def step(self, rows: Rows, rate: float) -> float:
        """Learn from *rows*."""
        values = self._forward(self._split.x[rows])
        loss, back = self._recipe.loss.of(values, self._split.y[rows])
        gradients: list[Array] = []
        for layer in reversed(self._layers):
            back, of_weights = layer.backward(back)
            gradients[:0] = of_weights
        weights = [weight for layer in self._layers for weight in layer.weights]
        self._optimizer.update(weights, gradients, rate)
        return loss

    def score(self) -> float:
        """Return the metric over the validation set."""
        values = self._forward(self._split.x_validation)
        return self._recipe.metric.of(values, self._split.y_validation)

    def _forward(self, x: Array) -> Array:
        for layer in self._layers:
            x = layer.forward(x)
        return x


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRecipe:
    """How to make a network, anew each time.

    Attributes:
        model: What it is, for people.
        layers: Makes them, weights drawn at random.
        loss: What it trains on.
        metric: What it is validated by.
        optimizer: Makes one.
    """

    model: str
    layers: Callable[[np.random.Generator], list[Layer]]
    loss: Loss
    metric: Metric
    optimizer: Callable[[], Optimizer]

    def make(self, split: Split, random: np.random.Generator) -> Network:
        """Return a network that has learned nothing yet."""
        about = About(
            model=self.model,
            optimizer=str(self.optimizer()),
            loss=self.loss.name,
            metric=self.metric.name,
            better=self.metric.better,
        )
        return Network(about, self.layers(random), recipe=self, split=split)


def mlp(*widths: int) -> Callable[[np.random.Generator], list[Layer]]:
    """Return what makes dense layers of these widths, ReLU in between."""

    def layers(random: np.random.Generator) -> list[Layer]:
        made: list[Layer] = []
        for inputs, outputs in pairwise(widths):
            made += [Dense(inputs, outputs, random), Relu()]
        return made[:-1]

    return layers
