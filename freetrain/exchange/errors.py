"""What can go wrong with the files that broker and agents share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freetrain.errors import BadDataError

if TYPE_CHECKING:
    from pathlib import Path


class UnreadableFileError(BadDataError):
    """A file of the state directory is not what its name says."""

    def __init__(self, path: Path, why: object) -> None:
        super().__init__(
            f"{path} cannot be read: {why}. Nothing was done about its trainer or "
            f"lease; keep the file for a bug report."
        )
