"""The variables of whoever submitted a trainer, kept for the worlds to come."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from freetrain.exchange.errors import UnreadableFileError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from freetrain.exchange.layout import TrainerDir

MPI_TUNING = ("OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_", "OMPI_ALLOW_RUN_AS_ROOT")
"""Beginnings of variables by which sites and users tune MPI; others of MPI's are of
the world that set them."""


def render_environment(environment: Mapping[str, str]) -> bytes:
    """Return the file's content; bytes that are no text survive as escapes."""
    return (json.dumps(dict(environment), indent=0, sort_keys=True) + "\n").encode()


def read_environment(folder: TrainerDir) -> dict[str, str]:
    """Return the variables kept for a trainer.

    Raises:
        UnreadableFileError: They are no such file.
        OSError: They cannot be read.
    """
    path = folder.environment
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise UnreadableFileError(path, error) from error
    if not isinstance(found, dict) or not all(
        isinstance(value, str) for value in found.values()
    ):
        raise UnreadableFileError(path, "expected texts by name")
    return found
