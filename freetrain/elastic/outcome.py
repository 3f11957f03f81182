"""How a fragment ended, in a file that is written once."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.elastic.durable import create_once

if TYPE_CHECKING:
    from freetrain.elastic.run_dir import RunDir


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
