"""A real, small training: ``python -m tests.pack.measure.train KIND STEPS SEED``.

It trains for a fixed number of steps, and prints its training loss every so often.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Rows = NDArray[np.float64]
    _Training = tuple["Rows", "Rows", "Learner"]

BATCH = 64
LINES = 1000
"""Lines that a training prints after its first step, whatever its number of steps."""


class Learner(Protocol):
    """Does one step and returns the loss of its batch."""

    def step(self, x: Rows, y: Rows) -> float: ...


class Network:
    """One hidden layer, softmax, plain gradient descent, NumPy only."""

    def __init__(self, sizes: tuple[int, int, int], rate: float, seed: int) -> None:
        random = np.random.default_rng(seed)
        inputs, hidden, outputs = sizes
        self.first = random.normal(0, inputs**-0.5, (inputs, hidden))
        self.second = random.normal(0, hidden**-0.5, (hidden, outputs))
        self.rate = rate

    def step(self, x: Rows, y: Rows) -> float:
        inner = np.tanh(x @ self.first)
        likely = _softmax(inner @ self.second)
        wrong = (likely - y) / len(x)
        back = (wrong @ self.second.T) * (1 - inner**2)
        self.second -= self.rate * (inner.T @ wrong)
        self.first -= self.rate * (x.T @ back)
        return _loss(likely, y)


class Softmax:
    """Multinomial logistic regression, plain gradient descent, NumPy only."""

    def __init__(self, inputs: int, outputs: int, rate: float) -> None:
        self.weights = np.zeros((inputs, outputs))
        self.rate = rate

    def step(self, x: Rows, y: Rows) -> float:
        likely = _softmax(x @ self.weights)
        self.weights -= self.rate * (x.T @ (likely - y)) / len(x)
        return _loss(likely, y)


class Sklearn:
    """A model of scikit-learn, by its partial_fit."""

    def __init__(self, model: Any, classes: int) -> None:  # noqa: ANN401 -- untyped
        self.model = model
        self.classes = np.arange(classes)

    def step(self, x: Rows, y: Rows) -> float:
        self.model.partial_fit(x, y.argmax(axis=1), classes=self.classes)
        return _loss(self.model.predict_proba(x), y)


def _network(name: str, hidden: int, rate: float) -> Callable[[int], _Training]:
    def make(seed: int) -> _Training:
        x, y = _rows(name)
        return x, y, Network((x.shape[1], hidden, y.shape[1]), rate, seed)

    return make


def _softmax_of(name: str, rate: float) -> Callable[[int], _Training]:
    def make(seed: int) -> _Training:
        del seed  # only the order of the rows is by chance
        x, y = _rows(name)
        return x, y, Softmax(x.shape[1], y.shape[1], rate)

    return make


def _sklearn(name: str, rate: float) -> Callable[[int], _Training]:
    def make(seed: int) -> _Training:
        x, y = _rows(name)
        networks = import_module("sklearn.neural_network")
        model = networks.MLPClassifier(
            (64,), solver="sgd", learning_rate_init=rate, random_state=seed
        )
        return x, y, Sklearn(model, y.shape[1])

    return make


KINDS: Mapping[str, Callable[[int], _Training]] = {
    "network-digits": _network("digits", 128, 0.5),
    "softmax-cancer": _softmax_of("breast_cancer", 0.5),
    "softmax-digits": _softmax_of("digits", 0.5),
    "network-wine": _network("wine", 256, 0.5),
    "sklearn-digits": _sklearn("digits", 0.0005),
}


def _rows(name: str) -> tuple[Rows, Rows]:
    found = getattr(import_module("sklearn.datasets"), f"load_{name}")()
    x = np.asarray(found.data, dtype=np.float64)
    spread = x.std(axis=0)
    x = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    classes = np.eye(int(found.target.max()) + 1)
    return x, classes[found.target]


def _softmax(scores: Rows) -> Rows:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Rows = powers / powers.sum(axis=1, keepdims=True)
    return shares


def _loss(likely: Rows, y: Rows) -> float:
    return float(-np.log(np.maximum((likely * y).sum(axis=1), 1e-12)).mean())


def main(kind: str, steps: int, seed: int) -> None:
    x, y, learner = KINDS[kind](seed)
    random = np.random.default_rng(seed)
    every = max(1, steps // LINES)
    losses = []
    for step in range(1, steps + 1):
        batch = random.integers(0, len(x), BATCH)
        losses.append(learner.step(x[batch], y[batch]))
        if step % every == 0 or step in (1, steps):
            sys.stdout.write(f"step {step} loss {np.mean(losses):.6e}\n")
            sys.stdout.flush()
            losses.clear()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
