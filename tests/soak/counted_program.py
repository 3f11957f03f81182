"""A training that notes how far it came, elastic or in a job that is requeued.

``counted_program.py NOTES`` joins FreeTrain's world. ``counted_program.py NOTES
--requeue SECONDS`` is one process that saves so often, and also when it gets TERM if
``--heeds`` is given. Each attempt has a file in NOTES: where it began, and its last
step; a second line has the steps that are saved.
"""

import argparse
import signal
import time
from pathlib import Path
from types import FrameType

from freetrain import elastic

STEP_S = 0.2
STEPS = 1_000_000


class Note:
    """The file of one attempt of one rank."""

    def __init__(self, folder: Path, attempt: int, rank: int, begun: int) -> None:
        """Begin at the step *begun*."""
        self._path = folder / f"{attempt}-{rank}"
        self._begun = begun
        self.at(begun)

    def at(self, step: int) -> None:
        """Note that *step* steps are done."""
        half = self._path.with_suffix(".half")
        half.write_text(f"{self._begun} {step}", "ascii")
        half.replace(self._path)


def train_elastic(notes: Path) -> None:
    """Train in FreeTrain's world; every rank works for all of a step."""
    with elastic.join() as run:
        state = run.restore({})
        note = Note(notes, run.generation, run.rank, run.position.step)
        for _ in run.batches(samples=STEPS, global_batch=1, epochs=1):
            time.sleep(STEP_S)
            run.end_step(state)
            note.at(run.position.step)


def train_requeued(notes: Path, every_s: float, *, heeds: bool) -> None:
    """Train alone, from what was saved last."""
    saved = notes / "saved"
    step = int(saved.read_text("ascii")) if saved.exists() else 0
    note = Note(notes, time.time_ns(), 0, step)
    told: list[int] = []

    def heed(number: int, frame: FrameType | None) -> None:
        del frame
        told.append(number)

    # A job whose program ends at TERM, within the grace time, has failed for Slurm, and
    # is not requeued: whoever does not save then has to ignore it.
    signal.signal(signal.SIGTERM, heed if heeds else signal.SIG_IGN)
    saved_s = time.monotonic()
    while True:
        time.sleep(STEP_S)
        step += 1
        note.at(step)
        if told or time.monotonic() - saved_s >= every_s:
            half = notes / "half"
            half.write_text(str(step), "ascii")
            half.replace(saved)
            saved_s = time.monotonic()
        if told:  # a job that ends by itself is not requeued
            signal.pause()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("notes", type=Path)
    parser.add_argument("--requeue", type=float)
    parser.add_argument("--heeds", action="store_true")
    asked = parser.parse_args()
    asked.notes.mkdir(exist_ok=True)
    if asked.requeue is None:
        train_elastic(asked.notes)
    else:
        train_requeued(asked.notes, asked.requeue, heeds=asked.heeds)
