"""What the fake programs remember between calls: one JSON file in one folder."""

from __future__ import annotations

import fcntl
import json
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NODES = tuple(f"n{number}" for number in range(1, 9))


class Act(StrEnum):
    """How a program behaves at one call."""

    NORMAL = "normal"
    HANG = "hang"  # does nothing and never answers
    HANG_AFTER = "hang after"  # does it, and never answers: a time-out that succeeded
    EMPTY = "empty"  # does it, answers nothing, exits with 0
    HALF = "half"  # does it; the answer is cut within a line
    GARBAGE = "garbage"  # does it; the answer is something else
    LOSE = "lose"  # does nothing, says nothing, exits with 0
    REFUSE = "refuse"
    UNREACHABLE = "unreachable"
    MID_BACKFILL = "mid-backfill"  # plans are cleared, statistics say so


@dataclass(slots=True)
class FakeJob:
    """A job, or one task of an array.

    Attributes:
        job_id: Raw number; of a waiting task its array's.
        array_id: Number of its array, 0 outside of arrays.
        task: Index in the array, -1 outside of arrays.
        columns: What squeue tells, by column.
        signals: Signals it was sent.
    """

    job_id: int
    array_id: int
    task: int
    columns: dict[str, str]
    signals: list[str] = field(default_factory=list)

    @property
    def display_id(self) -> str:
        return f"{self.array_id}_{self.task}" if self.array_id else str(self.job_id)

    @property
    def state(self) -> str:
        return self.columns["State"]


@dataclass(slots=True)
class FakeState:
    """Everything that the programs know.

    Attributes:
        now_s: The controller's clock; each command takes a second.
        next_id: The next raw number.
        jobs: Jobs, ended ones included.
        acts: What each program does at its next calls.
        calls: Every command line so far.
    """

    now_s: int = 1_795_250_000
    next_id: int = 1
    jobs: list[FakeJob] = field(default_factory=list)
    acts: dict[str, list[str]] = field(default_factory=dict)
    calls: list[list[str]] = field(default_factory=list)

    @property
    def idle_nodes(self) -> list[str]:
        held = {j.columns["NodeList"] for j in self.jobs if j.state == "RUNNING"}
        return [name for name in NODES if name not in held]

    def take_act(self, program: str) -> Act:
        """Return what *program* does now, and forget it."""
        scripted = self.acts.get(program, [])
        return Act(scripted.pop(0)) if scripted else Act.NORMAL


@contextmanager
def opened(folder: Path) -> Iterator[FakeState]:
    """Read the state, and write it back when the block ends; one at a time."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = folder / "state.json"
        state = _read(path) if path.exists() else FakeState()
        yield state
        path.write_text(json.dumps(asdict(state)), encoding="utf-8")


def _read(path: Path) -> FakeState:
    kept = json.loads(path.read_text(encoding="utf-8"))
    kept["jobs"] = [FakeJob(**job) for job in kept["jobs"]]
    return FakeState(**kept)
