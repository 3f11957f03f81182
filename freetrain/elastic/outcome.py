"""How a fragment ended, in a file that is written once.

Agents import this module, so it needs no NumPy.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from freetrain.elastic.files import create_once

if TYPE_CHECKING:
    from freetrain.elastic.files import RunDir


class Ending(StrEnum):
    """What the launcher is to make of a fragment's end."""

    RESCALED = "rescaled"  # asked to stop: launch the next generation
    FINISHED = "finished"  # the training is over
    DO_NOT_RESTART = "do not restart"  # the program gave up: do not launch again
    SUPERSEDED = "superseded"  # a later generation exists: nothing to do
    FAILED = "failed"  # an error; the exit code is not 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One fragment's end.

    Attributes:
        ending: What the launcher is to make of it.
        generation: The fragment's number.
        step: Steps done since the training began.
        committed_step: Steps that the newest checkpoint of this fragment has, or
            the one it restored; the next generation goes on from there.
        message: Why, for people; may be empty.
        t: When, in Unix seconds.
    """

    ending: Ending
    generation: int
    step: int
    committed_step: int
    message: str
    t: float


def write_outcome(run_dir: RunDir, outcome: Outcome) -> bool:
    """Write *outcome* unless this generation has one.

    Returns:
        Whether this call wrote it; the first of several ranks that fail does.

    Raises:
        OSError: It could not be written.
    """
    fields = asdict(outcome)
    fields["outcome"] = str(fields.pop("ending"))
    run_dir.outcomes.mkdir(parents=True, exist_ok=True, mode=0o700)
    text = json.dumps(fields, indent=1) + "\n"
    return create_once(run_dir.outcome(outcome.generation), text.encode("ascii"))


def read_outcome(run_dir: RunDir, generation: int) -> Outcome | None:
    """Return how *generation* says that it ended; what it leaves out is 0 or empty.

    Returns:
        None where it left no word, or one that makes no sense.

    Raises:
        OSError: It cannot be read now.
    """
    with suppress(FileNotFoundError, ValueError):
        found = json.loads(run_dir.outcome(generation).read_bytes())
        if isinstance(found, dict):
            return _outcome(found, generation)
    return None


def _outcome(found: dict[str, Any], generation: int) -> Outcome:
    return Outcome(
        ending=Ending(found.get("outcome", "")),
        generation=generation,
        step=_whole(found.get("step")),
        committed_step=_whole(found.get("committed_step")),
        message=str(found.get("message", "")),
        t=found.get("t", 0.0),
    )


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
