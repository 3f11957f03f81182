"""What is not made of layers: factors, centres, trees."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from examples.record_curves.learner import About
from examples.record_curves.losses import SQUARED_ERROR
from freetrain.losscurve.forecast import MetricDirection

if TYPE_CHECKING:
    from examples.record_curves.learner import Array, Rows, Split

# Imported by name: it has no types, and is not installed everywhere.
trees: Any = import_module("sklearn.tree")


class Factors:
    """Matrix factorisation with biases, by SGD; x are (row, column), y the entries."""

    def __init__(
        self, split: Split, random: np.random.Generator, *, rank: int, decay: float
    ) -> None:
        self.about = About(
            model=f"matrix factorisation, rank {rank}",
            optimizer=f"SGD, weight decay {decay:g}",
            loss="squared_error",
            metric="root_mean_squared_error",
            better=MetricDirection.LOWER,
        )
        counts = split.x.max(axis=0) + 1
        self._sides = [random.normal(scale=0.1, size=(n, rank)) for n in counts]
        self._biases = [np.zeros(n) for n in counts]
        self._split, self._decay = split, decay

    def step(self, rows: Rows, rate: float) -> float:
        """Learn from *rows*, each by the full rate, as if they came one by one."""
        x = self._split.x[rows]
        error = self._values(x) - self._split.y[rows]
        ours = [side[x[:, k]] for k, side in enumerate(self._sides)]
        for k, (side, bias) in enumerate(zip(self._sides, self._biases, strict=True)):
            slope = error[:, np.newaxis] * ours[1 - k] + self._decay * ours[k]
            np.subtract.at(side, x[:, k], rate * slope)
            np.subtract.at(bias, x[:, k], rate * error)
        return float((error**2).mean())

    def score(self) -> float:
        """Return the error over entries that were held back."""
        error = self._values(self._split.x_validation) - self._split.y_validation
        return float((error**2).mean() ** 0.5)

    def _values(self, x: Rows) -> Array:
        left, right = (side[x[:, k]] for k, side in enumerate(self._sides))
        biases = self._biases[0][x[:, 0]] + self._biases[1][x[:, 1]]
        values: Array = (left * right).sum(axis=1) + biases
        return values


class Centres:
    """Mini-batch k-means (Sculley, WWW 2010)."""

    def __init__(
        self, split: Split, random: np.random.Generator, *, centres: int
    ) -> None:
        self.about = About(
            model=f"mini-batch k-means, {centres} centres",
            optimizer="means of what each centre has seen",
            loss="inertia_per_sample",
            metric="validation_inertia_per_sample",
            better=MetricDirection.LOWER,
        )
        first = random.choice(len(split.x), size=centres, replace=False)
        self._centres = split.x[first].copy()
        self._seen = np.ones(centres)
        self._split = split

    def step(self, rows: Rows, rate: float) -> float:
        """Move the centres towards *rows*; a *rate* of 1 keeps them means."""
        x = self._split.x[rows]
        distances = self._distances(x)
        for row, centre in zip(x, distances.argmin(axis=1), strict=True):
            self._seen[centre] += 1
            pull = rate / self._seen[centre]
            self._centres[centre] += pull * (row - self._centres[centre])
        return float(distances.min(axis=1).mean())

    def score(self) -> float:
        """Return the mean squared distance to the nearest centre."""
        return float(self._distances(self._split.x_validation).min(axis=1).mean())

    def _distances(self, x: Array) -> Array:
        apart = x[:, np.newaxis] - self._centres
        squares: Array = (apart**2).sum(axis=2)
        return squares


class Boosting:
    """Gradient boosting (Friedman 2002): a tree a step, each on some of the rows."""

    def __init__(
        self, split: Split, random: np.random.Generator, *, depth: int
    ) -> None:
        self.about = About(
            model=f"gradient boosting, trees of depth {depth}",
            optimizer="a tree a step",
            loss=SQUARED_ERROR.name,
            metric="mean_squared_error",
            better=MetricDirection.LOWER,
        )
        self._split, self._random, self._depth = split, random, depth
        self._values = np.full(len(split.y), split.y.mean())
        self._validation = np.full(len(split.y_validation), split.y.mean())

    def step(self, rows: Rows, rate: float) -> float:
        """Add a tree that fits what is left over at *rows*, times *rate*."""
        left = self._split.y[rows] - self._values[rows]
        seed = int(self._random.integers(2**31))
        tree = trees.DecisionTreeRegressor(max_depth=self._depth, random_state=seed)
        tree.fit(self._split.x[rows], left)
        self._values += rate * tree.predict(self._split.x)
        self._validation += rate * tree.predict(self._split.x_validation)
        return float((left**2).mean())

    def score(self) -> float:
        """Return the mean squared error."""
        return float(((self._validation - self._split.y_validation) ** 2).mean())
