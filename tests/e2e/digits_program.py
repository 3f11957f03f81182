"""The digits example as the tests train it: slower, counted, and with a stray child.

Run as ``python digits_program.py FOLDER``. The same data, model and update as
``examples/digits/train.py``; it counts in its state how often each sample was used in
each epoch, and each of its worlds leaves a child that detaches itself.
"""

import importlib.util
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from freetrain import elastic
from tests.e2e.socket_world import SocketWorld

Weights = dict[str, NDArray[np.float64]]

EPOCHS = int(os.environ.get("DIGITS_EPOCHS", "40"))
COUNTED = int(os.environ.get("DIGITS_COUNTED", EPOCHS))
"""Epochs in which each use of a sample is counted, at a byte of each commit."""

STEP_S = float(os.environ.get("DIGITS_STEP_S", "0"))
"""How long a step takes on one rank, on top of its work; n ranks take an nth."""

HURRY = Path(os.environ.get("DIGITS_HURRY", "/nonexistent"))
"""Once this file is there, steps take no longer than their work."""

RATE = "DIGITS_RATE"
"""If set, the learning rate; without, the example's."""

STRAY = "DIGITS_STRAY"
"""If set, a child detaches itself that sleeps for so many seconds."""


def example(folder: Path) -> ModuleType:
    """Return the example's module."""
    spec = importlib.util.spec_from_file_location("train", folder / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(folder: Path) -> None:
    digits = example(folder)
    leave_a_stray()
    rate = float(os.environ.get(RATE, digits.LEARNING_RATE))
    images, labels = digits.load()
    inputs, wanted = images[digits.VALIDATION :], labels[digits.VALIDATION :]

    def sums(weights: Weights, chunk: elastic.Chunk) -> tuple[Any, ...]:
        times = np.bincount(chunk.indices, minlength=len(inputs))
        return (*digits.sums(weights, inputs, wanted, chunk), times)

    with elastic.join(progress_every_s=0, world=polite_world()) as run:
        weights = digits.new_weights(np.random.default_rng(digits.SEED))
        speed = {name: np.zeros_like(value) for name, value in weights.items()}
        used = np.zeros((COUNTED, len(inputs)), dtype=np.uint8)
        state = run.restore({"weights": weights, "speed": speed, "used": used})
        weights, speed, used = state["weights"], state["speed"], state["used"]
        for batch in run.batches(
            samples=len(inputs),
            global_batch=digits.GLOBAL_BATCH,
            epochs=EPOCHS,
            seed=digits.SEED,
        ):
            loss, *gradients, times = run.sum(batch, partial(sums, weights))
            for name, gradient in zip(weights, gradients, strict=True):
                speed[name] *= digits.MOMENTUM
                speed[name] -= rate * gradient / len(batch)
                weights[name] += speed[name]
            if batch.epoch < COUNTED:
                used[batch.epoch] += times.astype(np.uint8)
            if not HURRY.exists():
                time.sleep(STEP_S / run.size)
            run.end_step(state, loss=float(loss) / len(batch))


def polite_world() -> elastic.World | None:
    """Return a world whose ranks sleep while they wait; None for a lone rank."""
    if "OMPI_COMM_WORLD_SIZE" not in os.environ:
        return SocketWorld() if "MASTER_PORT" in os.environ else None
    from mpi4py import MPI  # noqa: PLC0415 -- starts MPI

    from tests.e2e.polite_world import PoliteWorld  # noqa: PLC0415 -- as above

    return PoliteWorld(MPI.COMM_WORLD)


def leave_a_stray() -> None:
    """Start a child in a session of its own, which nobody waits for.

    It keeps no output open: mpirun would wait for that until it is killed.
    """
    if seconds := os.environ.get(STRAY):
        nothing = subprocess.DEVNULL
        subprocess.Popen(  # noqa: S603 -- our own words
            ["sleep", seconds],  # noqa: S607
            start_new_session=True,
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
