"""Kinds of texts: commands and paths; all of them hostile."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from freetrain.toml.kind import Kind, MismatchError

MOST_ARGUMENT_BYTES = 100_000
"""Longest word of a command; Linux takes no single one above 131,072 bytes."""

MOST_COMMAND_BYTES = 200_000
"""All words of a command together; far below what Linux takes (2 MiB)."""

MOST_WORDS = 10_000
"""Words of a command; each takes room beside its bytes."""

MOST_PATH_BYTES = 4_000
"""Longest path; Linux takes 4,095."""


@dataclass(frozen=True, slots=True)
class Places:
    """What paths of a file start from.

    Attributes:
        folder: The folder of the file, absolute.
        home: What ``~`` stands for, absolute; None where nobody knows.
    """

    folder: Path
    home: Path | None = None


def command() -> Kind[tuple[str, ...]]:
    """Return the kind of commands: a list of words, or a line split as a shell would.

    No shell ever sees it: ``$``, ``;`` and ``*`` mean themselves.
    """
    return Kind(
        'a command, such as "python train.py" or ["python", "train.py"], of up to '
        f"{MOST_COMMAND_BYTES} bytes and without NUL",
        lambda value: _command(_split(value)),
        _as_list,
    )


def argument() -> Kind[str]:
    """Return the kind of one word of a command."""

    def read(value: object) -> str:
        return _command([value])[0]

    return Kind("a program's name or path", read, str)


def arguments() -> Kind[tuple[str, ...]]:
    """Return the kind of lists of further words for a command."""

    def read(value: object) -> tuple[str, ...]:
        return _texts(value) if isinstance(value, list) else _refuse()

    return Kind('a list of words, such as ["--bind-to", "core"]', read, _as_list)


def path_from(places: Places) -> Kind[Path]:
    """Return the kind of paths, made absolute from *places*."""

    def read(value: object) -> Path:
        if not isinstance(value, str) or not value or not value.isprintable():
            raise MismatchError
        if len(value.encode()) > MOST_PATH_BYTES or ".." in Path(value).parts:
            raise MismatchError
        first, *rest = Path(value).parts or (".",)
        if first == "~" and places.home is not None:
            return places.home.joinpath(*rest)
        if first.startswith("~"):
            raise MismatchError
        return places.folder / value

    return Kind(
        "a path of printable characters without '..'; relative ones start at the "
        "folder of this file, '~/' at your home",
        read,
        str,
    )


def _split(value: object) -> object:
    if not isinstance(value, str):
        return value
    # shlex reads character by character: 1 MB would take seconds.
    if len(value) > MOST_COMMAND_BYTES:
        raise MismatchError
    try:
        return shlex.split(value)
    except ValueError as error:
        raise MismatchError(f"a command; {str(error).lower()}") from None


def _command(value: object) -> tuple[str, ...]:
    found = _texts(value)
    if not found or not found[0].strip():
        raise MismatchError
    return found


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MOST_WORDS:
        raise MismatchError
    for item in value:
        if not isinstance(item, str) or "\0" in item:
            raise MismatchError
        if len(item.encode()) > MOST_ARGUMENT_BYTES:
            raise MismatchError
    if sum(len(item.encode()) for item in value) > MOST_COMMAND_BYTES:
        raise MismatchError
    return tuple(value)


def _refuse() -> NoReturn:
    raise MismatchError


def _as_list(values: tuple[str, ...]) -> object:
    return list(values)
