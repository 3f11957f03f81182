"""From a file to its outermost table."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freetrain.errors import BadConfigurationError, MissingInputError
from freetrain.toml.table import Table

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class FileKind:
    """What messages about a file of some kind say.

    Attributes:
        what: What comes before its name, such as ``"trainers file "``; or nothing.
        most_bytes: The largest that is read.
        consequence: What was not done when it is refused, one sentence.
        advice: What to do when it cannot be read, one sentence.
        when_large: What to do about one that is too large; empty for the same.
    """

    what: str
    most_bytes: int
    consequence: str
    advice: str
    when_large: str = ""


def read_limited(path: Path, *, named: str, file: FileKind) -> bytes:
    """Return what is in the file at *path*, which the user named *named*.

    Raises:
        MissingInputError: It is not there or cannot be read.
        BadConfigurationError: It is larger than is ever read.
    """
    try:
        with path.open("rb") as opened:
            content = opened.read(file.most_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = error.strerror if isinstance(error, OSError) else error
        raise MissingInputError(
            f"cannot read {file.what}{named}: {why}. {file.consequence} {file.advice}"
        ) from error
    if len(content) > file.most_bytes:
        raise BadConfigurationError(
            f"{named}: larger than {file.most_bytes >> 20} MiB. {file.consequence} "
            f"{file.when_large or file.advice}"
        )
    return content


def parse_document(content: bytes, *, path: str, file: FileKind) -> Table:
    """Return the outermost table of *content*; *path* is for messages.

    Raises:
        BadConfigurationError: It is not TOML in UTF-8.
    """
    nothing = Table(path, "the file", {}, file.consequence)
    try:
        return Table(path, "", tomllib.loads(content.decode("utf-8")), file.consequence)
    except UnicodeDecodeError:
        nothing.refuse("this is not text in UTF-8, expected TOML")
    except (ValueError, RecursionError) as error:
        # Beside its own error, tomllib lets out those of int (over 4,300 digits)
        # and of datetime (the 31st of February).
        nothing.refuse(f"this is not TOML: {error}")
