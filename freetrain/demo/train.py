"""Train an MLP on drawn digits: ``python -m freetrain.demo.train --seed 1``.

The training is real, and converges. What an accelerator would spend on each chunk
is slept instead, so that more nodes are quicker even where all nodes are one machine.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from freetrain import elastic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


# Digits drawn by hand on 5 × 7 dots, moved, dimmed and blurred by noise.

if TYPE_CHECKING:
    Array = NDArray[np.float64]


SIDE = 9
PIXELS = SIDE * SIDE
CLASSES = 10
_NOISE = 0.2
_ROWS, _COLUMNS = 7, 5
_GLYPHS = """
.###. ..#.. .###. .###. ...#. ##### .###. ##### .###. .###.
#...# .##.. #...# #...# ..##. #.... #.... ....# #...# #...#
#..## ..#.. ....# ....# .#.#. ####. ####. ...#. #...# #...#
#.#.# ..#.. ..##. ..##. #..#. ....# #...# ..#.. .###. .####
##..# ..#.. .#... ....# ##### ....# #...# ..#.. #...# ....#
#...# ..#.. #.... #...# ...#. #...# #...# ..#.. #...# ....#
.###. .###. ##### .###. ...#. .###. .###. ..#.. .###. .###.
"""


def draw(count: int, *, seed: int) -> tuple[Array, NDArray[np.int64]]:
    """Return *count* images, one a row of ``PIXELS`` numbers, and their digits.

    The same ones for the same seed.
    """
    random = np.random.default_rng(seed)
    labels = random.integers(CLASSES, size=count)
    downs = random.integers(SIDE - _ROWS + 1, size=count)
    rights = random.integers(SIDE - _COLUMNS + 1, size=count)
    images = np.zeros((count, SIDE, SIDE))
    glyphs = _glyphs()
    for image, label, down, right in zip(images, labels, downs, rights, strict=True):
        image[down : down + _ROWS, right : right + _COLUMNS] = glyphs[label]
    images *= random.uniform(0.6, 1.0, size=(count, 1, 1))
    images += random.normal(scale=_NOISE, size=images.shape)
    return images.reshape(count, PIXELS), labels


def _glyphs() -> Array:
    rows = [line.split() for line in _GLYPHS.split("\n") if line]
    dots = [[[dot == "#" for dot in row[k]] for row in rows] for k in range(CLASSES)]
    return np.array(dots, dtype=np.float64)


if TYPE_CHECKING:
    Weights = dict[str, Array]


SAMPLES = 1_600
VALIDATION = 400
GLOBAL_BATCH = 80
CHUNKS = 16
LEARNING_RATE = 0.2
MOMENTUM = 0.9
HIDDEN = 64


def main(argv: Sequence[str] | None = None) -> None:
    """Train to the end, or until asked to stop."""
    asked = _parser().parse_args(argv)
    images, labels = draw(SAMPLES + VALIDATION, seed=0)
    train_set = images[VALIDATION:], labels[VALIDATION:]
    with elastic.join(progress_every_s=0) as run:
        weights = new_weights(np.random.default_rng(asked.seed))
        speed = {name: np.zeros_like(value) for name, value in weights.items()}
        state = run.restore({"weights": weights, "speed": speed})
        weights, speed = state["weights"], state["speed"]
        work = partial(sums, weights, *train_set, asked.chunk_s)
        for batch in run.batches(
            samples=SAMPLES,
            global_batch=GLOBAL_BATCH,
            epochs=asked.epochs,
            seed=asked.seed,
            chunks=CHUNKS,
        ):
            loss, *gradients = run.sum(batch, work)
            for name, gradient in zip(weights, gradients, strict=True):
                speed[name] = MOMENTUM * speed[name] - LEARNING_RATE * (
                    gradient / len(batch)
                )
                weights[name] += speed[name]
            metrics = {"loss": float(loss) / len(batch)}
            if batch.last_of_epoch:
                metrics["accuracy"] = accuracy(weights, images, labels)
            run.end_step(state, **metrics)


def new_weights(random: np.random.Generator) -> Weights:
    """Return an MLP with one hidden layer."""
    return {
        "in": random.normal(scale=(2 / PIXELS) ** 0.5, size=(PIXELS, HIDDEN)),
        "in_bias": np.zeros(HIDDEN),
        "out": random.normal(scale=(2 / HIDDEN) ** 0.5, size=(HIDDEN, CLASSES)),
        "out_bias": np.zeros(CLASSES),
    }


def sums(
    weights: Weights,
    images: Array,
    labels: NDArray[np.int64],
    chunk_s: float,
    chunk: elastic.Chunk,
) -> tuple[float | Array, ...]:
    """Return cross-entropy and its gradients, summed over the samples of *chunk*."""
    time.sleep(chunk_s)
    x, rows = images[chunk.indices], np.arange(len(chunk.indices))
    hidden, scores = _forward(weights, x)
    likely = np.exp(scores - scores.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    loss = -np.log(likely[rows, labels[chunk.indices]]).sum()

    likely[rows, labels[chunk.indices]] -= 1
    back = (likely @ weights["out"].T) * (hidden > 0)
    return loss, x.T @ back, back.sum(axis=0), hidden.T @ likely, likely.sum(axis=0)


def accuracy(weights: Weights, images: Array, labels: NDArray[np.int64]) -> float:
    """Return the share of validation images that are recognised."""
    scores = _forward(weights, images[:VALIDATION])[1]
    return float((scores.argmax(axis=1) == labels[:VALIDATION]).mean())


def _forward(weights: Weights, x: Array) -> tuple[Array, Array]:
    hidden = np.maximum(x @ weights["in"] + weights["in_bias"], 0)
    return hidden, hidden @ weights["out"] + weights["out_bias"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Train on drawn digits.")
    parser.add_argument("--seed", type=int, default=1, help="of weights and order")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument(
        "--chunk-s", type=float, default=0.0, help="seconds to sleep for each chunk"
    )
    return parser


if __name__ == "__main__":
    main()
