"""The training program that the tests launch; a process of its own.

Run as ``python -m tests.elastic.program``. Softmax regression with random input
noise, so that data order, generators, sums and restored state all show in the loss.
It counts how often each sample was used in each epoch, in the state, so that the
count is rolled back with everything else.
"""

import os
import resource
import time
from functools import partial
from pathlib import Path

import numpy as np

from freetrain import elastic

SAMPLES = 203
CLASSES = 3
EPOCHS = int(os.environ.get("TEST_EPOCHS", "4"))
GLOBAL_BATCH = 10
STEPS = EPOCHS * 21


def data_set() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    inputs = rng.normal(size=(SAMPLES, 6))
    labels = np.argmax(inputs @ rng.normal(size=(6, CLASSES)), axis=1)
    return inputs, labels


def note_process(run: elastic.Fragment) -> None:
    folder = Path(os.environ["TEST_PIDS"])
    temporary = folder / f".{os.getpid()}"
    temporary.write_text(str(os.getpid()))
    temporary.replace(folder / f"{run.generation}-{run.rank}")


def misbehave(run: elastic.Fragment, step: int) -> None:
    if os.environ.get("TEST_RAISE_AT") == f"{run.rank}:{step}":
        raise ValueError("the test asked for this")
    if os.environ.get("TEST_GIVE_UP_AT") == f"{run.rank}:{step}":
        run.stop_for_good("diverged, says the test")
    if run.generation == 1 and os.environ.get("TEST_HANG_AT") == f"{run.rank}:{step}":
        while True:
            time.sleep(1)
    # As on a full disk: no file of ours may grow beyond what it has.
    if os.environ.get("TEST_FULL_FROM") == str(step):
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))
    if os.environ.get("TEST_FULL_UNTIL") == str(step):
        endless = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.setrlimit(resource.RLIMIT_FSIZE, endless)


def main() -> None:
    inputs, labels = data_set()

    def sums_of(
        weights: np.ndarray, chunk: elastic.Chunk
    ) -> tuple[float, np.ndarray, np.ndarray]:
        noise = chunk.generator().normal(size=(len(chunk.indices), 6))
        x = inputs[chunk.indices] + 0.1 * noise
        scores = np.exp(x @ weights)
        likely = scores / scores.sum(axis=1, keepdims=True)
        rows = np.arange(len(x))
        loss = -np.log(likely[rows, labels[chunk.indices]]).sum()
        likely[rows, labels[chunk.indices]] -= 1
        used = np.bincount(chunk.indices, minlength=SAMPLES)
        return float(loss), x.T @ likely, used

    step_s = float(os.environ.get("TEST_STEP_S", "0"))
    with elastic.join() as run:
        note_process(run)
        state = run.restore(
            {
                "weights": np.zeros((6, CLASSES)),
                "rng": np.random.default_rng(9),
                "used": np.zeros((EPOCHS, SAMPLES), dtype=np.int64),
            }
        )
        for batch in run.batches(
            samples=SAMPLES, global_batch=GLOBAL_BATCH, epochs=EPOCHS, seed=3
        ):
            misbehave(run, batch.step)
            weights = state["weights"]
            loss, gradient, used = run.sum(batch, partial(sums_of, weights))
            jitter = state["rng"].normal(scale=1e-3, size=gradient.shape)
            state["weights"] = weights - 0.3 * gradient / len(batch) + jitter
            state["used"][batch.epoch] += used.astype(np.int64)
            time.sleep(step_s)
            run.end_step(state, loss=float(loss) / len(batch))


if __name__ == "__main__":
    main()
