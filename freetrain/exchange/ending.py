"""Endings: that a generation is over, and how; said once by whoever saw to it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from freetrain.elastic.durable import create_once
from freetrain.exchange.errors import UnreadableFileError

if TYPE_CHECKING:
    from freetrain.exchange.layout import TrainerDir


class Ended(StrEnum):
    """How a generation ended."""

    RESCALED = "rescaled"  # asked to stop, and it did
    FINISHED = "finished"  # the training is over
    DO_NOT_RESTART = "do not restart"  # the program gave up
    SUPERSEDED = "superseded"  # it found a later generation at work
    FAILED = "failed"  # the program's own error
    KILLED = "killed"  # it left no word: crash, kill, or a lost lease
    NOT_LAUNCHED = "not launched"  # a later generation came before it began

    @property
    def words(self) -> str:
        """What people are told: nobody need have killed what left no word."""
        return "ended without a word" if self is Ended.KILLED else str(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The end of a generation: none of its processes trains any more.

    Attributes:
        generation: Which.
        ended: How.
        was_asked: Whether it had been asked to stop.
        lost_lease: Whether it lost a lease: then nothing is counted against it.
        exit_code: The launcher's; None where nobody saw it.
        step: Steps done, as its outcome says; 0 where it left none.
        committed_step: Steps that are safe, likewise.
        message: Why, for people. Hostile text.
        started_s: When it was launched, Unix time; None where it was not.
        ended_s: When it was over, Unix time.
        author: Name of the lease whose agent says so.
    """

    generation: int
    ended: Ended
    was_asked: bool
    lost_lease: bool
    exit_code: int | None
    step: int
    committed_step: int
    message: str
    started_s: float | None
    ended_s: float
    author: str


def create_ending(folder: TrainerDir, ending: Ending) -> bool:
    """Create the file of *ending* unless its generation has one.

    Raises:
        OSError: It could not be written.
    """
    text = json.dumps(asdict(ending), indent=1) + "\n"
    return create_once(folder.ending(ending.generation), text.encode())


def read_ending(folder: TrainerDir, generation: int) -> Ending | None:
    """Return how *generation* ended; None where nobody said so yet.

    Raises:
        UnreadableFileError: It is no such file.
        OSError: It cannot be read.
    """
    path = folder.ending(generation)
    try:
        fields = json.loads(path.read_bytes())
        return Ending(**{**fields, "ended": Ended(fields["ended"])})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError) as error:
        raise UnreadableFileError(path, error) from error
