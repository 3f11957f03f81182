"""Putting a trainer's newest sound checkpoint where its user wants it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from freetrain.elastic.checkpoint import copy_checked
from freetrain.elastic.durable import replaced
from freetrain.elastic.errors import CheckpointError

if TYPE_CHECKING:
    from pathlib import Path

    from freetrain.elastic.run_dir import RunDir


def publish(run_dir: RunDir, place: Path, *, since_step: int | None) -> str:
    """Copy the newest checkpoint that is whole to *place*, whole or not at all.

    A copy, no link: whoever uses it may change it, and training goes on from the
    original. What was there before is replaced.

    Args:
        run_dir: The trainer's.
        place: The file to make.
        since_step: Steps that the checkpoint must have; None for any.

    Returns:
        The checkpoint's name; empty where there is none yet that will do.

    Raises:
        OSError: It could not be read or written.
    """
    for one in reversed(run_dir.committed()):
        if one.step < (since_step or 0):
            continue
        with suppress(CheckpointError, FileNotFoundError):  # torn, or pruned just now
            _copy(one.path, place)
            return one.path.name
    return ""


def _copy(path: Path, place: Path) -> None:
    with path.open("rb") as source:
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = place.with_name(f".{place.name}.new")
        with replaced(place, temporary=temporary) as target:
            copy_checked(source, target)
