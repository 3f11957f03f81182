"""A program that knows nothing of FreeTrain, and runs in holes all the same.

It does by itself what FreeTrain asks of such a program: it saves what it has once an
epoch, goes on from there when it is started again, saves and ends with exit code 0
when TERM comes, and prints how far it is. ``job.toml`` says how to read that.

Alone: ``python train.py --epochs 30``. One process, since it shares its work with
nobody.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from sklearn.datasets import load_digits

if TYPE_CHECKING:
    from types import FrameType

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

BATCH = 64
LEARNING_RATE = 0.1
VALIDATION = 360


def main() -> None:
    """Train to the end, or until TERM."""
    arguments = argparse.ArgumentParser(description="Softmax regression on digits.")
    arguments.add_argument("--epochs", type=int, default=30)
    arguments.add_argument("--saved", type=Path, default=Path("saved"))
    given = arguments.parse_args()
    given.saved.mkdir(parents=True, exist_ok=True)

    asked = ask_by(signal.SIGTERM)
    images, labels = load()
    epoch, weights = restore(given.saved / "last.npz")
    while epoch < given.epochs and not asked:
        order = np.random.default_rng(epoch).permutation(len(images) - VALIDATION)
        loss = train_epoch(weights, images[VALIDATION:], labels[VALIDATION:], order)
        epoch += 1
        save(given.saved / "last.npz", epoch, weights)
        right = (images[:VALIDATION] @ weights).argmax(axis=1) == labels[:VALIDATION]
        sys.stdout.write(f"Epoch {epoch} loss {loss:.6e} accuracy {right.mean():.4f}\n")
        sys.stdout.flush()


def ask_by(number: signal.Signals) -> list[int]:
    """Return a list that is no longer empty once the signal *number* came."""
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        del frame
        came.append(number)

    signal.signal(number, note)
    return came


def restore(path: Path) -> tuple[int, Array]:
    """Epochs done and weights, as saved; the beginning where nothing was."""
    if not path.exists():
        return 0, np.zeros((64, 10))
    with np.load(path, allow_pickle=False) as saved:
        return int(saved["epoch"]), saved["weights"]


def save(path: Path, epoch: int, weights: Array) -> None:
    """Replace what was saved; a kill in the middle leaves the old."""
    half = path.with_suffix(".half")
    with half.open("wb") as file:
        np.savez(file, epoch=epoch, weights=weights)
        file.flush()
        os.fsync(file.fileno())
    half.replace(path)


def train_epoch(
    weights: Array, images: Array, labels: NDArray[np.int64], order: NDArray[np.int64]
) -> float:
    """Go through all images once, in this *order*; return the mean loss."""
    total = 0.0
    for start in range(0, len(order), BATCH):
        own = order[start : start + BATCH]
        scores = images[own] @ weights
        likely = np.exp(scores - scores.max(axis=1, keepdims=True))
        likely /= likely.sum(axis=1, keepdims=True)
        rows = np.arange(len(own))
        total -= float(np.log(likely[rows, labels[own]]).sum())
        likely[rows, labels[own]] -= 1
        weights -= LEARNING_RATE * (images[own].T @ likely) / len(own)
    return total / len(order)


def load() -> tuple[Array, NDArray[np.int64]]:
    """1,797 images of 8 x 8 pixels and their digits, shuffled, always the same."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    return images[order] / 16.0, labels[order]


if __name__ == "__main__":
    main()
