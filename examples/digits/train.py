"""Train an MLP on scikit-learn's digits, on however many ranks there are.

Alone, ``python train.py``; with MPI, ``mpirun -n 4 python train.py``; in the holes of
a cluster, with ``job.toml``. The losses are the same to the last bit. Start it again
after it was stopped or killed, on another number of ranks, and it goes on.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from sklearn.datasets import load_digits

from freetrain import elastic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Weights = dict[str, Array]

EPOCHS = 15
GLOBAL_BATCH = 64
LEARNING_RATE = 0.1
MOMENTUM = 0.9
HIDDEN = 64
SEED = 1
VALIDATION = 360


def main() -> None:
    """Train to the end, or until asked to stop."""
    images, labels = load()
    train_set = images[VALIDATION:], labels[VALIDATION:]
    with elastic.join() as run:
        weights = new_weights(np.random.default_rng(SEED))
        speed = {name: np.zeros_like(value) for name, value in weights.items()}
        state = run.restore({"weights": weights, "speed": speed})
        weights, speed = state["weights"], state["speed"]

        for batch in run.batches(
            samples=len(train_set[0]),
            global_batch=GLOBAL_BATCH,
            epochs=EPOCHS,
            seed=SEED,
        ):
            loss, *gradients = run.sum(batch, partial(sums, weights, *train_set))
            for name, gradient in zip(weights, gradients, strict=True):
                speed[name] = MOMENTUM * speed[name] - LEARNING_RATE * (
                    gradient / len(batch)
                )
                weights[name] += speed[name]

            metrics = {"loss": float(loss) / len(batch)}
            if batch.last_of_epoch and run.rank == 0:
                metrics["accuracy"] = accuracy(weights, images, labels)
            run.end_step(state, **metrics)

        if run.finished and run.rank == 0:
            reached = accuracy(weights, images, labels)
            sys.stdout.write(f"validation accuracy {reached:.4f}\n")


def load() -> tuple[Array, NDArray[np.int64]]:
    """1,797 images of 8 x 8 pixels and their digits, shuffled, always the same."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    return images[order] / 16.0, labels[order]


def new_weights(random: np.random.Generator) -> Weights:
    """An MLP of 64 inputs, one hidden layer and 10 classes."""
    return {
        "in": random.normal(scale=(2 / 64) ** 0.5, size=(64, HIDDEN)),
        "in_bias": np.zeros(HIDDEN),
        "out": random.normal(scale=(2 / HIDDEN) ** 0.5, size=(HIDDEN, 10)),
        "out_bias": np.zeros(10),
    }


def sums(
    weights: Weights, images: Array, labels: NDArray[np.int64], chunk: elastic.Chunk
) -> tuple[float | Array, ...]:
    """Cross-entropy and its gradients, summed over the samples of *chunk*."""
    x, rows = images[chunk.indices], np.arange(len(chunk.indices))
    hidden, scores = forward(weights, x)
    likely = np.exp(scores - scores.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    loss = -np.log(likely[rows, labels[chunk.indices]]).sum()

    likely[rows, labels[chunk.indices]] -= 1
    back = (likely @ weights["out"].T) * (hidden > 0)
    return loss, x.T @ back, back.sum(axis=0), hidden.T @ likely, likely.sum(axis=0)


def forward(weights: Weights, x: Array) -> tuple[Array, Array]:
    """The hidden layer's and the classes' values."""
    hidden = np.maximum(x @ weights["in"] + weights["in_bias"], 0)
    return hidden, hidden @ weights["out"] + weights["out_bias"]


def accuracy(weights: Weights, images: Array, labels: NDArray[np.int64]) -> float:
    """The share of validation images that are recognised."""
    scores = forward(weights, images[:VALIDATION])[1]
    return float((scores.argmax(axis=1) == labels[:VALIDATION]).mean())


if __name__ == "__main__":
    main()
