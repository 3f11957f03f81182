"""A training from its first step to its last, and the rows that it leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from examples.record_curves.learner import Learner, Rows, Split
    from examples.record_curves.rates import Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One training, to be repeated by anybody.

    Attributes:
        name: Of the file, without its ending.
        split: Loads or makes the data.
        learner: Makes what is trained; the random source is for its beginning.
        rate: Learning rate by epoch.
        batch_size: Samples a step; a divisor of the training samples.
        epochs: Times the training set is gone through.
        steps_per_row: Steps whose losses are averaged; a divisor of an epoch's.
        seed: Of the beginning and of the order of samples.
    """

    name: str
    split: Callable[[], Split]
    learner: Callable[[Split, np.random.Generator], Learner]
    rate: Rate
    batch_size: int
    epochs: int
    steps_per_row: int
    seed: int = 1

    def begin(self) -> tuple[Learner, Split]:
        """Return what is to be trained, and the data it was given."""
        split = self.split()
        return self.learner(split, np.random.default_rng([self.seed, 0])), split

    def batches(self, samples: int) -> Iterator[Rows]:
        """Yield one epoch's batches after another, each epoch in a new order.

        Raises:
            ValueError: Batches do not fit the epoch, or rows of the file.
        """
        steps = samples // self.batch_size
        if samples % self.batch_size or steps % self.steps_per_row:
            raise ValueError(
                f"{self.name}: {samples} samples are not a whole number of rows of "
                f"{self.steps_per_row} batches of {self.batch_size}"
            )
        random = np.random.default_rng([self.seed, 1])
        while True:
            yield from random.permutation(samples).reshape(steps, self.batch_size)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file.

    Attributes:
        samples: Training samples done.
        step: Steps done.
        epoch: Epochs done.
        loss: Mean training loss of the steps since the row before.
        metric: Validation metric; None within an epoch.
    """

    samples: int
    step: int
    epoch: float
    loss: float
    metric: float | None


def train(training: Training, learner: Learner, *, samples: int) -> Iterator[Row]:
    """Train, and yield the rows as they come.

    A training that diverges goes on to its end, as it would in real life.

    Args:
        training: How.
        learner: What, as ``training.begin()`` returns it.
        samples: How many there are to train on.
    """
    steps = samples // training.batch_size
    losses: list[float] = []
    for done, rows in enumerate(training.batches(samples)):
        if done == training.epochs * steps:
            return
        with np.errstate(all="ignore"):
            losses.append(learner.step(rows, training.rate.at(done / steps)))
        step = done + 1
        if step % training.steps_per_row == 0:
            yield _row(learner, training, step, losses=losses, steps=steps)
            losses.clear()


def _row(
    learner: Learner,
    training: Training,
    step: int,
    *,
    losses: list[float],
    steps: int,
) -> Row:
    with np.errstate(all="ignore"):
        loss = float(np.mean(losses))
        metric = None if step % steps else learner.score()
    return Row(step * training.batch_size, step, step / steps, loss, metric)
