"""A training of one process, as small as can be, and what it leaves behind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from freetrain import elastic
from freetrain.elastic.files import Clock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SAMPLES = 10
EPOCHS = 4


class Ticking:
    """A clock that goes on by a tenth of a second whenever it is read."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def read(self) -> float:
        self.now_s += 0.1
        return self.now_s

    def clock(self) -> Clock:
        return Clock(unix_s=self.read, elapsed_s=self.read)


def _nothing(_run: elastic.Fragment, _step: int) -> None:
    """Let a step pass."""


def train(
    folder: Path,
    at_step: Callable[[elastic.Fragment, int], None] = _nothing,
    *,
    environment: dict[str, str] | None = None,
    changes: dict[str, int] | None = None,
) -> elastic.Fragment:
    """Train to the end or to a stop, calling *at_step* in every step."""
    numbers = {"samples": SAMPLES, "global_batch": 3, "epochs": EPOCHS} | (
        changes or {}
    )
    with elastic.join(
        run_dir=folder,
        progress_every_s=0,
        environment=environment or {},
        clock=Ticking().clock(),
    ) as run:
        state = run.restore({"sum": 0})
        for batch in run.batches(**numbers):
            at_step(run, batch.step)
            state["sum"] += int(batch.indices.sum())
            run.end_step(state, loss=1 / (batch.step + 1))
    return run


def lines(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "progress.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def outcome(folder: Path, generation: int = 1) -> dict[str, Any]:
    path = folder / "outcomes" / f"{generation:010d}.json"
    return dict(json.loads(path.read_text()))


def ask(folder: Path, generation: int = 1) -> None:
    (folder / "control" / f"{generation:010d}.stop").touch()


def committed(folder: Path) -> elastic.Checkpoint:
    newest = max((folder / "checkpoints").glob("*.npz"))
    return elastic.read_checkpoint(newest.read_bytes())
