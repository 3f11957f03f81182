"""Records of ``Key=value`` pairs, as ``scontrol -o show …`` writes them.

Values may hold anything, line breaks included (an administrator's node comment),
so a record begins where its first key does, and of a key that comes twice the
first counts: what people can write comes after what Slurm writes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from slurm.errors import UnreadableOutputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FIELD = re.compile(r"(?:^| )([A-Z][A-Za-z_]*)=(\S*)")
_NEXT_KEY = re.compile(r" (?:Comment|Extra|InstanceId|ReservationName|Topology)=")

T = TypeVar("T")


def read_records(
    text: str,
    first_key: str,
    *,
    command: str,
    read: Callable[[dict[str, str], str], T],
) -> tuple[T, ...]:
    """Return what *read* makes of each record of *text*.

    Args:
        text: The whole answer.
        first_key: Key that each record begins with.
        command: The command, for messages.
        read: Takes a record's fields and its text; raises KeyError for a field
            that is missing and ValueError for one that it cannot read.

    Raises:
        UnreadableOutputError: Empty, cut short, or *read* could not.
    """
    check_whole(text, command)
    records = []
    for line_number, record in _split(text, f"{first_key}=", command):
        pairs = _FIELD.findall(record)
        try:
            records.append(read(dict(reversed(pairs)), record))
        except KeyError as error:
            why = f"the field {error.args[0]} is missing"
            raise UnreadableOutputError(command, line_number, record, why) from error
        except ValueError as error:
            why = str(error)
            raise UnreadableOutputError(command, line_number, record, why) from error
    return tuple(records)


def check_whole(text: str, command: str) -> None:
    """Raise where *text* is empty or ends within a line.

    An answer that is entirely empty is a failed query, never an empty cluster:
    Slurm says in words, or with a header, that there is nothing.
    """
    if not text.strip():
        raise UnreadableOutputError(command, 0, text, "the answer is empty")
    if not text.endswith("\n"):
        last = text.rsplit("\n", 1)[-1]
        number = text.count("\n") + 1
        raise UnreadableOutputError(command, number, last, "the answer is cut short")


def remark(record: str, key: str) -> str:
    """Return free text of *record* from *key* to the next one that may follow."""
    _, found, rest = record.partition(f" {key}=")
    return _NEXT_KEY.split(rest, maxsplit=1)[0].strip() if found else ""


def _split(text: str, start: str, command: str) -> Iterator[tuple[int, str]]:
    """Yield each record with the number of its first line."""
    number, lines = 0, list[str]()
    for line_number, line in enumerate(text.split("\n")[:-1], start=1):
        if line.startswith(start):
            if lines:
                yield number, "\n".join(lines)
            number, lines = line_number, [line]
        elif lines:
            lines.append(line)
        else:
            why = f"expected {start}…"
            raise UnreadableOutputError(command, line_number, line, why)
    yield number, "\n".join(lines)
