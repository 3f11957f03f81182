"""Data sets: those that come with scikit-learn, and those it generates."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from examples.record_curves.learner import Split

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Imported by name: it has no types, and is not installed everywhere.
datasets: Any = import_module("sklearn.datasets")


@cache
def digits(train: int) -> Split:
    """1,797 images of 8 x 8 pixels from 0 to 1, and their digits."""
    x, y = datasets.load_digits(return_X_y=True)
    return _split("digits", x / 16, y, train=train)


@cache
def classes(name: str, train: int) -> Split:
    """One of scikit-learn's small sets of classes, columns standardised."""
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return _split(name, x, y, train=train, standard=True)


@cache
def numbers(name: str, train: int) -> Split:
    """One of scikit-learn's small sets of numbers, all columns standardised."""
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    y = (y - y.mean(axis=0)) / y.std(axis=0)
    return _split(name, x, y, train=train, standard=True)


@cache
def generated(name: str, train: int, **how: float) -> Split:
    """What scikit-learn's ``make_``*name* generates, columns standardised."""
    x, y = getattr(datasets, f"make_{name}")(**how, random_state=0)
    if y.dtype.kind == "f":
        y = (y - y.mean()) / y.std()
    words = ", ".join(f"{key}={value}" for key, value in how.items())
    return _split(f"make_{name}({words})", x, y, train=train, standard=True)


@cache
def ratings(train: int) -> Split:
    """Half the entries of a 200 x 100 matrix of low rank, with noise."""
    random = np.random.default_rng(0)
    matrix = datasets.make_low_rank_matrix(
        n_samples=200,
        n_features=100,
        effective_rank=4,
        tail_strength=0.05,
        random_state=0,
    )
    matrix = matrix / matrix.std() + random.normal(scale=0.3, size=matrix.shape)
    entries = random.permutation(matrix.size)[:10_000]
    x = np.stack(np.unravel_index(entries, matrix.shape), axis=1)
    name = "make_low_rank_matrix, half of 200 x 100 entries, noise 0.3"
    return _split(name, x, matrix[x[:, 0], x[:, 1]], train=train)


def noisy(split: Split, share: float) -> Split:
    """Return *split* with wrong labels for *share* of what is trained on."""
    random = np.random.default_rng(0)
    labels = split.y.copy()
    wrong = random.random(len(labels)) < share
    labels[wrong] = random.integers(labels.max() + 1, size=wrong.sum())
    return replace(split, name=f"{split.name}, {share:.0%} labels random", y=labels)


def itself(split: Split) -> Split:
    """Return *split* with the inputs as what should come out."""
    return replace(split, y=split.x, y_validation=split.x_validation)


def _split(
    name: str,
    x: NDArray[Any],
    y: NDArray[Any],
    *,
    train: int,
    standard: bool = False,
) -> Split:
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], y[order]
    if standard:
        x = (x - x[:train].mean(axis=0)) / x[:train].std(axis=0)
    return Split(name, x[:train], y[:train], x[train:], y[train:])
