"""The demo's training for the measure of rescales: a line of progress for each step."""

from __future__ import annotations

import time

import numpy as np

from freetrain import elastic

STEP_S = 0.02


def main() -> None:
    with elastic.join(progress_every_s=0.0) as run:
        state = run.restore({"weights": np.zeros(10_000), "used": 0})
        for batch in run.batches(samples=10**5, global_batch=10, epochs=1_000_000):
            time.sleep(STEP_S)
            state["used"] += len(batch)
            run.end_step(state, loss=1.0)


if __name__ == "__main__":
    main()
