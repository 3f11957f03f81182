"""How the programs are to misbehave, and what was asked of them: one JSON file."""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path


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
class Script:
    """What the programs are told to do, and what they were asked.

    Attributes:
        acts: What each program does at its next calls.
        calls: Every command line so far.
    """

    acts: dict[str, list[str]] = field(default_factory=dict)
    calls: list[list[str]] = field(default_factory=list)

    def take_act(self, program: str) -> Act:
        """Return what *program* does now, and forget it."""
        scripted = self.acts.get(program, [])
        return Act(scripted.pop(0)) if scripted else Act.NORMAL


@contextmanager
def opened(folder: Path) -> Iterator[Script]:
    """Read the script, and write it back when the block ends; one at a time."""
    with (folder / "script.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = folder / "script.json"
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        script = Script(**kept)
        yield script
        path.write_text(json.dumps(asdict(script)), encoding="utf-8")
