"""What became of a trainer: its generations, as their files tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.exchange.assigned import generations, read_assigned
from freetrain.exchange.ending import read_ending
from freetrain.exchange.errors import UnreadableFileError

if TYPE_CHECKING:
    from freetrain.exchange.assigned import Assigned
    from freetrain.exchange.ending import Ending
    from freetrain.exchange.layout import TrainerDir


@dataclass(frozen=True, slots=True)
class Chapter:
    """One generation.

    Attributes:
        assigned: Its leases, who made it, and why.
        ending: How it ended; None where it has not, or never ran.
    """

    assigned: Assigned
    ending: Ending | None


def history(folder: TrainerDir, *, most: int) -> tuple[Chapter, ...]:
    """Return the last *most* generations, the oldest first; damaged ones left out.

    Raises:
        OSError: A file cannot be read.
    """
    numbers = generations(folder.assignments)[-most:] if most else ()
    chapters = (_chapter(folder, number) for number in numbers)
    return tuple(one for one in chapters if one is not None)


def _chapter(folder: TrainerDir, number: int) -> Chapter | None:
    try:
        return Chapter(read_assigned(folder, number), read_ending(folder, number))
    except UnreadableFileError:
        return None
