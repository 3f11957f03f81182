"""A state directory that compute nodes may enter."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.processes import remove_unused


@pytest.fixture
def folder() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="freetrain-tick-"))
    yield place / "state"
    remove_unused(place)
