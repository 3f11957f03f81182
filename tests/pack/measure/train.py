"""A real, small training of a fixed number of steps, which prints its loss."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]
Step = Callable[["Rows", "Rows"], float]

BATCH = 64
LINES = 1000
"""Lines that a training prints after its first step, whatever its number of steps."""

KINDS: dict[str, tuple[str, int]] = {  # data set, and hidden units of the network
    "network-digits": ("digits", 128),
    "softmax-cancer": ("breast_cancer", 0),
    "softmax-digits": ("digits", 0),
    "network-wine": ("wine", 256),
    "sklearn-digits": ("digits", 64),
}


def network(sizes: tuple[int, int, int], seed: int, rate: float = 0.5) -> Step:
    """One hidden layer, softmax, plain gradient descent, NumPy only."""
    chance = np.random.default_rng(seed)
    inputs, hidden, outputs = sizes
    first = chance.normal(0, inputs**-0.5, (inputs, hidden))
    second = chance.normal(0, hidden**-0.5, (hidden, outputs))

    def step(x: Rows, y: Rows) -> float:
        inner = np.tanh(x @ first)
        likely = _softmax(inner @ second)
        wrong = (likely - y) / len(x)
        back = (wrong @ second.T) * (1 - inner**2)
        second[:] -= rate * (inner.T @ wrong)
        first[:] -= rate * (x.T @ back)
        return _loss(likely, y)

    return step


def softmax(inputs: int, outputs: int, rate: float = 0.5) -> Step:
    """Multinomial logistic regression, plain gradient descent, NumPy only."""
    weights = np.zeros((inputs, outputs))

    def step(x: Rows, y: Rows) -> float:
        likely = _softmax(x @ weights)
        weights[:] -= rate * (x.T @ (likely - y)) / len(x)
        return _loss(likely, y)

    return step


def sklearn(hidden: int, classes: int, seed: int, rate: float = 0.0005) -> Step:
    """A model of scikit-learn, by its partial_fit."""
    model: Any = import_module("sklearn.neural_network").MLPClassifier(
        (hidden,), solver="sgd", learning_rate_init=rate, random_state=seed
    )

    def step(x: Rows, y: Rows) -> float:
        model.partial_fit(x, y.argmax(axis=1), classes=np.arange(classes))
        return _loss(model.predict_proba(x), y)

    return step


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
    data, hidden = KINDS[kind]
    x, y = _rows(data)
    if kind.startswith("sklearn"):
        learn = sklearn(hidden, y.shape[1], seed)
    elif hidden:
        learn = network((x.shape[1], hidden, y.shape[1]), seed)
    else:
        learn = softmax(x.shape[1], y.shape[1])
    chance = np.random.default_rng(seed)
    every = max(1, steps // LINES)
    losses = []
    for step in range(1, steps + 1):
        batch = chance.integers(0, len(x), BATCH)
        losses.append(learn(x[batch], y[batch]))
        if step % every == 0 or step in (1, steps):
            sys.stdout.write(f"step {step} loss {np.mean(losses):.6e}\n")
            sys.stdout.flush()
            losses.clear()
