"""Worlds of one program, one after the other, and what they left behind."""

import json
from pathlib import Path
from typing import Any

from tests.elastic.launching import Launched
from tests.examples.torchrun import TorchStand

# Sums over ranks and pieces are rounded differently; a wrong sample makes 1e-2.
TOLERANCE = 2e-5


def samples_in(record: Path) -> dict[int, list[int]]:
    """What each step used, of all ranks of the last generation that did it."""
    used: dict[int, list[int]] = {}
    files = list(record.glob("*-*.jsonl"))
    for generation in sorted({int(file.stem.split("-")[0]) for file in files}):
        steps: dict[int, list[int]] = {}
        for file in record.glob(f"{generation}-*.jsonl"):
            for line in map(json.loads, file.read_text().splitlines()):
                if "samples" in line:
                    steps.setdefault(line["step"], []).extend(line["samples"])
        used |= {step: sorted(indices) for step, indices in steps.items()}
    return used


class Worlds:
    """Worlds of one program that share a run directory."""

    def __init__(self, folder: Path, library: str) -> None:
        self.stand = TorchStand(folder)
        self._program = f"tests.integrations.{library}_program"
        self._record = folder / "record"

    def train(self, size: int, **accidents: str) -> Launched:
        """Start the next generation on *size* ranks, and return after its end."""
        generation = len(self.stand.launched) + 1
        world = self.stand.torchrun(
            size,
            generation,
            *("-m", self._program),
            TEST_RECORD=str(self._record),
            **accidents,
        )
        world.wait()
        return world

    def outcome(self) -> str:
        """How the last generation ended."""
        last = self.stand.launched[-1]
        outcome = self.stand.outcome(last.generation)
        assert outcome, last.log.read_text()
        return str(outcome["outcome"])

    def position(self) -> int:
        """The step that the next generation goes on from."""
        return int(self.stand.committed().position.step)

    def recorded(self, generation: int, rank: int = 0) -> list[dict[str, Any]]:
        path = self._record / f"{generation}-{rank}.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def samples(self) -> dict[int, list[int]]:
        """What each step used in the committed history, of all ranks."""
        return samples_in(self._record)

    def losses(self) -> dict[int, float]:
        """What FreeTrain was told of each step in the committed history."""
        return {
            line["step"]: line["loss"]
            for line in self.stand.lines()
            if line.get("loss") is not None
        }

    def evaluated(self, generation: int, step: int) -> int:
        """Batches of the evaluation after *step*."""
        lines = self.recorded(generation)
        return sum("evaluated" in line and line["step"] == step for line in lines)
