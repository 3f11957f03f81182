"""Where reading stopped, for whoever reads on in another process.

A line that is not whole is read again by the next reader: one that reads fewer bytes
than a line has gets nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Mark:
    """Where reading a file stopped: before its first line that was not whole.

    Attributes:
        name: The file's, without its folder.
        inode: Its number; another number is another file.
        offset: Bytes that were read and understood.
        is_skipping: Whether what comes is the rest of a line that is too long.
        header: The line that explains those to come; empty for none.
    """

    name: str
    inode: int
    offset: int
    is_skipping: bool = False
    header: str = ""


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Where reading a trainer's progress stopped. ``asdict`` makes it JSON.

    Attributes:
        generation: The last one whose files were looked at; 0 for none.
        bad_lines: Lines so far that could not be understood.
        has_caught_up: Whether all that was there had been read once.
        marks: Of the files that may still grow.
    """

    generation: int = 0
    bad_lines: int = 0
    has_caught_up: bool = False
    marks: tuple[Mark, ...] = ()


BEGINNING = Bookmark()


def bookmark_from(fields: Mapping[str, Any]) -> Bookmark:
    """Return what ``asdict`` made *fields* of.

    Raises:
        TypeError: They are of something else.
        KeyError: Likewise.
    """
    marks = tuple(Mark(**one) for one in fields["marks"])
    return Bookmark(**{**fields, "marks": marks})
