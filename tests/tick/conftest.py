"""A world for ticks, in a folder in memory: each tick syncs a dozen files."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.tick.tick_worlds import TickWorld, tick_world

if TYPE_CHECKING:
    from collections.abc import Iterator

_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - where there is one; not a name to guess


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder of one's own, in memory where there is such a place."""
    if not _IN_MEMORY.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY, prefix="freetrain-") as folder:
        yield Path(folder)


@pytest.fixture
def world(quick_folder: Path) -> TickWorld:
    """Eight idle nodes and an empty state directory."""
    return tick_world(quick_folder)
