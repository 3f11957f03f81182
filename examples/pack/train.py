"""Train a linear classifier on one of scikit-learn's small data sets.

Alone, ``python train.py wine``; three of them on one node, with ``pack.toml``; in the
holes of a cluster, with ``job.toml``. Start it again after it was stopped or killed,
and it goes on.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from sklearn import datasets

from freetrain import elastic

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

SETS = ("digits", "wine", "breast_cancer")
GLOBAL_BATCH = 16


def main() -> None:
    """Train to the end, or until asked to stop."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("name", choices=SETS, help="the data set")
    arguments.add_argument("--rate", type=float, default=0.1, help="learning rate")
    arguments.add_argument("--epochs", type=int, default=100)
    given = arguments.parse_args()
    x, labels = load(given.name)
    with elastic.join() as run:
        classes = int(labels.max()) + 1
        state = run.restore({"weights": np.zeros((x.shape[1], classes))})
        weights = state["weights"]
        for batch in run.batches(
            samples=len(x), global_batch=GLOBAL_BATCH, epochs=given.epochs
        ):
            loss, gradient = run.sum(batch, partial(sums, weights, x, labels))
            weights -= given.rate * np.asarray(gradient) / len(batch)
            run.end_step(state, loss=float(loss) / len(batch))


def load(name: str) -> tuple[Array, NDArray[np.int64]]:
    """Return a row a sample, columns standardised and one of ones, and its class."""
    x, labels = getattr(datasets, f"load_{name}")(return_X_y=True)
    x = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-9)
    return np.hstack([x, np.ones((len(x), 1))]), labels


def sums(
    weights: Array, x: Array, labels: NDArray[np.int64], chunk: elastic.Chunk
) -> tuple[float, Array]:
    """Cross-entropy and its gradient, summed over the samples of *chunk*."""
    rows, classes = x[chunk.indices], labels[chunk.indices]
    scores = rows @ weights
    likely = np.exp(scores - scores.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    places = np.arange(len(classes))
    loss = -np.log(likely[places, classes]).sum()
    likely[places, classes] -= 1
    return float(loss), rows.T @ likely


if __name__ == "__main__":
    main()
